"""What the Messenger looks up about its deliveries, by SELECT only."""

from uuid import UUID

from shared.db import Connection, Record

SILENT = """
SELECT id::text, notification_id::text FROM messenger.deliveries
WHERE status IN ('claimed', 'sending') AND lease_until <= clock_timestamp() ORDER BY notification_id LIMIT 100
"""
SAME_CONTENT = """
SELECT notification_id::text FROM messenger.deliveries
WHERE origin_butler = $1 AND lineage = $2 AND content_sha = $3 AND class = 'third_party'
"""
ONE = """
SELECT id::text, notification_id::text, class, channel, address, status, reason, send_at, attempt, created_at
FROM messenger.deliveries WHERE notification_id = $1
"""
QUEUE_AGE = """
SELECT coalesce(extract(epoch FROM now.at - min(send_at) FILTER (WHERE send_at <= now.at)), 0)::float AS age,
    extract(epoch FROM min(send_at) FILTER (WHERE status = 'queued' AND send_at > now.at) - now.at)::float AS due
FROM (SELECT statement_timestamp() AS at) now LEFT JOIN messenger.deliveries
    ON status IN ('queued', 'claimed', 'sending') GROUP BY now.at
"""
OWNER_AT = """
SELECT i.value FROM shared.contacts o JOIN shared.contact_info i ON i.contact_id = o.id AND i.type = $1
WHERE 'owner' = ANY (o.roles) AND (i.type <> 'telegram' OR i.lookup ~ '^[1-9][0-9]*$')
ORDER BY i.is_primary DESC, i.created_at LIMIT 1
"""

# A card that was answered, or asks in a revision that is gone, and still shows its buttons.
CARDS_OVER = """
SELECT d.id::text, d.address, d.action_id::text, a.status, a.notification_id::text, p.provider_id
FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
JOIN LATERAL (SELECT provider_id FROM messenger.parts p WHERE p.delivery_id = d.id ORDER BY p.n DESC LIMIT 1) p ON true
WHERE d.class = 'card' AND d.status = 'sent' AND d.reason IS NULL AND d.channel = 'telegram'
    AND p.provider_id IS NOT NULL AND (a.status <> 'pending' OR a.revision <> d.revision)
ORDER BY d.created_at LIMIT 20
"""


async def silent(connection: Connection) -> list[Record]:
    """Deliveries whose holder no longer renews its lease, by id of their notifications."""
    return list(await connection.fetch(SILENT))


async def same_content(connection: Connection, origin: str, lineage: str, content_sha: str) -> str | None:
    """The notification that was marked with this content in this lineage."""
    found: str | None = await connection.fetchval(SAME_CONTENT, origin, lineage, content_sha)
    return found


async def one(connection: Connection, notification_id: str) -> Record | None:
    """The delivery of a notification, if there is one."""
    return await connection.fetchrow(ONE, UUID(notification_id))


async def queue_age(connection: Connection) -> tuple[float, float | None]:
    """Seconds the oldest due delivery has waited, and seconds until the next one is due."""
    row = await connection.fetchrow(QUEUE_AGE)
    return (row["age"], row["due"]) if row else (0.0, None)


async def owner_at(connection: Connection, channel: str) -> str | None:
    """Where the owner is asked on this channel: a private chat, or an address."""
    found: str | None = await connection.fetchval(OWNER_AT, channel)
    return found


async def cards_over(connection: Connection) -> list[Record]:
    """Cards in Telegram whose question is over: id, address, provider_id, action_id, status, notification_id."""
    return list(await connection.fetch(CARDS_OVER))
