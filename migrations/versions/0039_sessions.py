"""Sessions of runtime instances, by which a token of a session counts and a message knows what it answers."""

from migrations.raw import execute

revision = "0039"
down_revision = "0038"

SESSIONS = """
CREATE TABLE shared.sessions (
    id uuid PRIMARY KEY,
    butler text NOT NULL CHECK (length(butler) <= 31),
    request_context jsonb CHECK (pg_column_size(request_context) <= 65536 AND length(request_context::text) <= 65536),
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
);
CREATE INDEX sessions_ended ON shared.sessions (ended_at) WHERE ended_at IS NOT NULL;
GRANT INSERT (id, butler, request_context) ON shared.sessions TO butlers_group_butler;
GRANT UPDATE (ended_at) ON shared.sessions TO butlers_group_butler;
GRANT SELECT ON shared.sessions TO butlers_group_butler, butlers_group_console, butlers_group_owner;
GRANT SELECT, DELETE ON shared.sessions TO butlers_group_messenger;
ALTER TABLE shared.sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.sessions TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
CREATE POLICY readers ON shared.sessions FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY what_is_over ON shared.sessions FOR DELETE TO butlers_group_messenger USING (ended_at IS NOT NULL);
CREATE POLICY what_is_over_read ON shared.sessions FOR SELECT TO butlers_group_messenger USING (ended_at IS NOT NULL);
"""


def upgrade() -> None:
    """Create `shared.sessions`."""
    execute(SESSIONS)
