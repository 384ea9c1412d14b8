"""Deliveries of what waits: cards that are missing, what ends unsent, what is asked for again.

Beside `messenger/store.py` the only writer of messenger.deliveries; here it moves only what nobody holds.
"""

from typing import Final
from uuid import UUID

from shared.db import Connection

# The pending action is the outbox of its card: whatever has none of its revision gets one. Where Telegram refused it,
# or did not take it within a minute, the next channel is asked as well.
WRITE_MISSING: Final = """
INSERT INTO messenger.deliveries (class, channel, address, realm, action_id, revision, origin_butler)
SELECT 'card', c.channel, i.value, c.realm, a.id, a.revision, a.origin_butler
FROM shared.pending_actions a
CROSS JOIN shared.contacts o
JOIN shared.channels c ON c.channel IN ('telegram', o.preferred_channel) OR NOT EXISTS (SELECT FROM
    shared.contact_info t WHERE t.contact_id = o.id AND t.type = 'telegram' AND t.lookup ~ '^[1-9][0-9]*$')
    OR EXISTS (SELECT FROM messenger.deliveries t WHERE t.action_id = a.id AND t.revision = a.revision
        AND t.channel = 'telegram' AND (t.status = 'failed'
            OR (t.status <> 'sent' AND t.created_at < clock_timestamp() - interval '60 seconds')))
JOIN LATERAL (SELECT value FROM shared.contact_info i WHERE i.contact_id = o.id AND i.type = c.channel
    AND (c.channel <> 'telegram' OR i.lookup ~ '^[1-9][0-9]*$')
    ORDER BY i.is_primary DESC, i.created_at LIMIT 1) i ON true
WHERE a.status = 'pending' AND a.expires_at > clock_timestamp() AND 'owner' = ANY (o.roles)
    AND NOT EXISTS (SELECT FROM messenger.deliveries d
        WHERE d.action_id = a.id AND d.revision = a.revision AND d.channel = c.channel)
ORDER BY a.requested_at LIMIT 50
ON CONFLICT DO NOTHING RETURNING id
"""
# A parked delivery whose question got a no, or no answer, ends with it.
CLOSE_ANSWERED: Final = """
UPDATE messenger.deliveries d SET status = 'cancelled', reason = 'answered', settled_at = clock_timestamp()
FROM shared.notifications n WHERE n.id = d.notification_id AND d.status = 'parked' AND n.status = 'error'
"""
CANCEL: Final = """
UPDATE messenger.deliveries SET status = 'cancelled', reason = 'withdrawn', settled_at = clock_timestamp()
WHERE notification_id = $1 AND status IN ('queued', 'parked', 'cancelled') RETURNING id
"""
# From here the way is that of anything that waited: `parked` is put in the queue by the next route.
ASKED_AGAIN: Final = """
UPDATE messenger.deliveries SET status = 'parked', reason = 'asked_again', settled_at = NULL
WHERE notification_id = $1 AND status IN ('failed', 'expired', 'cancelled', 'parked') RETURNING id
"""
# Past the marker of any part something may have left.
BEGUN: Final = """
SELECT EXISTS (SELECT FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
    WHERE d.notification_id = $1 AND p.status IN ('sending', 'sent', 'uncertain'))
"""
SHORT_OF_AN_IDENTIFIER: Final = """
SELECT n.id::text FROM shared.notifications n
JOIN shared.pending_actions a ON a.notification_id = n.id AND a.status = 'pending' AND a.expires_at > clock_timestamp()
WHERE n.status = 'pending_missing_identifier' AND EXISTS (SELECT FROM shared.contact_info i
    WHERE i.contact_id = n.contact_id AND i.type = n.envelope #>> '{delivery,channel}')
ORDER BY n.id LIMIT 50
"""
CLOSE_CARD: Final = "UPDATE messenger.deliveries SET reason = 'closed' WHERE id = $1 AND class = 'card'"
CLOSE_CARDS_OF: Final = """
UPDATE messenger.deliveries SET reason = 'closed'
WHERE class = 'card' AND channel = 'telegram' AND status = 'sent' AND reason IS NULL AND action_id = $1
"""


async def write_missing_cards(connection: Connection) -> int:
    """Put the cards that are missing in the queue; how many."""
    return len(await connection.fetch(WRITE_MISSING))


async def close_answered(connection: Connection) -> None:
    """End the parked deliveries that nobody waits for any more."""
    await connection.execute(CLOSE_ANSWERED)


async def cancel(connection: Connection, notification_id: str) -> bool:
    """Whether its delivery is ended before anybody took it; false while somebody holds it."""
    return await connection.fetchval(CANCEL, UUID(notification_id)) is not None


async def ask_again(connection: Connection, notification_id: str) -> None:
    """Let its delivery, if it had one, wait again for what is decided afresh."""
    await connection.execute(ASKED_AGAIN, UUID(notification_id))


async def begun(connection: Connection, notification_id: str) -> bool:
    """Whether something of it may have left."""
    return bool(await connection.fetchval(BEGUN, UUID(notification_id)))


async def identified(connection: Connection) -> list[str]:
    """Notifications that waited for an identifier which is there now, by id."""
    return [row["id"] for row in await connection.fetch(SHORT_OF_AN_IDENTIFIER)]


async def close_card(connection: Connection, delivery_id: str) -> None:
    """Note that a card shows its outcome."""
    await connection.execute(CLOSE_CARD, UUID(delivery_id))


async def close_cards_of(connection: Connection, action_id: str) -> None:
    """The same for the card of an action whose press is answered on the spot."""
    await connection.execute(CLOSE_CARDS_OF, UUID(action_id))
