"""The owner's command line may end every session of the console, and see of each only whether it has ended."""

from migrations.raw import execute

revision = "0030"
down_revision = "0029"

ENDS_ALL = """
GRANT SELECT (ended_at, expires_at), UPDATE (ended_at) ON console.sessions TO butlers_group_owner;
GRANT SELECT (used_at, expires_at), UPDATE (used_at) ON console.sign_in_links TO butlers_group_owner;
"""


def upgrade() -> None:
    """Let the owner's login end sessions and sign-in links."""
    execute(ENDS_ALL)
