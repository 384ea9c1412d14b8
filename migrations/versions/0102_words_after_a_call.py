"""Who asked the owner last is found also where it asked for a tool's call."""

from migrations.raw import execute

revision = "0102"
down_revision = "0101"

INDEX = """
DROP INDEX messenger.deliveries_to_the_owner;
CREATE INDEX deliveries_to_the_owner ON messenger.deliveries (channel, address, settled_at)
    WHERE (class = 'owner' OR card_kind IN ('question', 'approval', 'tool_call', 'call_uncertain')) AND status = 'sent';
"""


def upgrade() -> None:
    """Index the cards about calls beside the others."""
    execute(INDEX)
