"""What tells rows that were put back: a beat that a file outside follows, and a brake that stands for it."""

from migrations.raw import execute

revision = "0026"
down_revision = "0025"

WITNESS = """
-- It moves before the first marker to a third party of each second, and each Messenger keeps its number in a file: rows
-- that are behind the file were put back.
CREATE TABLE messenger.witness (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    beat bigint NOT NULL DEFAULT 0 CHECK (beat >= 0)
);
INSERT INTO messenger.witness DEFAULT VALUES;
GRANT SELECT, UPDATE ON messenger.witness TO butlers_group_messenger;

-- The one brake that the house puts on by itself: until a Messenger has carried out what it means, lifting it counts
-- for nothing.
ALTER TABLE shared.brakes ADD COLUMN reason text CHECK (reason = 'restored');
ALTER TABLE shared.brakes ADD COLUMN handled_at timestamptz;
CREATE INDEX brakes_restored ON shared.brakes (made_at) WHERE reason = 'restored';
GRANT INSERT (reason, made_by), UPDATE (handled_at) ON shared.brakes TO butlers_group_messenger;
ALTER TABLE messenger.deliveries DROP CONSTRAINT deliveries_notice_check,
    ADD CONSTRAINT deliveries_notice_check CHECK (notice IN ('strangers', 'restored'));
"""


def upgrade() -> None:
    """Create `messenger.witness`, and let a brake say that the house was restored."""
    execute(WITNESS)
