"""The lines of one message or of one question are found without reading the whole audit, which only grows."""

from migrations.raw import execute

revision = "0022"
down_revision = "0021"

INDEXES = """
DROP INDEX shared.events_of_the_owner;
CREATE INDEX events_by_notification ON shared.approval_events (notification_id) WHERE notification_id IS NOT NULL;
CREATE INDEX events_by_action ON shared.approval_events (action_id) WHERE action_id IS NOT NULL;
"""


def upgrade() -> None:
    """Make both indexes; the one for the lines of the owner is a part of the second."""
    execute(INDEXES)
