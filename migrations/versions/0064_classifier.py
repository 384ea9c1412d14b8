"""The classifier: whose runtime is asked which butler takes a message, and the session in which that is asked."""

from migrations.raw import execute

revision = "0064"
down_revision = "0063"

CLASSIFIER = """
-- At most one, with what each butler is for, by its name.
CREATE TABLE switchboard.classifier (
    butler text PRIMARY KEY CHECK (length(butler) <= 31),
    descriptions jsonb NOT NULL CHECK (jsonb_typeof(descriptions) = 'object')
);
GRANT SELECT ON switchboard.classifier TO butlers_group_switchboard, butlers_group_owner;
-- The session that is asked who takes this message. It is asked once.
ALTER TABLE switchboard.inbox ADD COLUMN asked_in uuid;
GRANT UPDATE (asked_in) ON switchboard.inbox TO butlers_group_switchboard;
"""

# Of sessions that classify the Switchboard begins, reads and stops each; what they are asked is its own question.
SESSIONS = """
GRANT UPDATE (stop_asked_at) ON shared.sessions TO butlers_group_switchboard;
CREATE POLICY what_is_asked_of_the_classifier ON shared.sessions FOR INSERT TO butlers_group_switchboard
    WITH CHECK (status = 'waiting' AND cause = 'classify');
CREATE POLICY what_the_classifier_says ON shared.sessions FOR SELECT TO butlers_group_switchboard
    USING (cause = 'classify');
CREATE POLICY what_comes_too_late ON shared.sessions FOR UPDATE TO butlers_group_switchboard
    USING (cause = 'classify') WITH CHECK (cause = 'classify');
"""


def upgrade() -> None:
    """Create `switchboard.classifier`, and let the Switchboard ask it."""
    execute(CLASSIFIER)
    execute(SESSIONS)
