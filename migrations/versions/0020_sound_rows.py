"""What butlers and the Switchboard may say in their rows: as themselves, and nothing that stops whoever reads it."""

from migrations.raw import execute, one_role

revision = "0020"
down_revision = "0019"

# A group can be taken on by its members on servers before 16, and has no name here to write under.
ME = """
CREATE OR REPLACE FUNCTION shared.me() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN starts_with(current_user::text, current_database()::text || '_')
            AND NOT starts_with(current_user::text, 'butlers_group_')
        THEN substr(current_user::text, length(current_database()::text) + 2) END;
"""

FUNCTIONS = """
-- What every reader can hold: no number beyond a double's (a caller's context may name ids of 64 bits), and no deeper
-- than honest rows a few times over.
CREATE FUNCTION shared.plain(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NOT jsonb_path_exists(value, 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308)')
        AND NOT jsonb_path_exists(value, 'strict $.**{33 to last}');
-- Of a question one cannot read: whether another asks it. One that is not there yet is nobody's.
CREATE FUNCTION shared.asked_by_another(action uuid, butler text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN EXISTS (SELECT FROM shared.pending_actions a WHERE a.id = action AND a.origin_butler <> butler);
REVOKE EXECUTE ON FUNCTION shared.plain(jsonb), shared.asked_by_another(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shared.plain(jsonb) TO butlers_group_butler, butlers_group_switchboard;
GRANT EXECUTE ON FUNCTION shared.asked_by_another(uuid, text) TO butlers_group_butler;
"""

# Nothing begins as delivered; and what is read as text, time or JSON has an end.
A_NOTIFICATION = """
    admitted_by = shared.me() AND status NOT IN ('ok', 'uncertain')
    AND length(origin_butler) <= 63 AND length(realm) <= 1000 AND length(key) <= 200 AND length(lineage) <= 400
    AND length(whom) <= 1100 AND length(request_sha) <= 64 AND (content_sha IS NULL OR length(content_sha) <= 64)
    AND (not_after IS NULL OR not_after BETWEEN clock_timestamp() - interval '10 years'
        AND clock_timestamp() + interval '10 years')
    AND shared.plain(answer) AND pg_column_size(answer) <= 65536
    AND jsonb_typeof(answer) = 'object' AND NOT answer ? 'delivery'
    AND shared.plain(envelope) AND jsonb_typeof(envelope -> 'delivery') = 'object'
    AND coalesce(jsonb_typeof(envelope #> '{delivery,message}'), 'string') = 'string'
"""
A_QUESTION = """
    status = 'pending' AND decided_by IS NULL
    AND length(origin_butler) <= 63 AND length(tool_name) <= 60 AND length(agent_summary) <= 4000
    AND (session_id IS NULL OR length(session_id) <= 200) AND (content_sha IS NULL OR length(content_sha) <= 64)
    AND shared.plain(tool_args) AND pg_column_size(tool_args) < 200000 AND jsonb_typeof(tool_args) = 'object'
    AND expires_at BETWEEN clock_timestamp() - interval '3661 days' AND clock_timestamp() + interval '3661 days'
"""
A_LINE = """
    actor = shared.me() AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = actor)
    AND length(event_type) <= 60 AND (reason IS NULL OR length(reason) <= 4000)
    AND shared.plain(detail) AND pg_column_size(detail) <= 16384 AND jsonb_typeof(detail) = 'object'
"""
# The Switchboard carries the words of others, and in no invented name; nor is a login of another database, which a
# group of the whole server lets in here, one of ours.
OF_A_DAEMON = "EXISTS (SELECT FROM shared.keyring k WHERE k.name = origin_butler)"

# The logins of the Switchboard and the Messenger are members of butlers_group_butler too, and one policy that lets a
# row in is enough.
POLICIES = f"""
DROP POLICY as_itself ON shared.notifications;
DROP POLICY for_others ON shared.notifications;
CREATE POLICY as_itself ON shared.notifications FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND {OF_A_DAEMON} AND {A_NOTIFICATION});
CREATE POLICY for_butlers ON shared.notifications FOR INSERT TO butlers_group_switchboard
    WITH CHECK ({OF_A_DAEMON} AND {A_NOTIFICATION});
CREATE POLICY for_others ON shared.notifications FOR INSERT TO butlers_group_messenger
    WITH CHECK (admitted_by = shared.me());

-- An open action on the notification of another would keep that one from being asked about.
DROP POLICY as_itself ON shared.pending_actions;
DROP POLICY for_others ON shared.pending_actions;
CREATE POLICY as_itself ON shared.pending_actions FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND {OF_A_DAEMON} AND {A_QUESTION}
        AND (notification_id IS NULL OR EXISTS (SELECT FROM shared.notification_status s
            WHERE s.notification_id = pending_actions.notification_id AND s.origin_butler = shared.me())));
CREATE POLICY for_butlers ON shared.pending_actions FOR INSERT TO butlers_group_switchboard
    WITH CHECK ({OF_A_DAEMON} AND {A_QUESTION}
        AND (notification_id IS NULL OR EXISTS (SELECT FROM shared.notifications n
            WHERE n.id = pending_actions.notification_id AND n.admitted_by = shared.me()
                AND n.origin_butler = pending_actions.origin_butler)));
CREATE POLICY for_others ON shared.pending_actions FOR INSERT TO butlers_group_messenger
    WITH CHECK (status = 'pending' AND decided_by IS NULL);

-- A line stands in the history of what it names, so a butler names its own. Its action may come after it.
DROP POLICY own_voice ON shared.approval_events;
CREATE POLICY own_voice ON shared.approval_events FOR INSERT TO butlers_group_butler
    WITH CHECK ({A_LINE}
        AND (notification_id IS NULL OR EXISTS (SELECT FROM shared.notification_status s
            WHERE s.notification_id = approval_events.notification_id AND s.origin_butler = shared.me()))
        AND (action_id IS NULL
            OR (notification_id IS NOT NULL AND NOT shared.asked_by_another(action_id, shared.me()))));
CREATE POLICY for_butlers ON shared.approval_events FOR INSERT TO butlers_group_switchboard WITH CHECK ({A_LINE});
"""


def upgrade() -> None:
    """Name nobody who is no login, and bound what is inserted by those whom nothing is believed."""
    if one_role() is None:
        execute(ME)
    execute(FUNCTIONS)
    execute(POLICIES)
