"""Notices: what happened while nobody, or somebody, worked for a butler, until its agent has been shown it."""

from migrations.raw import execute

revision = "0047"
down_revision = "0046"

TABLE = """
CREATE TABLE shared.notices (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    butler text NOT NULL CHECK (length(butler) <= 31),
    -- Only this session is to be shown it; any of the butler's if it is empty.
    session_id uuid,
    source text NOT NULL CHECK (source ~ '^[a-z][a-z0-9_.-]{0,39}$'),
    kind text NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_.-]{0,39}$'),
    key text NOT NULL DEFAULT '' CHECK (length(key) <= 200),
    text text NOT NULL CHECK (length(text) BETWEEN 1 AND 4000),
    trust text NOT NULL DEFAULT 'internal' CHECK (trust IN ('owner', 'internal', 'external')),
    priority text NOT NULL DEFAULT 'normal' CHECK (priority IN ('critical', 'high', 'normal', 'low')),
    -- Whether it begins a session where none runs.
    wakes boolean NOT NULL DEFAULT false,
    -- How many like it were left out, since too many came at once.
    more integer NOT NULL DEFAULT 0 CHECK (more >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '24 hours'
        CHECK (expires_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'shown', 'done')),
    -- The session that was shown it, or the id of a client's token, and with which of its calls.
    shown_in text CHECK (length(shown_in) <= 64),
    shown_call integer CHECK (shown_call >= 0),
    shown_at timestamptz CHECK (shown_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    -- Whether a session was shown it and broke off, so that nobody knows whether it was read.
    again boolean NOT NULL DEFAULT false,
    CONSTRAINT the_owner_speaks_for_itself CHECK (source <> 'owner' OR trust = 'owner'),
    CONSTRAINT what_is_shown_was_shown_to_somebody CHECK (state <> 'shown' OR shown_in IS NOT NULL),
    CONSTRAINT what_is_queued_is_shown_to_nobody CHECK (state <> 'queued' OR shown_in IS NULL)
);
CREATE INDEX notices_to_show ON shared.notices (butler, created_at) WHERE state = 'queued';
CREATE INDEX notices_shown ON shared.notices (butler, shown_in) WHERE state = 'shown';
CREATE INDEX notices_by_source ON shared.notices (butler, source, created_at);
CREATE INDEX notices_by_age ON shared.notices (created_at);
"""

# Whoever inserts reads nothing of another butler, so the table itself counts. Of the owner nothing is left out.
BOUND = """
CREATE FUNCTION shared.bound_notice() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.trust = 'owner' THEN
        RETURN NEW;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('notices ' || NEW.butler, 0));
    IF (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source
            AND created_at > clock_timestamp() - interval '1 minute') < 30
        AND (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND state = 'queued') < 200 THEN
        RETURN NEW;
    END IF;
    UPDATE shared.notices SET more = more + 1 WHERE butler = NEW.butler AND source = NEW.source AND kind = 'left-out'
        AND state = 'queued';
    IF FOUND THEN
        RETURN NULL;
    END IF;
    NEW.kind := 'left-out';
    NEW.key := '';
    NEW.text := 'More came than is kept; they are left out.';
    NEW.trust := 'internal';
    NEW.priority := 'low';
    NEW.wakes := false;
    NEW.session_id := NULL;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.bound_notice() FROM PUBLIC;
CREATE TRIGGER bound BEFORE INSERT ON shared.notices FOR EACH ROW EXECUTE FUNCTION shared.bound_notice();
"""

GRANTS = """
GRANT SELECT ON shared.notices TO butlers_group_butler, butlers_group_console, butlers_group_owner;
GRANT INSERT (id, butler, session_id, source, kind, key, text, trust, priority, wakes, expires_at) ON shared.notices
    TO butlers_group_butler, butlers_group_console, butlers_group_owner;
GRANT UPDATE (state, shown_in, shown_call, shown_at, again) ON shared.notices TO butlers_group_butler;
GRANT DELETE ON shared.notices TO butlers_group_messenger;
ALTER TABLE shared.notices ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.notices FOR SELECT TO butlers_group_butler USING (butler = shared.me());
CREATE POLICY own_rows_shown ON shared.notices FOR UPDATE TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
-- A butler tells itself what it likes, but never in the owner's name.
CREATE POLICY own_rows_told ON shared.notices FOR INSERT TO butlers_group_butler
    WITH CHECK (butler = shared.me() AND trust <> 'owner');
CREATE POLICY told ON shared.notices FOR INSERT TO butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner WITH CHECK (true);
CREATE POLICY readers ON shared.notices FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY what_is_over ON shared.notices FOR DELETE TO butlers_group_messenger
    USING (created_at < statement_timestamp() - interval '30 days');
CREATE POLICY what_is_over_read ON shared.notices FOR SELECT TO butlers_group_messenger
    USING (created_at < statement_timestamp() - interval '30 days');
"""

READERS = """
ALTER TABLE shared.sessions
    -- By this word its agent knows a notice from a text that looks like one.
    ADD COLUMN nonce text CHECK (length(nonce) BETWEEN 8 AND 40),
    -- Whether its runtime reads what comes with a result, so that the owner's words may reach it there.
    ADD COLUMN hears boolean NOT NULL DEFAULT false;
GRANT UPDATE (nonce, hears) ON shared.sessions TO butlers_group_butler;
ALTER TABLE shared.client_tokens ADD COLUMN notices boolean NOT NULL DEFAULT false;
"""


def upgrade() -> None:
    """Create `shared.notices`, and say who is shown them."""
    execute(TABLE)
    execute(BOUND)
    execute(GRANTS)
    execute(READERS)
