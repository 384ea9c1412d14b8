"""Which user of this computer a session of the console belongs to."""

from migrations.raw import execute

revision = "0027"
down_revision = "0026"

OWNERS = """
-- Null where the system does not say who holds the other end of a connection: then the cookie alone counts.
ALTER TABLE console.sessions ADD COLUMN peer_uid bigint;
-- Nobody knows whose these were, and a copy of their cookie would count for weeks.
UPDATE console.sessions SET ended_at = clock_timestamp() WHERE ended_at IS NULL;
"""


def upgrade() -> None:
    """Add the column `peer_uid` to console.sessions, and end the sessions from before it."""
    execute(OWNERS)
