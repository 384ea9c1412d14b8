"""Sessions that wait, run and end: what each was asked, by what it runs, its limits, and each tool it calls."""

from migrations.raw import execute

revision = "0044"
down_revision = "0043"

SESSIONS = """
ALTER TABLE shared.sessions
    ADD COLUMN cause text NOT NULL DEFAULT 'client' CHECK (length(cause) BETWEEN 1 AND 100),
    -- Empty for a session that a program outside began, which nobody here runs.
    ADD COLUMN prompt text CHECK (length(prompt) BETWEEN 1 AND 20000),
    -- What a schedule had due: the lineage of everything the session sends.
    ADD COLUMN occurrence_id uuid,
    ADD COLUMN runtime text CHECK (length(runtime) <= 31),
    ADD COLUMN status text NOT NULL DEFAULT 'running'
        CHECK (status IN ('waiting', 'running', 'done', 'failed', 'stopped', 'limit', 'lost')),
    ADD COLUMN limits jsonb NOT NULL DEFAULT '{}'
        CHECK (jsonb_typeof(limits) = 'object' AND pg_column_size(limits) <= 1000
            AND NOT jsonb_path_exists(limits, 'strict $.** ? (@ > 1e15 || @ < 0)')),
    ADD COLUMN used jsonb NOT NULL DEFAULT '{}'
        CHECK (jsonb_typeof(used) = 'object' AND pg_column_size(used) <= 1000
            AND NOT jsonb_path_exists(used, 'strict $.** ? (@ > 1e15 || @ < 0)')),
    ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN outcome text CHECK (length(outcome) <= 4000),
    ADD COLUMN said text NOT NULL DEFAULT '' CHECK (length(said) <= 100000),
    -- How many tools it has called; a session that called none may be begun again.
    ADD COLUMN steps integer NOT NULL DEFAULT 0 CHECK (steps >= 0),
    -- The fencing token: whoever runs an earlier attempt writes nothing more.
    ADD COLUMN attempt integer NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 1000),
    ADD COLUMN holder text CHECK (length(holder) <= 400),
    ADD COLUMN lease_until timestamptz,
    ADD COLUMN stop_asked_at timestamptz,
    ADD COLUMN told_nobody boolean NOT NULL DEFAULT false,
    -- What the owner has to be told of it; empty again once that is a message.
    ADD COLUMN untold text CHECK (length(untold) <= 1000);
UPDATE shared.sessions SET created_at = began_at, status = CASE WHEN ended_at IS NULL THEN 'running' ELSE 'done' END;
ALTER TABLE shared.sessions ALTER COLUMN status SET DEFAULT 'waiting', ALTER COLUMN began_at DROP NOT NULL,
    ALTER COLUMN began_at DROP DEFAULT,
    ADD UNIQUE (id, butler),
    -- A butler writes these, and everybody reads them.
    ADD CONSTRAINT times_that_can_be_read CHECK (began_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND ended_at BETWEEN '2020-01-01Z' AND '2200-01-01Z' AND lease_until BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    ADD CONSTRAINT what_is_open_has_no_end CHECK ((ended_at IS NULL) = (status IN ('waiting', 'running'))),
    ADD CONSTRAINT what_runs_has_begun CHECK (status <> 'running' OR began_at IS NOT NULL),
    ADD CONSTRAINT what_waits_can_be_run CHECK (status <> 'waiting' OR prompt IS NOT NULL AND began_at IS NULL),
    ADD CONSTRAINT only_what_runs_is_held CHECK ((holder IS NULL) = (lease_until IS NULL)
        AND (lease_until IS NULL OR status = 'running'));
CREATE INDEX sessions_to_see_to ON shared.sessions (butler, created_at) WHERE ended_at IS NULL OR untold IS NOT NULL;
CREATE INDEX sessions_of_a_day ON shared.sessions (butler, began_at);
"""

STEPS = """
CREATE TABLE shared.session_steps (
    session_id uuid NOT NULL,
    butler text NOT NULL,
    seq integer NOT NULL CHECK (seq > 0),
    tool text NOT NULL CHECK (length(tool) <= 200),
    arguments_hash text NOT NULL CHECK (length(arguments_hash) <= 64),
    -- `running` until the tool has answered; then the answer's own status, or `ok` or `error`.
    status text NOT NULL DEFAULT 'running' CHECK (length(status) BETWEEN 1 AND 40),
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz CHECK ((ended_at IS NULL) = (status = 'running')
        AND ended_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    PRIMARY KEY (session_id, seq),
    FOREIGN KEY (session_id, butler) REFERENCES shared.sessions (id, butler) ON DELETE CASCADE
);
"""

GRANTS = """
GRANT INSERT (cause, prompt, occurrence_id, status, began_at) ON shared.sessions TO butlers_group_butler;
GRANT UPDATE (status, runtime, limits, used, began_at, outcome, said, steps, attempt, holder, lease_until, told_nobody,
    untold) ON shared.sessions TO butlers_group_butler;
-- The owner asks a butler, and stops what runs; nothing else of a session is anybody's but its butler's.
GRANT INSERT (id, butler, cause, prompt, request_context, occurrence_id) ON shared.sessions TO butlers_group_owner;
GRANT UPDATE (stop_asked_at) ON shared.sessions TO butlers_group_owner, butlers_group_console;
CREATE POLICY the_owner_asks ON shared.sessions FOR INSERT TO butlers_group_owner WITH CHECK (status = 'waiting');
CREATE POLICY the_owner_stops ON shared.sessions FOR UPDATE TO butlers_group_owner, butlers_group_console
    USING (true) WITH CHECK (true);
GRANT INSERT (session_id, butler, seq, tool, arguments_hash), UPDATE (status, ended_at) ON shared.session_steps
    TO butlers_group_butler;
GRANT SELECT ON shared.session_steps TO butlers_group_butler, butlers_group_console, butlers_group_owner;
ALTER TABLE shared.session_steps ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.session_steps TO butlers_group_butler
    USING (butler = shared.me()) WITH CHECK (butler = shared.me());
CREATE POLICY readers ON shared.session_steps FOR SELECT TO butlers_group_console, butlers_group_owner USING (true);
"""


def upgrade() -> None:
    """Let sessions wait and run, and keep their steps."""
    execute(SESSIONS)
    execute(STEPS)
    execute(GRANTS)
