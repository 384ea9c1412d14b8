"""What a session says that answers for the owner waits for the owner's yes: the Messenger reads which sessions do."""

from migrations.raw import execute

revision = "0083"
down_revision = "0082"

ANSWERS = """
CREATE POLICY what_answers_for_the_owner ON shared.sessions FOR SELECT TO butlers_group_messenger
    USING (owners_words = 'reply');
"""


def upgrade() -> None:
    """Let the Messenger see the sessions that answer for the owner."""
    execute(ANSWERS)
