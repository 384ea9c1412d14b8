"""What a butler may point at in the owner's own chat: what the owner wrote there, and what it said itself."""

from migrations.raw import execute

revision = "0028"
down_revision = "0027"

OWN_CHAT = """
-- Whether that message of a chat is one the house received for nobody else, or one this butler sent: no card, nothing
-- of another butler's. Numbers of another bot, and of the sandbox's, name other messages.
CREATE FUNCTION shared.may_point_at(chat text, message text, butler text) RETURNS boolean LANGUAGE sql STABLE
    PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN EXISTS (SELECT FROM switchboard.inbox i JOIN shared.channels c ON c.channel = i.channel
            WHERE i.channel = 'telegram' AND i.thread = chat || ':' || message
                AND i.endpoint_identity = CASE c.realm WHEN 'sandbox' THEN '1' ELSE c.realm END
                AND (i.routed_to IS NULL OR i.routed_to = butler))
        OR EXISTS (SELECT FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
                JOIN shared.channels c ON c.channel = d.channel AND c.realm = d.realm
                JOIN shared.notifications n ON n.id = d.notification_id
            WHERE p.provider_id = message AND d.channel = 'telegram' AND d.address = chat
                AND n.origin_butler = butler);
REVOKE EXECUTE ON FUNCTION shared.may_point_at(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shared.may_point_at(text, text, text) TO butlers_group_butler, butlers_group_switchboard,
    butlers_group_messenger, butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `shared.may_point_at`."""
    execute(OWN_CHAT)
