"""What somebody reacted to is no message of theirs: it proves no thread, and no butler may point at it for that."""

from migrations.raw import execute

revision = "0075"
down_revision = "0074"

THREADS = """
CREATE OR REPLACE VIEW shared.threads WITH (security_barrier) AS
    SELECT i.routed_to AS butler, i.channel, i.thread, lower(i.sender COLLATE "C") AS sender,
        i.endpoint_identity AS endpoint
    FROM switchboard.inbox i JOIN shared.channels c ON c.channel = i.channel AND c.endpoint = i.endpoint_identity
    WHERE i.kind <> 'reaction' AND i.routed_to IS NOT NULL AND (i.routed_to = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
"""
OWN_CHAT = """
CREATE OR REPLACE FUNCTION shared.may_point_at(chat text, message text, butler text) RETURNS boolean LANGUAGE sql STABLE
    PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN EXISTS (SELECT FROM switchboard.inbox i JOIN shared.channels c ON c.channel = i.channel
            WHERE i.channel = 'telegram' AND i.thread = chat || ':' || message AND i.kind <> 'reaction'
                AND i.endpoint_identity = CASE c.realm WHEN 'sandbox' THEN '1' ELSE c.realm END
                AND (i.routed_to IS NULL OR i.routed_to = butler))
        OR EXISTS (SELECT FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
                JOIN shared.channels c ON c.channel = d.channel AND c.realm = d.realm
                JOIN shared.notifications n ON n.id = d.notification_id
            WHERE p.provider_id = message AND d.channel = 'telegram' AND d.address = chat
                AND n.origin_butler = butler);
"""


def upgrade() -> None:
    """Leave reactions out of `shared.threads` and of `shared.may_point_at`."""
    execute(THREADS)
    execute(OWN_CHAT)
