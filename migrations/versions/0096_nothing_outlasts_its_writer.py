"""No time that a process under somebody's control has written stops, or hides, what an honest one does later."""

from migrations.raw import execute

revision = "0096"
down_revision = "0095"

# A row of a day to come would stand behind every message of its chat, for good, and be purged by nobody: when something
# came in is said by the database's clock alone.
CAME_IN = """
UPDATE switchboard.inbox SET received_at = clock_timestamp() WHERE received_at > clock_timestamp();
REVOKE INSERT ON switchboard.inbox FROM butlers_group_switchboard;
GRANT INSERT (channel, endpoint_identity, external_event_id, thread, sender, contact_id, text, request_context, kind,
    reply_to, display_name, attachments, conversation, quoted, verified, in_doubt, route_until)
    ON switchboard.inbox TO butlers_group_switchboard;
"""
# What is there and cannot be read was set by no clock: the schedules of a butler's file are written again at its start.
MEND = """
DELETE FROM shared.schedules WHERE NOT created_at BETWEEN '1999-01-01Z' AND '2201-01-01Z'
    OR NOT once_at BETWEEN '1999-01-01Z' AND '2201-01-01Z' OR NOT next_due_at BETWEEN '1999-01-01Z' AND '2201-01-01Z';
DELETE FROM shared.occurrences WHERE NOT due_at BETWEEN '1999-01-01Z' AND '2201-01-01Z'
    OR NOT leased_until BETWEEN '1999-01-01Z' AND '2201-01-01Z'
    OR NOT claimed_at BETWEEN '1999-01-01Z' AND '2201-01-01Z' OR NOT ended_at BETWEEN '1999-01-01Z' AND '2201-01-01Z';
UPDATE shared.state SET changed_at = clock_timestamp() WHERE NOT changed_at BETWEEN '1999-01-01Z' AND '2201-01-01Z';
"""
# One row that cannot be read would keep all that its butler has set itself from being done. A schedule may name a day
# from 2000 to 2200, in any zone.
BOUNDS = """
ALTER TABLE shared.schedules ADD CONSTRAINT times_that_can_be_read CHECK (
    created_at BETWEEN '1999-01-01Z' AND '2201-01-01Z' AND once_at BETWEEN '1999-01-01Z' AND '2201-01-01Z'
    AND next_due_at BETWEEN '1999-01-01Z' AND '2201-01-01Z');
ALTER TABLE shared.occurrences ADD CONSTRAINT times_that_can_be_read CHECK (
    due_at BETWEEN '1999-01-01Z' AND '2201-01-01Z' AND leased_until BETWEEN '1999-01-01Z' AND '2201-01-01Z'
    AND claimed_at BETWEEN '1999-01-01Z' AND '2201-01-01Z' AND ended_at BETWEEN '1999-01-01Z' AND '2201-01-01Z');
ALTER TABLE shared.state ADD CONSTRAINT times_that_can_be_read CHECK (
    changed_at BETWEEN '1999-01-01Z' AND '2201-01-01Z');
"""


def upgrade() -> None:
    """Leave the time of what came in to the database, and bound the times of what a butler set itself."""
    execute(CAME_IN)
    execute(MEND)
    execute(BOUNDS)
