"""What strangers write has an end; and a butler sees the uses of no rule but those that concern it."""

from migrations.raw import execute

revision = "0025"
down_revision = "0024"

STRANGERS = """
-- What each unknown sender wrote to the bot since the first of it, for a day; the row '' counts what was not kept.
CREATE TABLE messenger.strangers (
    sender text PRIMARY KEY,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    messages bigint NOT NULL,
    bytes bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON messenger.strangers TO butlers_group_messenger;
GRANT SELECT ON messenger.strangers TO butlers_group_console, butlers_group_owner;
-- Of a card that is about no message and no channel: what the house has to say.
ALTER TABLE messenger.deliveries ADD COLUMN notice text CHECK (notice IN ('strangers'));
-- Updates that were counted and not kept: the newest alone stays, for its number.
CREATE INDEX updates_counted ON messenger.updates (bot, update_id) WHERE outcome = 'counted';
"""

RULE_USES = """
-- As shared.approval_rules, which this looks into by the reader's own rights.
ALTER TABLE shared.rule_uses ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_rules_concerning_me ON shared.rule_uses FOR SELECT TO butlers_group_butler
    USING (EXISTS (SELECT FROM shared.approval_rules r WHERE r.id = rule_uses.rule_id));
CREATE POLICY all_of_them ON shared.rule_uses TO butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner USING (true) WITH CHECK (true);
"""


def upgrade() -> None:
    """Create `messenger.strangers`, the cards about it, and the policies of `shared.rule_uses`."""
    execute(STRANGERS)
    execute(RULE_USES)
