"""Calls of gated tools: a pending action may be about one, and a butler runs what the owner or a rule let through."""

from migrations.raw import execute

revision = "0045"
down_revision = "0044"

TABLE = """
CREATE TABLE shared.tool_calls (
    id uuid PRIMARY KEY REFERENCES shared.pending_actions ON DELETE CASCADE,
    origin_butler text NOT NULL CHECK (length(origin_butler) <= 31),
    tool_name text NOT NULL CHECK (length(tool_name) BETWEEN 1 AND 60),
    -- The text itself, because what runs is byte for byte what the hash is over.
    arguments text NOT NULL CHECK (length(arguments) <= 10000),
    says text NOT NULL CHECK (length(says) BETWEEN 1 AND 1000),
    risk text NOT NULL CHECK (risk IN ('low', 'high')),
    repeatable boolean NOT NULL,
    holder text CHECK (length(holder) <= 200),
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 100),
    lease_until timestamptz,
    result text CHECK (length(result) <= 100000),
    ended_at timestamptz,
    CHECK ((holder IS NULL) = (lease_until IS NULL) AND (holder IS NULL) = (attempt = 0))
);
CREATE UNIQUE INDEX one_open_call ON shared.pending_actions (origin_butler, content_sha)
    WHERE notification_id IS NULL AND tool_name <> 'notify' AND status IN ('pending', 'approved', 'executing');
CREATE INDEX calls_under_way ON shared.pending_actions (origin_butler, requested_at)
    WHERE notification_id IS NULL AND status IN ('approved', 'executing');
CREATE INDEX calls_ended ON shared.pending_actions (requested_at)
    WHERE notification_id IS NULL AND status IN ('failed', 'uncertain', 'expired');
CREATE INDEX calls_answered ON shared.pending_actions (origin_butler, tool_name, decided_at)
    WHERE notification_id IS NULL AND decided_by IS NOT NULL;
"""

GRANTS = """
GRANT SELECT, INSERT (id, origin_butler, tool_name, arguments, says, risk, repeatable),
    UPDATE (holder, attempt, lease_until, result, ended_at) ON shared.tool_calls TO butlers_group_butler;
GRANT SELECT ON shared.tool_calls TO butlers_group_console, butlers_group_owner;
GRANT UPDATE (arguments, says, result), DELETE ON shared.tool_calls TO butlers_group_messenger;
GRANT SELECT, INSERT (status, rule_id), UPDATE (status) ON shared.pending_actions TO butlers_group_butler;
GRANT INSERT (rule_id, notification_id, n) ON shared.rule_uses TO butlers_group_butler;
"""

# Of two calls that would spend the same use of a rule, one fails.
RULES = """
ALTER TABLE shared.rule_uses ADD COLUMN n integer CHECK (n > 0), ADD UNIQUE (rule_id, n);
ALTER TABLE shared.approval_rules DROP CONSTRAINT approval_rules_arg_constraints_check,
    ADD CONSTRAINT approval_rules_arg_constraints_check CHECK (tool_name <> 'notify'
        OR arg_constraints ?| ARRAY['contact_id', 'recipient']);
"""

# No butler writes an answer of the owner's: it moves only what the owner answered, or what a rule lets through.
POLICIES = """
ALTER TABLE shared.tool_calls ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.tool_calls FOR SELECT TO butlers_group_butler USING (origin_butler = shared.me());
CREATE POLICY own_rows_run ON shared.tool_calls FOR UPDATE TO butlers_group_butler USING (origin_butler = shared.me())
    WITH CHECK (origin_butler = shared.me());
CREATE POLICY own_rows_asked ON shared.tool_calls FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND EXISTS (SELECT FROM shared.pending_actions a
        WHERE a.id = tool_calls.id AND a.origin_butler = shared.me() AND a.notification_id IS NULL));
CREATE POLICY readers ON shared.tool_calls FOR SELECT
    TO butlers_group_messenger, butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY what_is_over ON shared.tool_calls FOR UPDATE TO butlers_group_messenger
    USING (EXISTS (SELECT FROM shared.pending_actions a WHERE a.id = tool_calls.id
        AND a.status NOT IN ('pending', 'approved', 'executing', 'uncertain'))) WITH CHECK (true);
CREATE POLICY what_is_over_removed ON shared.tool_calls FOR DELETE TO butlers_group_messenger
    USING (EXISTS (SELECT FROM shared.pending_actions a WHERE a.id = tool_calls.id
        AND a.status NOT IN ('pending', 'approved', 'executing', 'uncertain')
        AND a.requested_at < statement_timestamp() - interval '400 days'));

CREATE POLICY own_calls ON shared.pending_actions FOR SELECT TO butlers_group_butler
    USING (origin_butler = shared.me() AND notification_id IS NULL);
CREATE POLICY call_by_rule ON shared.pending_actions FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND status = 'approved' AND decided_by IS NULL AND notification_id IS NULL
        AND tool_name <> 'notify' AND length(tool_name) <= 60 AND agent_summary = '' AND tool_args = '{}'
        AND (session_id IS NULL OR length(session_id) <= 200) AND length(content_sha) <= 64
        AND expires_at < clock_timestamp() + interval '3661 days'
        AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = origin_butler)
        AND EXISTS (SELECT FROM shared.approval_rules r WHERE r.id = pending_actions.rule_id AND r.effect = 'allow'
            AND r.tool_name = pending_actions.tool_name AND r.active));
-- What waits for the owner names no rule.
CREATE POLICY no_rule_beside_a_question ON shared.pending_actions AS RESTRICTIVE FOR INSERT
    TO butlers_group_butler, butlers_group_switchboard WITH CHECK (rule_id IS NULL OR status = 'approved');
CREATE POLICY own_calls_run ON shared.pending_actions FOR UPDATE TO butlers_group_butler
    USING (origin_butler = shared.me() AND notification_id IS NULL AND tool_name <> 'notify'
        AND status IN ('approved', 'executing', 'uncertain'))
    WITH CHECK (origin_butler = shared.me() AND notification_id IS NULL
        AND status IN ('executing', 'executed', 'failed', 'cancelled'));

CREATE POLICY own_calls ON shared.rule_uses FOR INSERT TO butlers_group_butler
    WITH CHECK (EXISTS (SELECT FROM shared.tool_calls c
            WHERE c.id = rule_uses.notification_id AND c.origin_butler = shared.me())
        AND EXISTS (SELECT FROM shared.approval_rules r WHERE r.id = rule_uses.rule_id AND r.tool_name <> 'notify'));

-- The Switchboard's login is a member of the butlers' group too, and sees every use.
CREATE POLICY own_calls_only ON shared.rule_uses AS RESTRICTIVE FOR INSERT
    TO butlers_group_butler, butlers_group_switchboard
    WITH CHECK (pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR EXISTS (SELECT FROM shared.tool_calls c
            WHERE c.id = rule_uses.notification_id AND c.origin_butler = shared.me()));

CREATE POLICY own_calls ON shared.approval_events FOR INSERT TO butlers_group_butler
    WITH CHECK (actor = shared.me() AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = actor)
        AND length(event_type) <= 60 AND (reason IS NULL OR length(reason) <= 4000)
        AND shared.plain(detail) AND octet_length(detail::text) <= 32768 AND jsonb_typeof(detail) = 'object'
        AND notification_id IS NULL AND EXISTS (SELECT FROM shared.tool_calls c
            WHERE c.id = approval_events.action_id AND c.origin_butler = shared.me()));
"""


def upgrade() -> None:
    """Create `shared.tool_calls`, and let a butler run what was let through."""
    execute(TABLE)
    execute(RULES)
    execute(GRANTS)
    execute(POLICIES)
