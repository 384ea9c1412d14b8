"""What may have arrived: the owner's answers, the cards that ask for them, and what was sent again after it."""

from migrations.raw import execute

revision = "0011"
down_revision = "0010"

DELIVERIES = """
-- How often it was put in the queue again after an attempt of unknown outcome: it may have come more than once.
ALTER TABLE messenger.deliveries ADD COLUMN repeated integer NOT NULL DEFAULT 0;
-- Of a card: the uncertain delivery it asks about. Its `revision` is the attempt of which nobody knows.
ALTER TABLE messenger.deliveries ADD COLUMN about uuid REFERENCES messenger.deliveries;
CREATE UNIQUE INDEX one_card_about ON messenger.deliveries (about, revision, channel) WHERE about IS NOT NULL;
CREATE INDEX deliveries_uncertain ON messenger.deliveries (settled_at) WHERE status = 'uncertain';
"""

RESOLUTIONS = """
CREATE TABLE shared.resolutions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    delivery_id uuid NOT NULL REFERENCES messenger.deliveries,
    -- The attempt whose ending the owner was shown; said of an earlier one, it changes nothing.
    attempt integer NOT NULL,
    word text NOT NULL CHECK (word IN ('arrived', 'again', 'leave', 'retry')),
    by uuid NOT NULL,
    surface text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    handled_at timestamptz,
    -- What the Messenger made of it: `done`, or `late` where it changed nothing any more.
    outcome text CHECK (outcome IN ('done', 'late'))
);
CREATE INDEX resolutions_open ON shared.resolutions (at) WHERE handled_at IS NULL;
GRANT SELECT ON shared.resolutions TO butlers_group_messenger, butlers_group_console, butlers_group_owner;
-- The owner speaks by three surfaces; the Messenger carries it out. Butlers and the Switchboard have no part in it.
GRANT INSERT (delivery_id, attempt, word, by, surface) ON shared.resolutions TO butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
GRANT UPDATE (handled_at, outcome) ON shared.resolutions TO butlers_group_messenger;
"""


def upgrade() -> None:
    """Create `shared.resolutions`, and the columns that tell a repeat and what a card is about."""
    execute(DELIVERIES)
    execute(RESOLUTIONS)
