"""What butlers have withdrawn, and which messages were asked again after nobody had answered."""

from migrations.raw import execute

revision = "0006"
down_revision = "0005"

WITHDRAWALS = """
CREATE TABLE shared.withdrawals (
    notification_id uuid NOT NULL REFERENCES shared.notifications,
    origin_butler text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What the Messenger found: `cancelled`, `being_sent` or `settled`; empty until it has looked.
    outcome text CHECK (outcome IN ('cancelled', 'being_sent', 'settled')),
    PRIMARY KEY (notification_id, origin_butler)
);
CREATE INDEX withdrawals_open ON shared.withdrawals (notification_id) WHERE outcome IS NULL;
-- A butler says that it changed its mind; what that is worth, the Messenger says.
GRANT INSERT (notification_id, origin_butler) ON shared.withdrawals TO butlers_group_butler;
GRANT SELECT ON shared.withdrawals TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
GRANT UPDATE (outcome) ON shared.withdrawals TO butlers_group_messenger;
ALTER TABLE shared.withdrawals ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.withdrawals FOR INSERT TO butlers_group_butler
    WITH CHECK (origin_butler = shared.me());
CREATE POLICY own_rows_read ON shared.withdrawals FOR SELECT TO butlers_group_butler
    USING (origin_butler = shared.me());
CREATE POLICY readers ON shared.withdrawals FOR SELECT TO butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner USING (true);
CREATE POLICY the_messenger ON shared.withdrawals FOR UPDATE TO butlers_group_messenger
    USING (true) WITH CHECK (true);
"""

ASKED_AGAIN = """
-- When a message that had expired was taken up again because its butler asked again.
ALTER TABLE shared.notifications ADD COLUMN reopened_at timestamptz;
CREATE INDEX notifications_short_of_an_identifier ON shared.notifications (contact_id)
    WHERE status = 'pending_missing_identifier';
CREATE INDEX notifications_reopened ON shared.notifications (origin_butler, lineage) WHERE reopened_at IS NOT NULL;
"""


def upgrade() -> None:
    """Create `shared.withdrawals`, and the column that counts how often the expired is asked again."""
    execute(WITHDRAWALS)
    execute(ASKED_AGAIN)
