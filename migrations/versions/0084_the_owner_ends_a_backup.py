"""The owner says that a backup was put back, and ends what was open in it."""

from migrations.raw import execute

revision = "0084"
down_revision = "0083"

GRANTS = """
GRANT UPDATE (status, outcome, ended_at, holder, lease_until, untold) ON shared.sessions TO butlers_group_owner;
GRANT DELETE ON messenger.mailboxes TO butlers_group_owner;
"""


def upgrade() -> None:
    """Let the owner's login end sessions, and forget how far the mailboxes were read."""
    execute(GRANTS)
