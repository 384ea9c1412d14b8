"""What a stranger has changed is over: the owner answers the words that stand there now."""

from migrations.raw import execute

revision = "0078"
down_revision = "0077"

CHANGED = """
ALTER TABLE switchboard.inbox DROP CONSTRAINT inbox_stranger_check, ADD CONSTRAINT inbox_stranger_check
    CHECK (stranger IN ('waits', 'answered', 'added', 'ignored', 'blocked', 'changed'));
"""


def upgrade() -> None:
    """Let words be over because they were changed."""
    execute(CHANGED)
