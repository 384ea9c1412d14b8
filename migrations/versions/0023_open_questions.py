"""What a butler or the Switchboard asks about still waits for an answer; and what they insert has an end."""

from migrations.raw import execute

revision = "0023"
down_revision = "0022"

# Restrictive, so that these hold beside whatever lets a row in. The Messenger's login is a member of the butlers'
# group too, and parks what no rule lets out any more before it says so.
POLICIES = """
-- A second question about what is over would take the first one's place: then nothing could carry that one on, and an
-- answer would bring back, or undo, what has arrived. Its time is bounded already, by the longest the settings allow.
CREATE POLICY about_what_waits ON shared.pending_actions AS RESTRICTIVE FOR INSERT
    TO butlers_group_butler, butlers_group_switchboard
    WITH CHECK (notification_id IS NULL OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR EXISTS (SELECT FROM shared.notification_status s WHERE s.notification_id = pending_actions.notification_id
            AND s.status IN ('pending_approval', 'pending_missing_identifier')));

-- What is allowed at once is allowed for a day at most, and never without an end; a minute is for the statement itself.
CREATE POLICY for_a_day ON shared.notifications AS RESTRICTIVE FOR INSERT
    TO butlers_group_butler, butlers_group_switchboard
    WITH CHECK (pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR (not_after IS NULL AND status <> 'queued')
        OR not_after <= clock_timestamp() + interval '24 hours 1 minute');
"""


def upgrade() -> None:
    """Make both policies."""
    execute(POLICIES)
