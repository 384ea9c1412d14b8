"""No time of a schedule is taken before it is due, so that what an honest process does later finds it free."""

from migrations.raw import execute

revision = "0103"
down_revision = "0102"

# Rows of days to come would have each of these passed over without a word, and be purged by nobody. When a time was
# taken is said by the database's clock alone; whoever took it looked at that a moment before.
TAKEN = """
DELETE FROM shared.occurrences WHERE due_at > least(claimed_at, clock_timestamp()) + interval '1 minute';
ALTER TABLE shared.occurrences ADD CONSTRAINT no_time_is_taken_ahead
    CHECK (due_at <= claimed_at + interval '1 minute');
REVOKE INSERT ON shared.occurrences FROM butlers_group_butler;
GRANT INSERT (schedule_id, butler, due_at, status, claimed_by, leased_until, ended_at, outcome)
    ON shared.occurrences TO butlers_group_butler;
"""


def upgrade() -> None:
    """Bound when a time is taken, and leave that to the database to say."""
    execute(TAKEN)
