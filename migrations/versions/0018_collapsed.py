"""Which requests were answered with another that waited, and what a butler sees of its own waiting questions."""

from migrations.raw import execute

revision = "0018"
down_revision = "0017"

COLLAPSED = """
-- The key of a request that became part of one that waited. It stays as long as that one, and goes with it.
CREATE TABLE shared.collapsed (
    origin_butler text NOT NULL,
    key text NOT NULL,
    notification_id uuid NOT NULL REFERENCES shared.notifications ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (origin_butler, key)
);
CREATE INDEX collapsed_into ON shared.collapsed (notification_id);
GRANT SELECT, INSERT (origin_butler, key, notification_id) ON shared.collapsed TO butlers_group_butler,
    butlers_group_switchboard, butlers_group_messenger;
ALTER TABLE shared.collapsed ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.collapsed FOR INSERT TO butlers_group_butler WITH CHECK (origin_butler = shared.me());
CREATE POLICY own_rows_read ON shared.collapsed FOR SELECT TO butlers_group_butler
    USING (origin_butler = shared.me());
CREATE POLICY for_others ON shared.collapsed FOR INSERT TO butlers_group_switchboard, butlers_group_messenger
    WITH CHECK (true);
CREATE POLICY for_others_read ON shared.collapsed FOR SELECT TO butlers_group_switchboard, butlers_group_messenger
    USING (true);
"""

STATUS = """
-- With the realm it was asked for, and until when the owner is asked: empty where no question is open.
CREATE OR REPLACE VIEW shared.notification_status WITH (security_barrier) AS
    SELECT id AS notification_id, origin_butler, status, answer, updated_at, key, lineage, request_sha, content_sha,
        whom, envelope #>> '{delivery,emoji}' AS emoji, created_at, realm,
        (SELECT a.expires_at FROM shared.pending_actions a
            WHERE a.notification_id = n.id AND a.status = 'pending') AS asked_until
    FROM shared.notifications n
    WHERE origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER');
"""


def upgrade() -> None:
    """Create `shared.collapsed`, and put two columns at the end of `shared.notification_status`."""
    execute(COLLAPSED)
    execute(STATUS)
