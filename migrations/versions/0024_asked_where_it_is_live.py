"""What the sandbox says counts there alone; on a live channel nobody is asked at an address invented for it."""

from migrations.raw import execute

revision = "0024"
down_revision = "0023"

OWNER_AT = """
-- Where the owner is asked on each channel: a private chat, or an address.
CREATE OR REPLACE VIEW messenger.owner_at WITH (security_invoker) AS
    SELECT DISTINCT ON (c.channel) c.channel, i.value AS address, c.realm, o.preferred_channel
    FROM shared.contacts o
        JOIN shared.contact_info i ON i.contact_id = o.id
        JOIN shared.channels c ON c.channel = i.type
    WHERE 'owner' = ANY (o.roles) AND (i.type <> 'telegram' OR i.lookup ~ '^[1-9][0-9]*$')
        AND (c.realm = 'sandbox' OR (i.lookup <> '5000000000000001' AND i.lookup NOT LIKE '%@sandbox.test'))
    ORDER BY c.channel, i.is_primary DESC, i.created_at;
-- `butlers up` and `butlers doctor` say where nobody can be asked about what is live.
GRANT SELECT ON messenger.owner_at TO butlers_group_console, butlers_group_owner;
"""

DECIDED = """
-- What the owner said to whose question about whom, without a word of it. A butler sees what was said to itself.
CREATE OR REPLACE VIEW shared.decided WITH (security_barrier) AS
    SELECT a.origin_butler, n.contact_id, lower(coalesce(i.lookup, CASE
            WHEN n.whom LIKE 'recipient:%' THEN substr(n.whom, 11)
            WHEN n.whom LIKE 'thread:%@%' THEN substr(n.whom, 8)
            WHEN n.whom LIKE 'thread:%' THEN split_part(substr(n.whom, 8), ':', 1) END) COLLATE "C") AS address,
        a.status = 'denied' AS denied, a.decided_at AS at, n.realm
    FROM shared.pending_actions a
        JOIN shared.notifications n ON n.id = a.notification_id
        LEFT JOIN shared.contact_info i ON i.id = n.contact_info_id
    WHERE a.decided_by IS NOT NULL AND (a.origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
"""

THREADS = """
-- Of Telegram only what this bot received: another's numbers, and the sandbox's, name other messages. `1` is the
-- sandbox's bot.
CREATE OR REPLACE VIEW shared.threads WITH (security_barrier) AS
    SELECT routed_to AS butler, channel, thread, lower(sender COLLATE "C") AS sender
    FROM switchboard.inbox
    WHERE routed_to IS NOT NULL AND (channel <> 'telegram' OR endpoint_identity = (
            SELECT CASE c.realm WHEN 'sandbox' THEN '1' ELSE c.realm END FROM shared.channels c
            WHERE c.channel = 'telegram'))
        AND (routed_to = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
"""


def upgrade() -> None:
    """Replace the views `messenger.owner_at`, `shared.decided` and `shared.threads`."""
    execute(OWNER_AT)
    execute(DECIDED)
    execute(THREADS)
