"""What makes a call a repetition is what the daemon that takes it admitted itself; and what a card shows is kept."""

from migrations.raw import execute

revision = "0031"
down_revision = "0030"

FENCES = """
-- Whoever admits in the name of a butler takes none of its keys, stated or not.
ALTER TABLE shared.notifications DROP CONSTRAINT notifications_origin_butler_key_key,
    ADD UNIQUE (origin_butler, key, admitted_by);
DROP INDEX shared.one_request_per_stated_key, shared.one_content_per_lineage;
CREATE UNIQUE INDEX one_request_per_stated_key ON shared.notifications (origin_butler, lineage, admitted_by)
    WHERE lineage LIKE 'key:%';
CREATE UNIQUE INDEX one_content_per_lineage ON shared.notifications (origin_butler, lineage, content_sha, admitted_by)
    WHERE third_party AND content_sha IS NOT NULL;
"""

NOTED = """
-- Every login is a member of butlers_group_butler, whose policy lets it at the rows under its own name.
DROP POLICY for_others ON shared.recent;
CREATE POLICY for_others ON shared.recent TO butlers_group_messenger USING (true) WITH CHECK (true);
DROP POLICY for_others ON shared.collapsed;
DROP POLICY for_others_read ON shared.collapsed;
CREATE POLICY for_others_read ON shared.collapsed FOR SELECT TO butlers_group_messenger USING (true);
"""

STATUS = """
-- With who admitted it.
CREATE OR REPLACE VIEW shared.notification_status WITH (security_barrier) AS
    SELECT id AS notification_id, origin_butler, status, answer, updated_at, key, lineage, request_sha, content_sha,
        whom, envelope #>> '{delivery,emoji}' AS emoji, created_at, realm,
        (SELECT a.expires_at FROM shared.pending_actions a
            WHERE a.notification_id = n.id AND a.status = 'pending') AS asked_until,
        EXISTS (SELECT FROM messenger.deliveries d
            WHERE d.notification_id = n.id AND d.status = 'sending') AS being_sent,
        admitted_by
    FROM shared.notifications n
    WHERE origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER');
"""


SHOWN = """
-- The text and entities of the part of a card that bears its buttons, so that an edit leaves them as they are.
ALTER TABLE messenger.parts ADD COLUMN shown jsonb;
"""


def upgrade() -> None:
    """Keep one admitter's fences apart from another's, show by whom a notification was admitted, and keep cards."""
    execute(FENCES)
    execute(NOTED)
    execute(STATUS)
    execute(SHOWN)
