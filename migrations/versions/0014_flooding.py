"""Against a flood of questions: digests, where the owner is asked, and what the owner decided lately."""

from migrations.raw import execute

revision = "0014"
down_revision = "0013"

OWNER_AT = """
-- Where the owner is asked on each channel: a private chat, or an address.
CREATE VIEW messenger.owner_at WITH (security_invoker) AS
    SELECT DISTINCT ON (c.channel) c.channel, i.value AS address, c.realm, o.preferred_channel
    FROM shared.contacts o
        JOIN shared.contact_info i ON i.contact_id = o.id
        JOIN shared.channels c ON c.channel = i.type
    WHERE 'owner' = ANY (o.roles) AND (i.type <> 'telegram' OR i.lookup ~ '^[1-9][0-9]*$')
    ORDER BY c.channel, i.is_primary DESC, i.created_at;
GRANT SELECT ON messenger.owner_at TO butlers_group_messenger;
"""

DIGESTS = """
CREATE TABLE messenger.digests (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    origin_butler text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What its message lists: each question as id:revision, and last how many there are in all.
    shown text[] NOT NULL DEFAULT '{}',
    shown_at timestamptz
);
CREATE INDEX digests_by_butler ON messenger.digests (origin_butler, opened_at);
-- A question stands in one digest, whatever becomes of it.
CREATE TABLE messenger.digest_items (
    action_id uuid PRIMARY KEY REFERENCES shared.pending_actions,
    digest_id uuid NOT NULL REFERENCES messenger.digests
);
CREATE INDEX items_of_digests ON messenger.digest_items (digest_id);
-- Of a card: the digest it is. Its `revision` is always 1.
ALTER TABLE messenger.deliveries ADD COLUMN digest_id uuid REFERENCES messenger.digests;
-- Of a card: it was the butler's doing, and is one of those it may cause in ten minutes.
ALTER TABLE messenger.deliveries ADD COLUMN counted boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX one_card_per_digest ON messenger.deliveries (digest_id, channel) WHERE digest_id IS NOT NULL;
CREATE INDEX cards_counted ON messenger.deliveries (created_at) WHERE counted;
CREATE INDEX events_of_the_owner ON shared.approval_events (action_id) WHERE actor = 'owner';
GRANT SELECT, INSERT, UPDATE ON messenger.digests, messenger.digest_items TO butlers_group_messenger;
GRANT SELECT ON messenger.digests, messenger.digest_items TO butlers_group_console, butlers_group_owner;
"""

DECIDED = """
-- What the owner said to whose question about whom, without a word of it. A butler sees what was said to itself.
CREATE VIEW shared.decided WITH (security_barrier) AS
    SELECT a.origin_butler, n.contact_id, lower(coalesce(i.lookup, CASE
            WHEN n.whom LIKE 'recipient:%' THEN substr(n.whom, 11)
            WHEN n.whom LIKE 'thread:%@%' THEN substr(n.whom, 8)
            WHEN n.whom LIKE 'thread:%' THEN split_part(substr(n.whom, 8), ':', 1) END) COLLATE "C") AS address,
        a.status = 'denied' AS denied, a.decided_at AS at
    FROM shared.pending_actions a
        JOIN shared.notifications n ON n.id = a.notification_id
        LEFT JOIN shared.contact_info i ON i.id = n.contact_info_id
    WHERE a.decided_by IS NOT NULL AND (a.origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
GRANT SELECT ON shared.decided TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
CREATE INDEX actions_decided ON shared.pending_actions (origin_butler, decided_at) WHERE decided_by IS NOT NULL;
-- The same request that waits already.
CREATE INDEX notifications_asked ON shared.notifications (origin_butler, request_sha)
    WHERE status IN ('pending_approval', 'pending_missing_identifier');
"""


def upgrade() -> None:
    """Create digests and their items, the views `messenger.owner_at` and `shared.decided`, and what finds them fast."""
    execute(OWNER_AT)
    execute(DIGESTS)
    execute(DECIDED)
