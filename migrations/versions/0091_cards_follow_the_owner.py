"""What waits for the owner has a card in each chat that is, or was, the owner's; the old one decides nothing."""

from migrations.raw import execute

revision = "0091"
down_revision = "0090"

CARDS = """
DROP INDEX messenger.one_card, messenger.one_card_about, messenger.one_card_per_digest;
CREATE UNIQUE INDEX one_card ON messenger.deliveries (action_id, revision, channel, card_kind, address, realm)
    WHERE action_id IS NOT NULL;
CREATE UNIQUE INDEX one_card_about ON messenger.deliveries (about, revision, channel, card_kind, address, realm)
    WHERE about IS NOT NULL;
CREATE UNIQUE INDEX one_card_per_digest ON messenger.deliveries (digest_id, channel, address, realm)
    WHERE digest_id IS NOT NULL;
"""


def upgrade() -> None:
    """Count the cards of each address by themselves."""
    execute(CARDS)
