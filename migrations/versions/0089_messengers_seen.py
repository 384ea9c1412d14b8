"""Whether a Messenger runs is what a Messenger says: the Switchboard may be away, or say anything."""

from migrations.raw import execute

revision = "0089"
down_revision = "0088"


def upgrade() -> None:
    """Let a Messenger note when it was seen, beside where its channels go."""
    execute("ALTER TABLE shared.channels ADD COLUMN seen_at timestamptz")
