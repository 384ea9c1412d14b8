"""Whether a message is past its marker, for everyone who tells how it stands."""

from migrations.raw import execute

revision = "0021"
down_revision = "0020"

STATUS = """
CREATE OR REPLACE VIEW shared.notification_status WITH (security_barrier) AS
    SELECT id AS notification_id, origin_butler, status, answer, updated_at, key, lineage, request_sha, content_sha,
        whom, envelope #>> '{delivery,emoji}' AS emoji, created_at, realm,
        (SELECT a.expires_at FROM shared.pending_actions a
            WHERE a.notification_id = n.id AND a.status = 'pending') AS asked_until,
        EXISTS (SELECT FROM messenger.deliveries d
            WHERE d.notification_id = n.id AND d.status = 'sending') AS being_sent
    FROM shared.notifications n
    WHERE origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER');
"""


def upgrade() -> None:
    """Put one column at the end of `shared.notification_status`."""
    execute(STATUS)
