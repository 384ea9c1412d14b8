"""The owner pulls and lifts the brake in Telegram too."""

from migrations.raw import execute

revision = "0038"
down_revision = "0037"

GRANTS = """
GRANT INSERT (butler, contact_id, channel, owner_too, until), UPDATE (lifted_at) ON shared.brakes
    TO butlers_group_messenger;
"""


def upgrade() -> None:
    """Let the Messenger write what the owner says in the private chat."""
    execute(GRANTS)
