"""Least privilege: functions for nobody unasked, no lock on a whole table for a butler, actions on own words only."""

from migrations.raw import execute, one_role

revision = "0015"
down_revision = "0014"

FUNCTIONS = """
-- What PostgreSQL gives to everybody with each new function is given by name or not at all.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA shared, switchboard, messenger, console FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

-- Its names are looked up once, here, and not by the search path of whoever asks.
CREATE OR REPLACE FUNCTION shared.me() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN substr(current_user::text, length(current_database()::text) + 2);
"""

# Without a login per daemon there is only the daemon's own word for who it is.
ME_BY_ITS_WORD = """
CREATE OR REPLACE FUNCTION shared.me() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(current_setting('butlers.me', true), '');
"""

LOCKS = """
-- Whoever may update or delete in a whole table may lock it against all others. Two columns are enough for a repeat.
REVOKE UPDATE, DELETE ON shared.recent FROM butlers_group_butler, butlers_group_switchboard;
GRANT UPDATE (lineage, first_at) ON shared.recent TO butlers_group_butler, butlers_group_switchboard;
-- Its policies show them no row.
REVOKE SELECT ON shared.recent FROM butlers_group_console, butlers_group_owner;
"""

ACTIONS = """
-- An open action on the notification of another would keep that one from being asked about.
DROP POLICY as_itself ON shared.pending_actions;
CREATE POLICY as_itself ON shared.pending_actions FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND status = 'pending' AND decided_by IS NULL
        AND (notification_id IS NULL OR EXISTS (SELECT FROM shared.notification_status s
            WHERE s.notification_id = pending_actions.notification_id AND s.origin_butler = shared.me())));
"""


def upgrade() -> None:
    """Narrow what 0001 and 0004 gave; under one role, let each connection say who it is."""
    execute(FUNCTIONS)
    if one_role() is not None:
        execute(ME_BY_ITS_WORD)
    execute(LOCKS)
    execute(ACTIONS)
