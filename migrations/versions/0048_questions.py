"""Questions that butlers ask the owner: the row is the truth, and whichever surface answers it first has answered."""

from migrations.raw import execute

revision = "0048"
down_revision = "0047"

TABLE = """
CREATE TABLE shared.questions (
    id uuid PRIMARY KEY,
    origin_butler text NOT NULL CHECK (length(origin_butler) <= 31),
    title text NOT NULL CHECK (length(title) BETWEEN 1 AND 200),
    question text NOT NULL CHECK (length(question) BETWEEN 1 AND 10000),
    options text[] NOT NULL DEFAULT '{}' CHECK (cardinality(options) <= 10 AND array_ndims(options) IS DISTINCT FROM 2
        AND array_position(options, NULL) IS NULL AND length(array_to_string(options, '')) <= 400),
    action_label text NOT NULL CHECK (length(action_label) BETWEEN 1 AND 40),
    allow_text boolean NOT NULL DEFAULT false,
    urgency text NOT NULL CHECK (urgency IN ('low', 'normal', 'high')),
    -- What it is about, as its butler says: repo, branch, agent and task, each if it is given.
    about jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(about) = 'object' AND octet_length(about::text) <= 8192),
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Nothing that makes a sound shows it before.
    show_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    remind_at timestamptz,
    -- Until when its caller said to wait, if it did; an answer after that is late.
    until timestamptz,
    expires_at timestamptz NOT NULL CHECK (expires_at < asked_at + interval '3661 days'),
    status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'accepted', 'dismissed', 'withdrawn', 'expired')),
    choice text CHECK (length(choice) <= 10000),
    option_index integer CHECK (option_index BETWEEN 0 AND 9),
    -- Whether the choice was written by the owner, and not one of those offered.
    typed boolean NOT NULL DEFAULT false,
    surface text CHECK (surface IN ('telegram', 'console', 'cli', 'desk')),
    answered_by uuid,
    closed_at timestamptz,
    -- A call that waits says so again and again; what is answered while nobody waits becomes a notice.
    heard_until timestamptz,
    told boolean NOT NULL DEFAULT false,
    CHECK ((status = 'open') = (closed_at IS NULL)),
    CHECK ((status IN ('accepted', 'dismissed')) = (surface IS NOT NULL)),
    CHECK ((surface IS NULL) = (answered_by IS NULL)),
    CHECK (surface IS NOT NULL OR (choice IS NULL AND option_index IS NULL AND NOT typed)),
    CHECK (status <> 'accepted' OR choice IS NOT NULL),
    CHECK (NOT typed OR (choice IS NOT NULL AND option_index IS NULL AND allow_text))
);
CREATE INDEX questions_open ON shared.questions (asked_at) WHERE status = 'open';
CREATE INDEX questions_closed ON shared.questions (closed_at) WHERE status <> 'open';
CREATE INDEX questions_untold ON shared.questions (closed_at) WHERE surface IS NOT NULL AND NOT told;
CREATE INDEX questions_of_a_butler ON shared.questions (origin_butler, asked_at);
-- Of a card: what it is about, which is a delivery or a question, as its kind says.
ALTER TABLE messenger.deliveries DROP CONSTRAINT deliveries_about_fkey;
"""

# INVARIANT: a butler writes no answer: what says that one was given is not its to write.
GRANTS = """
GRANT SELECT, INSERT (id, origin_butler, title, question, options, action_label, allow_text, urgency, about, show_at,
    remind_at, until, expires_at, heard_until), UPDATE (status, closed_at, heard_until, told)
    ON shared.questions TO butlers_group_butler;
GRANT SELECT, UPDATE (status, choice, option_index, typed, surface, answered_by, closed_at)
    ON shared.questions TO butlers_group_messenger, butlers_group_console, butlers_group_owner;
GRANT UPDATE (told), DELETE ON shared.questions TO butlers_group_messenger;
"""

POLICIES = """
ALTER TABLE shared.questions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.questions FOR SELECT TO butlers_group_butler USING (origin_butler = shared.me());
CREATE POLICY own_rows_asked ON shared.questions FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me() AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = origin_butler));
CREATE POLICY own_rows_heard ON shared.questions FOR UPDATE TO butlers_group_butler
    USING (origin_butler = shared.me()) WITH CHECK (origin_butler = shared.me());
CREATE POLICY readers ON shared.questions FOR SELECT
    TO butlers_group_messenger, butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY answered ON shared.questions FOR UPDATE
    TO butlers_group_messenger, butlers_group_console, butlers_group_owner USING (true) WITH CHECK (true);
CREATE POLICY what_is_over ON shared.questions FOR DELETE TO butlers_group_messenger
    USING (status <> 'open' AND closed_at < statement_timestamp() - interval '30 days');
"""


def upgrade() -> None:
    """Create `shared.questions`."""
    execute(TABLE)
    execute(GRANTS)
    execute(POLICIES)
