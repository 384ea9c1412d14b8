"""What waits is found for each butler by itself, however much of another's waits."""

from migrations.raw import execute

revision = "0093"
down_revision = "0092"

QUEUED = """
DROP INDEX shared.notifications_on_their_way;
CREATE INDEX notifications_on_their_way ON shared.notifications (origin_butler, created_at) WHERE status = 'queued';
"""


def upgrade() -> None:
    """Put the butler first in the index of what waits."""
    execute(QUEUED)
