"""Indexes for what each tick looks for: what lies in the queue past its time, and each butler's oldest questions."""

from migrations.raw import execute

revision = "0019"
down_revision = "0018"

INDEXES = """
CREATE INDEX deliveries_overdue ON messenger.deliveries (not_after) WHERE status = 'queued';
CREATE INDEX actions_by_butler ON shared.pending_actions (origin_butler, requested_at, id) WHERE status = 'pending';
"""


def upgrade() -> None:
    """Create the indexes."""
    execute(INDEXES)
