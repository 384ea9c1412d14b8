"""What nobody brought in its time is found for each butler by itself, however much of another's waits."""

from migrations.raw import execute

revision = "0107"
down_revision = "0106"

NOT_BROUGHT = """
CREATE INDEX notifications_overdue ON shared.notifications (origin_butler, not_after) WHERE status = 'queued';
"""


def upgrade() -> None:
    """Index by its time what waits to be brought."""
    execute(NOT_BROUGHT)
