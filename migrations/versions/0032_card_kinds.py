"""Which kind of card a delivery is, said by its row."""

from migrations.raw import execute

revision = "0032"
down_revision = "0031"

KINDS = """
-- Of a card: its kind, which nothing else in the row tells. The names are the Messenger's own (`messenger/cards`).
ALTER TABLE messenger.deliveries DROP CONSTRAINT deliveries_notice_check;
ALTER TABLE messenger.deliveries RENAME COLUMN notice TO card_kind;
DROP INDEX messenger.one_card, messenger.one_card_about;
-- What came back was told of by the attempt after the last one.
UPDATE messenger.deliveries c SET card_kind = 'bounced', revision = c.revision - 1
FROM messenger.deliveries d WHERE d.id = c.about AND c.revision > d.attempt;
UPDATE messenger.deliveries SET card_kind = CASE WHEN action_id IS NOT NULL THEN 'approval'
    WHEN digest_id IS NOT NULL THEN 'digest' WHEN about IS NOT NULL THEN 'uncertain' ELSE 'channel_paused' END
WHERE class = 'card' AND card_kind IS NULL;
ALTER TABLE messenger.deliveries ADD CHECK ((class = 'card') = (card_kind IS NOT NULL));
CREATE UNIQUE INDEX one_card ON messenger.deliveries (action_id, revision, channel, card_kind)
    WHERE action_id IS NOT NULL;
CREATE UNIQUE INDEX one_card_about ON messenger.deliveries (about, revision, channel, card_kind)
    WHERE about IS NOT NULL;
"""


def upgrade() -> None:
    """Name the kind of each card."""
    execute(KINDS)
