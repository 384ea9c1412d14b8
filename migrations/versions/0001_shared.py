"""The ground: contacts, notifications, pending actions, standing rules, events."""

from migrations.raw import execute

revision = "0001"
down_revision = None

# Groups are shared by all databases of a server, so they are made only where they are missing.
GROUPS = """
DO $$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['butlers_group_butler', 'butlers_group_switchboard', 'butlers_group_messenger',
                                  'butlers_group_console', 'butlers_group_owner'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
END $$;
"""

CONTACTS = """
CREATE SCHEMA shared;

CREATE TABLE shared.contacts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    roles text[] NOT NULL DEFAULT '{}',
    preferred_channel text NOT NULL DEFAULT 'telegram' CHECK (preferred_channel IN ('telegram', 'email')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- There is one owner, also when three daemons boot at once.
CREATE UNIQUE INDEX one_owner ON shared.contacts ((true)) WHERE 'owner' = ANY (roles);

CREATE TABLE shared.contact_info (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    contact_id uuid NOT NULL REFERENCES shared.contacts ON DELETE CASCADE,
    type text NOT NULL CHECK (length(type) BETWEEN 1 AND 40),
    value text NOT NULL CHECK (length(value) BETWEEN 1 AND 340),
    is_primary boolean NOT NULL DEFAULT false,
    verified_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What look-ups compare: the spelling folded as shared/addresses.py folds it.
    lookup text NOT NULL GENERATED ALWAYS AS (
        lower(regexp_replace(btrim(value), '^telegram: *', '', 'i') COLLATE "C")
    ) STORED
);
CREATE UNIQUE INDEX one_entry_per_value ON shared.contact_info (type, lookup);
CREATE UNIQUE INDEX one_primary ON shared.contact_info (contact_id, type) WHERE is_primary;

CREATE TABLE shared.authority (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch bigint NOT NULL DEFAULT 1
);
INSERT INTO shared.authority DEFAULT VALUES;
-- Everything that says what may leave moves the epoch, a statement typed by hand included.
CREATE FUNCTION shared.move_authority() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN UPDATE shared.authority SET epoch = epoch + 1; RETURN NULL; END $$;
REVOKE EXECUTE ON FUNCTION shared.move_authority() FROM PUBLIC;
CREATE TRIGGER authority_moves BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON shared.contacts
    FOR EACH STATEMENT EXECUTE FUNCTION shared.move_authority();
CREATE TRIGGER authority_moves BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON shared.contact_info
    FOR EACH STATEMENT EXECUTE FUNCTION shared.move_authority();

CREATE FUNCTION shared.me() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT substr(current_user::text, length(current_database()::text) + 2) $$;

CREATE TABLE shared.channels (
    channel text PRIMARY KEY CHECK (channel IN ('telegram', 'email')),
    realm text NOT NULL DEFAULT 'sandbox',
    sender text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE shared.keyring (
    name text NOT NULL,
    public_key text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at timestamptz,
    PRIMARY KEY (name, public_key)
);

CREATE TABLE shared.client_tokens (
    jti text PRIMARY KEY,
    butler text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
"""

NOTIFICATIONS = """
CREATE TABLE shared.notifications (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    origin_butler text NOT NULL,
    admitted_by text NOT NULL,
    realm text NOT NULL,
    key text NOT NULL,
    lineage text NOT NULL,
    request_sha text NOT NULL,
    content_sha text,
    envelope jsonb NOT NULL CHECK (pg_column_size(envelope) < 200000),
    whom text NOT NULL,
    contact_id uuid,
    contact_info_id uuid,
    third_party boolean NOT NULL,
    not_after timestamptz,
    status text NOT NULL CHECK (status IN
        ('ok', 'error', 'queued', 'uncertain', 'pending_approval', 'pending_missing_identifier')),
    answer jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Nobody can take the key, or speak with the name, of another butler.
    UNIQUE (origin_butler, key),
    CHECK (envelope ->> 'origin_butler' IS NOT DISTINCT FROM origin_butler)
);
-- A stated idempotency key names one request; other words under it are a conflict.
CREATE UNIQUE INDEX one_request_per_stated_key ON shared.notifications (origin_butler, lineage)
    WHERE lineage LIKE 'key:%';
-- The second fence: the same bytes to the same third party in one lineage are one message.
CREATE UNIQUE INDEX one_content_per_lineage ON shared.notifications (origin_butler, lineage, content_sha)
    WHERE third_party AND content_sha IS NOT NULL;
CREATE INDEX notifications_recent ON shared.notifications (created_at DESC);
CREATE INDEX notifications_on_their_way ON shared.notifications (created_at) WHERE status = 'queued';
CREATE INDEX notifications_by_target ON shared.notifications (whom, created_at DESC);

CREATE TABLE shared.recent (
    origin_butler text NOT NULL,
    request_sha text NOT NULL,
    lineage text NOT NULL,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (origin_butler, request_sha)
);

CREATE TABLE shared.pending_actions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    origin_butler text NOT NULL,
    tool_name text NOT NULL DEFAULT 'notify',
    tool_args jsonb NOT NULL,
    content_sha text,
    wire_shas text[],
    revision integer NOT NULL DEFAULT 1,
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'approved', 'denied', 'expired',
        'cancelled', 'executing', 'executed', 'failed', 'uncertain')),
    agent_summary text NOT NULL DEFAULT '',
    session_id text,
    notification_id uuid REFERENCES shared.notifications,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '72 hours',
    decided_by uuid,
    decided_at timestamptz,
    decision_reason text,
    rule_id uuid,
    execution_result jsonb
);
CREATE UNIQUE INDEX one_open_action ON shared.pending_actions (notification_id)
    WHERE status IN ('pending', 'approved', 'executing');
CREATE INDEX actions_by_notification ON shared.pending_actions (notification_id);
CREATE INDEX actions_waiting ON shared.pending_actions (requested_at) WHERE status = 'pending';

CREATE TABLE shared.approval_rules (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tool_name text NOT NULL DEFAULT 'notify',
    origin_butler text,
    effect text NOT NULL DEFAULT 'allow' CHECK (effect IN ('allow', 'deny')),
    arg_constraints jsonb NOT NULL CHECK (arg_constraints ?| ARRAY['contact_id', 'recipient']),
    description text NOT NULL DEFAULT '',
    active boolean NOT NULL DEFAULT true,
    expires_at timestamptz,
    max_uses integer CHECK (max_uses > 0),
    max_per_day integer CHECK (max_per_day > 0),
    realm text,
    made_by uuid,
    created_from uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER authority_moves BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON shared.approval_rules
    FOR EACH STATEMENT EXECUTE FUNCTION shared.move_authority();

CREATE TABLE shared.rule_uses (
    rule_id uuid NOT NULL REFERENCES shared.approval_rules ON DELETE CASCADE,
    notification_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (rule_id, notification_id)
);
CREATE INDEX rule_uses_by_notification ON shared.rule_uses (notification_id);

CREATE TABLE shared.approval_events (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_type text NOT NULL,
    action_id uuid,
    rule_id uuid,
    notification_id uuid,
    actor text NOT NULL,
    reason text,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE FUNCTION shared.events_stay() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'approval_events is append-only'; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON shared.approval_events
    FOR EACH STATEMENT EXECUTE FUNCTION shared.events_stay();

CREATE VIEW shared.notification_status WITH (security_barrier) AS
    SELECT id AS notification_id, origin_butler, status, answer, updated_at, key, lineage, request_sha, content_sha,
        whom, envelope #>> '{delivery,emoji}' AS emoji, created_at
    FROM shared.notifications
    WHERE origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER');
"""


def upgrade() -> None:
    """Make the group roles and the schema `shared`."""
    execute(GROUPS)
    execute(CONTACTS)
    execute(NOTIFICATIONS)
