"""The card of a yes whose outcome was not known shows the end too, once it is known."""

from migrations.raw import execute

revision = "0109"
down_revision = "0108"

IN_DOUBT = """
DROP INDEX messenger.cards_of_a_yes;
CREATE INDEX cards_of_a_yes ON messenger.deliveries (action_id)
    WHERE class = 'card' AND status = 'sent' AND reason IN ('approved', 'uncertain');
"""


def upgrade() -> None:
    """Find them as quickly as those that are on their way."""
    execute(IN_DOUBT)
