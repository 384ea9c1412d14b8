"""What butlers do by the clock and remember between sessions, and whom each may call."""

from migrations.raw import execute

revision = "0043"
down_revision = "0042"

SCHEDULES = """
CREATE TABLE shared.schedules (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    butler text NOT NULL CHECK (length(butler) <= 31),
    name text NOT NULL CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    source text NOT NULL CHECK (source IN ('file', 'tool')),
    cron text CHECK (length(cron) <= 200),
    once_at timestamptz,
    zone text NOT NULL CHECK (length(zone) <= 64),
    prompt text CHECK (length(prompt) <= 20000),
    tool text CHECK (length(tool) <= 128),
    arguments jsonb CHECK (pg_column_size(arguments) <= 65536 AND length(arguments::text) <= 65536),
    catch_up text NOT NULL CHECK (catch_up IN ('once', 'skip')),
    next_due_at timestamptz,
    removed boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (butler, name),
    CHECK ((cron IS NULL) <> (once_at IS NULL)),
    CHECK ((prompt IS NULL) <> (tool IS NULL)),
    CHECK ((tool IS NULL) = (arguments IS NULL))
);
CREATE INDEX schedules_due ON shared.schedules (butler, next_due_at) WHERE next_due_at IS NOT NULL;
CREATE TABLE shared.occurrences (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    schedule_id uuid NOT NULL REFERENCES shared.schedules ON DELETE CASCADE,
    butler text NOT NULL CHECK (length(butler) <= 31),
    due_at timestamptz NOT NULL,
    status text NOT NULL CHECK (status IN ('claimed', 'running', 'done', 'failed', 'uncertain', 'skipped')),
    claimed_by text CHECK (length(claimed_by) <= 200),
    leased_until timestamptz,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    outcome text CHECK (length(outcome) <= 500),
    UNIQUE (schedule_id, due_at),
    CHECK ((status IN ('claimed', 'running')) = (ended_at IS NULL)),
    CHECK ((ended_at IS NULL) <= (leased_until IS NOT NULL AND claimed_by IS NOT NULL))
);
CREATE INDEX occurrences_held ON shared.occurrences (butler, leased_until) WHERE ended_at IS NULL;
CREATE INDEX occurrences_ended ON shared.occurrences (ended_at) WHERE ended_at IS NOT NULL;
"""
STATE = """
CREATE TABLE shared.state (
    butler text NOT NULL CHECK (length(butler) <= 31),
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 200),
    value jsonb NOT NULL CHECK (pg_column_size(value) <= 65536 AND length(value::text) <= 65536),
    version bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (butler, key)
);
"""
# Who may delete from a table may lock it against everybody else, so a butler marks its row, and the row goes.
REMOVAL = """
CREATE FUNCTION shared.take_away() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'state' THEN
        DELETE FROM shared.state WHERE butler = NEW.butler AND key = NEW.key;
    ELSE
        DELETE FROM shared.schedules WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION shared.take_away() FROM PUBLIC;
CREATE TRIGGER removed AFTER UPDATE OF removed ON shared.state FOR EACH ROW WHEN (NEW.removed)
    EXECUTE FUNCTION shared.take_away();
CREATE TRIGGER removed AFTER UPDATE OF removed ON shared.schedules FOR EACH ROW WHEN (NEW.removed)
    EXECUTE FUNCTION shared.take_away();
"""
RIGHTS = """
GRANT SELECT, INSERT ON shared.schedules, shared.occurrences, shared.state TO butlers_group_butler;
GRANT UPDATE (source, cron, once_at, zone, prompt, tool, arguments, catch_up, next_due_at, removed) ON shared.schedules
    TO butlers_group_butler;
GRANT UPDATE (status, claimed_by, leased_until, ended_at, outcome) ON shared.occurrences TO butlers_group_butler;
GRANT UPDATE (value, version, changed_at, removed) ON shared.state TO butlers_group_butler;
GRANT SELECT ON shared.schedules, shared.occurrences, shared.state TO butlers_group_console, butlers_group_owner;
GRANT DELETE ON shared.schedules, shared.occurrences TO butlers_group_messenger;
ALTER TABLE shared.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE shared.occurrences ENABLE ROW LEVEL SECURITY;
ALTER TABLE shared.state ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.schedules TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
CREATE POLICY own_rows ON shared.occurrences TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
CREATE POLICY own_rows ON shared.state TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
CREATE POLICY readers ON shared.schedules FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY readers ON shared.occurrences FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY readers ON shared.state FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY what_is_over ON shared.occurrences FOR DELETE TO butlers_group_messenger USING (ended_at IS NOT NULL);
CREATE POLICY what_is_over_read ON shared.occurrences FOR SELECT TO butlers_group_messenger
    USING (ended_at IS NOT NULL);
CREATE POLICY what_is_over ON shared.schedules FOR DELETE TO butlers_group_messenger
    USING (next_due_at IS NULL AND source = 'tool');
CREATE POLICY what_is_over_read ON shared.schedules FOR SELECT TO butlers_group_messenger
    USING (next_due_at IS NULL AND source = 'tool');
"""
CALLS = """
CREATE TABLE switchboard.calls (
    butler text NOT NULL CHECK (length(butler) <= 31),
    target text NOT NULL CHECK (length(target) <= 31),
    PRIMARY KEY (butler, target)
);
GRANT SELECT ON switchboard.calls TO butlers_group_switchboard, butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `shared.schedules`, `shared.occurrences`, `shared.state` and `switchboard.calls`."""
    execute(SCHEDULES)
    execute(STATE)
    execute(REMOVAL)
    execute(RIGHTS)
    execute(CALLS)
