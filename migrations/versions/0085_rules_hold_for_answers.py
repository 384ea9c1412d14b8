"""A rule holds for what a session says that answers for the owner too: nobody asks which sessions do."""

from migrations.raw import execute

revision = "0085"
down_revision = "0084"


def upgrade() -> None:
    """Let the Messenger see no more sessions than those that are over."""
    execute("DROP POLICY what_answers_for_the_owner ON shared.sessions")
