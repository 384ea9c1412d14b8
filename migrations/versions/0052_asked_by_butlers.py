"""Sessions that one butler asks of another: who asked, in which chain of such sessions, and how deep in it."""

from migrations.raw import execute

revision = "0052"
down_revision = "0051"

ASKED = """
ALTER TABLE shared.sessions
    ADD COLUMN asked_by text CHECK (length(asked_by) <= 31),
    -- The session that the first of the chain was asked in.
    ADD COLUMN chain uuid,
    ADD COLUMN depth smallint NOT NULL DEFAULT 0 CHECK (depth BETWEEN 0 AND 3),
    ADD CONSTRAINT what_a_butler_asked_has_a_chain
        CHECK ((asked_by IS NULL) = (chain IS NULL) AND (asked_by IS NULL) = (depth = 0));
CREATE INDEX sessions_of_a_chain ON shared.sessions (butler, chain) WHERE chain IS NOT NULL;
GRANT INSERT (asked_by, chain, depth) ON shared.sessions TO butlers_group_butler;
"""

# A butler sees how another answered it, and of that session nothing else.
ANSWERS = """
CREATE VIEW shared.asked_sessions WITH (security_barrier) AS
    SELECT id, asked_by, butler, status, outcome, created_at, ended_at FROM shared.sessions
    WHERE asked_by = shared.me();
GRANT SELECT ON shared.asked_sessions TO butlers_group_butler;
"""


def upgrade() -> None:
    """Let a butler ask another, and read the answer."""
    execute(ASKED)
    execute(ANSWERS)
