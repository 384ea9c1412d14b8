"""What a butler asked to send stands among what was said, for replies to its card; and what is marked of a message."""

from migrations.raw import execute

revision = "0090"
down_revision = "0089"

# INVARIANT: a request stands in no conversation, and is found by its id alone.
TURNS = """
CREATE OR REPLACE VIEW shared.turns WITH (security_barrier) AS
    SELECT i.id, i.routed_to AS butler, i.channel, i.endpoint_identity AS endpoint, i.conversation, i.kind, i.text,
        i.sender, i.display_name, c.id AS contact_id, c.name AS contact,
        coalesce('owner' = ANY (c.roles), false) AS from_owner, i.concerns, i.attachments,
        i.verified AS vouched, i.received_at AS at, i.answers,
        i.request_context ->> 'received_at' AS observed,
        CASE WHEN i.in_doubt OR i.channel = 'telegram' THEN left(i.quoted, 8000) END AS left_out
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
        d.settled_at, NULL, NULL, NULL
    FROM shared.notifications n JOIN messenger.deliveries d ON d.notification_id = n.id
        JOIN shared.channels h ON h.channel = d.channel AND h.realm = d.realm
    WHERE d.status = 'sent' AND (n.origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'))
    UNION ALL
    SELECT n.id, n.origin_butler, n.envelope #>> '{delivery,channel}', NULL, NULL, 'request',
        'To ' || coalesce(left(c.name, 40), substr(n.whom, position(':' IN n.whom) + 1)) || ': '
            || coalesce(n.owner_text, n.envelope #>> '{delivery,message}', ''),
        NULL, NULL, NULL, NULL, false, NULL, NULL, false, n.created_at, NULL, NULL, NULL
    FROM shared.notifications n LEFT JOIN shared.contacts c ON n.whom = 'contact:' || c.id
    WHERE NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.notification_id = n.id AND d.status = 'sent')
        AND (n.origin_butler = shared.me() OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
            OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'))
    UNION ALL
    SELECT a.id, a.origin_butler, NULL, NULL, NULL, 'request', a.tool_name || ': ' || t.says,
        NULL, NULL, NULL, NULL, false, NULL, NULL, false, a.requested_at, NULL, NULL, NULL
    FROM shared.pending_actions a JOIN shared.tool_calls t ON t.id = a.id
    WHERE a.origin_butler = shared.me() OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER')
    UNION ALL
    SELECT q.id, q.origin_butler, own.channel, own.endpoint, own.lookup, half.kind, half.text,
        CASE WHEN half.kind = 'answer' THEN own.lookup END, CASE WHEN half.kind = 'answer' THEN own.name END,
        CASE WHEN half.kind = 'answer' THEN own.id END, CASE WHEN half.kind = 'answer' THEN own.name END,
        half.kind = 'answer', NULL, NULL, half.kind = 'answer', half.at, NULL, NULL, NULL
    FROM shared.questions q
        CROSS JOIN (SELECT c.id, c.name, i.type AS channel, i.lookup, h.endpoint
            FROM shared.contacts c JOIN shared.contact_info i ON i.contact_id = c.id
                JOIN shared.channels h ON h.channel = i.type
            WHERE 'owner' = ANY (c.roles) AND i.type IN ('telegram', c.preferred_channel)
            ORDER BY i.type = 'telegram' DESC, i.is_primary DESC, i.created_at LIMIT 1) own
        CROSS JOIN LATERAL (VALUES
            ('question', CASE WHEN q.popup THEN q.question ELSE q.title || ': ' || q.question END, q.asked_at),
            ('answer', q.choice, q.closed_at)) half (kind, text, at)
    WHERE half.text IS NOT NULL
        AND (q.surface IS NOT NULL OR (q.status = 'open' AND q.show_at <= statement_timestamp()))
        AND (q.origin_butler = shared.me()
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
"""


def upgrade() -> None:
    """Show in `shared.turns` what was not sent, as a request, and which part of a message its answer is about."""
    execute(TURNS)
