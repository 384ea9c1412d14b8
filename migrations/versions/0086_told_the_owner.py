"""Who wrote to the owner in a chat just before is found by what was delivered there."""

from migrations.raw import execute

revision = "0086"
down_revision = "0085"


def upgrade() -> None:
    """Index what was delivered to the owner by chat and time."""
    execute("""
        CREATE INDEX deliveries_to_the_owner ON messenger.deliveries (channel, address, settled_at)
        WHERE (class = 'owner' OR card_kind IN ('question', 'approval')) AND status = 'sent'
    """)
