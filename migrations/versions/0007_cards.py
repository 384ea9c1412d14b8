"""Finding at once the cards whose question is over."""

from migrations.raw import execute

revision = "0007"
down_revision = "0006"

INDEX = """
CREATE INDEX cards_in_chats ON messenger.deliveries (action_id)
    WHERE class = 'card' AND status = 'sent' AND reason IS NULL;
"""


def upgrade() -> None:
    """Index the cards that still show their buttons."""
    execute(INDEX)
