"""When the person behind a session of the console last proved who it is; what began before has not."""

from migrations.raw import execute

revision = "0016"
down_revision = "0015"

PROVED = """
ALTER TABLE console.sessions ADD COLUMN proved_at timestamptz;
"""


def upgrade() -> None:
    """Add the column `proved_at` to console.sessions."""
    execute(PROVED)
