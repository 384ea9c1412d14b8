"""Who may do what: grants and row-level security.

Logins are made by `butlers migrate`, one per daemon, as members of the groups.
"""

from migrations.raw import execute

revision = "0004"
down_revision = "0003"

GRANTS = """
GRANT USAGE ON SCHEMA shared, switchboard TO butlers_group_butler, butlers_group_switchboard,
    butlers_group_messenger, butlers_group_console, butlers_group_owner;
GRANT USAGE ON SCHEMA messenger TO butlers_group_messenger, butlers_group_switchboard, butlers_group_console,
    butlers_group_owner;
GRANT USAGE ON SCHEMA console TO butlers_group_console, butlers_group_owner;
REVOKE EXECUTE ON FUNCTION shared.me() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shared.me() TO butlers_group_butler, butlers_group_switchboard,
    butlers_group_messenger, butlers_group_console, butlers_group_owner;

-- Everybody checks that the schema is the one it was made for.
GRANT USAGE ON SCHEMA public TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
GRANT SELECT ON public.schema_version TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;

-- Everybody reads who is there, who is who, and which realm is configured.
GRANT SELECT ON shared.contacts, shared.contact_info, shared.channels, shared.keyring, shared.authority,
    switchboard.butlers TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;

GRANT INSERT (id, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha, envelope, whom,
    contact_id, contact_info_id, third_party, not_after, status, answer)
    ON shared.notifications TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger;
GRANT SELECT ON shared.notification_status TO butlers_group_butler;
GRANT SELECT, INSERT, UPDATE, DELETE ON shared.recent TO butlers_group_butler, butlers_group_switchboard,
    butlers_group_messenger;
GRANT INSERT (id, origin_butler, tool_name, tool_args, content_sha, agent_summary, session_id, notification_id,
    expires_at) ON shared.pending_actions TO butlers_group_butler, butlers_group_switchboard,
    butlers_group_messenger;
GRANT SELECT ON shared.approval_rules, shared.rule_uses, shared.client_tokens TO butlers_group_butler;
GRANT INSERT (event_type, action_id, rule_id, notification_id, actor, reason, detail) ON shared.approval_events
    TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger, butlers_group_console,
    butlers_group_owner;

GRANT SELECT ON shared.notifications, shared.pending_actions, shared.approval_rules, shared.rule_uses,
    messenger.deliveries TO butlers_group_switchboard;
GRANT SELECT, INSERT, UPDATE, DELETE ON switchboard.butlers, switchboard.routes, switchboard.inbox
    TO butlers_group_switchboard;

GRANT SELECT, UPDATE ON shared.notifications, shared.pending_actions TO butlers_group_messenger;
GRANT SELECT ON shared.approval_rules, shared.client_tokens, shared.approval_events, switchboard.inbox
    TO butlers_group_messenger;
-- Locking a rule FOR SHARE asks for the right to update it; a column that means nothing is enough.
GRANT UPDATE (description) ON shared.approval_rules TO butlers_group_messenger;
GRANT SELECT, INSERT, DELETE ON shared.rule_uses TO butlers_group_messenger;
GRANT SELECT, INSERT, UPDATE ON shared.channels TO butlers_group_messenger;
-- LOCK TABLE ... IN SHARE MODE asks for UPDATE; only the trigger ever updates.
GRANT UPDATE ON shared.authority TO butlers_group_messenger;
GRANT INSERT, UPDATE ON shared.contact_info TO butlers_group_messenger;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA messenger TO butlers_group_messenger;

GRANT SELECT ON ALL TABLES IN SCHEMA shared, switchboard, messenger TO butlers_group_console, butlers_group_owner;
GRANT UPDATE ON shared.notifications, shared.pending_actions TO butlers_group_console, butlers_group_owner;
GRANT INSERT, UPDATE, DELETE ON shared.contacts, shared.contact_info, shared.approval_rules
    TO butlers_group_console, butlers_group_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA console TO butlers_group_console;
GRANT INSERT ON console.sign_in_links TO butlers_group_owner;
GRANT SELECT, INSERT, UPDATE ON shared.client_tokens TO butlers_group_owner;
GRANT INSERT ON messenger.pairings TO butlers_group_owner;
"""

POLICIES = """
ALTER TABLE shared.notifications ENABLE ROW LEVEL SECURITY;
CREATE POLICY as_itself ON shared.notifications FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND admitted_by = shared.me());
CREATE POLICY for_others ON shared.notifications FOR INSERT TO butlers_group_switchboard, butlers_group_messenger
    WITH CHECK (admitted_by = shared.me());
CREATE POLICY movers_read ON shared.notifications FOR SELECT TO butlers_group_switchboard,
    butlers_group_messenger, butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY settled_by ON shared.notifications FOR UPDATE TO butlers_group_messenger, butlers_group_console,
    butlers_group_owner USING (true) WITH CHECK (true);

ALTER TABLE shared.recent ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.recent TO butlers_group_butler
    USING (origin_butler = shared.me()) WITH CHECK (origin_butler = shared.me());
CREATE POLICY for_others ON shared.recent TO butlers_group_switchboard, butlers_group_messenger
    USING (true) WITH CHECK (true);

ALTER TABLE shared.pending_actions ENABLE ROW LEVEL SECURITY;
CREATE POLICY as_itself ON shared.pending_actions FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND status = 'pending' AND decided_by IS NULL);
CREATE POLICY for_others ON shared.pending_actions FOR INSERT TO butlers_group_switchboard,
    butlers_group_messenger WITH CHECK (status = 'pending' AND decided_by IS NULL);
CREATE POLICY readers ON shared.pending_actions FOR SELECT TO butlers_group_switchboard,
    butlers_group_messenger, butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY deciders ON shared.pending_actions FOR UPDATE TO butlers_group_messenger, butlers_group_console,
    butlers_group_owner USING (true) WITH CHECK (true);

ALTER TABLE shared.approval_rules ENABLE ROW LEVEL SECURITY;
CREATE POLICY concerning_me ON shared.approval_rules FOR SELECT TO butlers_group_butler
    USING (origin_butler IS NULL OR origin_butler = shared.me());
CREATE POLICY all_of_them ON shared.approval_rules TO butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner USING (true) WITH CHECK (true);

ALTER TABLE shared.client_tokens ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tokens ON shared.client_tokens FOR SELECT TO butlers_group_butler USING (butler = shared.me());
CREATE POLICY the_owner ON shared.client_tokens TO butlers_group_owner, butlers_group_console
    USING (true) WITH CHECK (true);

ALTER TABLE shared.approval_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_voice ON shared.approval_events FOR INSERT TO butlers_group_butler, butlers_group_switchboard
    WITH CHECK (actor = shared.me());
CREATE POLICY deciders_speak ON shared.approval_events FOR INSERT TO butlers_group_messenger,
    butlers_group_console, butlers_group_owner WITH CHECK (true);
CREATE POLICY readers ON shared.approval_events FOR SELECT TO butlers_group_messenger, butlers_group_console,
    butlers_group_owner USING (true);
"""


def upgrade() -> None:
    """Grant, and switch row-level security on."""
    execute(GRANTS)
    execute(POLICIES)
