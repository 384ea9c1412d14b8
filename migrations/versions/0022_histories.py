"""The lines of one message or of one question are found without reading the whole audit, which only grows."""

from migrations.raw import execute

revision = "0022"
down_revision = "0021"

INDEXES = """
CREATE INDEX events_by_notification ON shared.approval_events (notification_id) WHERE notification_id IS NOT NULL;
CREATE INDEX events_by_action ON shared.approval_events (action_id) WHERE action_id IS NOT NULL;
"""


def upgrade() -> None:
    """Make both indexes; that of the owner's own lines stays, which however many a butler writes never lengthen."""
    execute(INDEXES)
