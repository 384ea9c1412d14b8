"""What was let out and did not go is told of, and the card of a yes shows the end of its message."""

from migrations.raw import execute

revision = "0037"
down_revision = "0036"

ENDS = """
CREATE INDEX deliveries_not_delivered ON messenger.deliveries (settled_at)
    WHERE class = 'third_party' AND status IN ('failed', 'expired', 'dead');
CREATE INDEX cards_of_ends ON messenger.deliveries (created_at) WHERE card_kind = 'not_delivered';
CREATE INDEX cards_of_a_yes ON messenger.deliveries (action_id)
    WHERE class = 'card' AND status = 'sent' AND reason = 'approved';
"""


def upgrade() -> None:
    """Find them quickly."""
    execute(ENDS)
