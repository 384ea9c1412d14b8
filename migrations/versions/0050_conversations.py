"""Conversations: what was said in one, who may begin work by writing, and what the owner says to a stranger's words."""

from migrations.raw import execute

revision = "0050"
down_revision = "0049"

INBOX = """
-- Of what begins no work: whether the owner was shown it, and what the owner said to it.
ALTER TABLE switchboard.inbox ADD COLUMN stranger text
    CHECK (stranger IN ('waits', 'answered', 'added', 'ignored', 'blocked')),
    -- Of the owner's own words: the stranger's message that they answer.
    ADD COLUMN concerns uuid;
CREATE INDEX cards_of_strangers ON messenger.deliveries (created_at) WHERE card_kind = 'stranger';
CREATE INDEX inbox_of_strangers ON switchboard.inbox (received_at) WHERE stranger = 'waits';
GRANT UPDATE (stranger) ON switchboard.inbox TO butlers_group_messenger;
-- A card may be about what lies in the inbox.
ALTER TABLE messenger.deliveries DROP CONSTRAINT IF EXISTS deliveries_about_fkey;
"""

RULES = """
-- A contact whose words begin work of that butler, because the owner said so.
ALTER TABLE switchboard.routing_rules ADD COLUMN contact_id uuid REFERENCES shared.contacts ON DELETE CASCADE,
    ADD COLUMN may_ask boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT routing_rules_check,
    ADD CONSTRAINT routing_rules_check CHECK (num_nonnulls(channel, sender, words, contact_id) > 0),
    ADD CONSTRAINT only_contacts_may_ask CHECK (NOT may_ask OR num_nonnulls(contact_id, butler) = 2);
-- From a card the owner blocks a sender, which is all that the Messenger can make a rule for.
GRANT INSERT (channel, sender) ON switchboard.routing_rules TO butlers_group_messenger;
GRANT SELECT (id) ON switchboard.routing_rules TO butlers_group_messenger;
GRANT INSERT (name, roles) ON shared.contacts TO butlers_group_messenger;
"""

EDITS = """
-- The Switchboard changes what waits and came from a message, and sees nothing else of sessions.
GRANT UPDATE (prompt) ON shared.sessions TO butlers_group_switchboard;
CREATE POLICY what_waits_of_a_message ON shared.sessions FOR SELECT TO butlers_group_switchboard
    USING (status = 'waiting' AND cause = 'message');
CREATE POLICY what_was_edited ON shared.sessions FOR UPDATE TO butlers_group_switchboard
    USING (status = 'waiting' AND cause = 'message') WITH CHECK (status = 'waiting' AND cause = 'message');
"""

# Whoever is blocked now is shown to no butler, whatever was received before. What we said stands beside what came in.
TURNS = """
CREATE VIEW shared.turns WITH (security_barrier) AS
    SELECT i.id, i.routed_to AS butler, i.channel, i.endpoint_identity AS endpoint, i.conversation, i.kind, i.text,
        i.sender, i.display_name, c.id AS contact_id, c.name AS contact,
        coalesce('owner' = ANY (c.roles), false) AS from_owner, i.concerns, i.attachments,
        i.verified AS vouched, i.received_at AS at
    FROM switchboard.inbox i LEFT JOIN shared.contacts c ON c.id = i.contact_id
    WHERE i.routed_to IS NOT NULL AND (i.routed_to = shared.me()
            OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
            OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'))
        AND (coalesce('owner' = ANY (c.roles), false) OR NOT EXISTS (SELECT FROM switchboard.routing_rules r
            WHERE r.butler IS NULL AND (r.channel IS NULL OR r.channel = i.channel)
                AND (r.sender IS NULL OR lower(r.sender COLLATE "C") = lower(i.sender COLLATE "C"))
                AND (r.contact_id IS NULL OR r.contact_id = i.contact_id)
                AND (r.words IS NULL OR position(lower(r.words) IN lower(i.text)) > 0)))
    UNION ALL
    SELECT n.id, n.origin_butler, d.channel, h.endpoint, lower(d.address COLLATE "C"), 'said',
        coalesce(n.owner_text, n.envelope #>> '{delivery,message}', ''), NULL, NULL, NULL, NULL, false, NULL, NULL,
        false,
        d.settled_at
    FROM shared.notifications n JOIN messenger.deliveries d ON d.notification_id = n.id
        JOIN shared.channels h ON h.channel = d.channel AND h.realm = d.realm
    WHERE d.status = 'sent' AND (n.origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
GRANT SELECT ON shared.turns TO butlers_group_butler, butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create the view `shared.turns`, and let contacts ask where the owner says so."""
    execute(INBOX)
    execute(RULES)
    execute(EDITS)
    execute(TURNS)
