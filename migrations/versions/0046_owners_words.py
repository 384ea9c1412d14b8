"""What the owner writes begins a session: the registry knows whose runtime there is, and the Switchboard may ask it."""

from migrations.raw import execute

revision = "0046"
down_revision = "0045"

WORDS = """
ALTER TABLE switchboard.butlers ADD COLUMN has_runtime boolean NOT NULL DEFAULT false;
CREATE POLICY what_the_owner_wrote ON shared.sessions FOR INSERT TO butlers_group_switchboard
    WITH CHECK (status = 'waiting' AND cause = 'message');
"""


def upgrade() -> None:
    """Let the Switchboard put the owner's words into the queue of their butler."""
    execute(WORDS)
