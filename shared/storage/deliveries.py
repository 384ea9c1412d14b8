"""What became of messages on their way out, for the owner's surfaces: SELECT only.

Cards are left out: they ask about something that has a page of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.hashing import reference, that_begin
from shared.storage.readable import LONGEST_MESSAGE

# A reference may look like the beginning of another delivery's id, so an id needs more characters than a reference.
REFERENCE: Final = 4
SHORTEST: Final = REFERENCE + 1


@dataclass(frozen=True, slots=True)
class Shown:
    """One delivery with its parts and attempts, as rows."""

    delivery: Record
    parts: tuple[Record, ...]
    attempts: tuple[Record, ...]


# The contact is the one that has the address now: the address is the Messenger's word, the contact that a notification
# names is its butler's.
ROW: Final = f"""
SELECT d.id::text, d.notification_id::text, d.class, d.channel, d.realm, d.address, d.status, d.reason, d.attempt,
    d.send_at, d.created_at, d.settled_at, d.repeated, n.origin_butler, c.name AS contact,
    coalesce(n.owner_text, left(n.envelope #>> '{{delivery,message}}', {LONGEST_MESSAGE})) AS message,
    left(n.envelope #>> '{{delivery,emoji}}', {LONGEST_MESSAGE}) AS emoji
FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
LEFT JOIN shared.contact_info i ON i.type = d.channel AND i.lookup = lower(d.address COLLATE "C")
LEFT JOIN shared.contacts c ON c.id = i.contact_id
"""
LIST: Final = f"{ROW} WHERE $1::text IS NULL OR d.status = $1 ORDER BY d.created_at DESC, d.id LIMIT $2"


async def latest(connection: Connection, status: str | None, most: int) -> list[Record]:
    """Return the deliveries in that status, or in any, newest first."""
    return list(await connection.fetch(LIST, status, most))


# Past its marker a part `p` may have left; what was sent again has its parts back in the queue, and of what a backup
# brought back there may be none. A reaction is set again by machine: what counts is how its earlier attempts ended.
MAY_HAVE_LEFT: Final = """
(p.status IN ('sending', 'sent', 'uncertain') OR d.repeated > 0 OR EXISTS (SELECT FROM messenger.attempts tried
    WHERE (tried.delivery_id, tried.n) = (d.id, p.n) AND tried.marked_at IS NOT NULL
        AND tried.outcome NOT IN ('provider_rejected', 'unauthorized', 'rate_limited', 'unavailable')))
"""
BEGUN: Final = f"""
SELECT EXISTS (SELECT FROM messenger.deliveries d LEFT JOIN messenger.parts p ON p.delivery_id = d.id
    WHERE d.notification_id = $1 AND {MAY_HAVE_LEFT})
"""


async def begun(connection: Connection, notification_id: str) -> bool:
    """Return whether something of the notification may have left."""
    return bool(await connection.fetchval(BEGUN, UUID(notification_id)))


LATEST: Final = """
SELECT id::text, notification_id::text FROM messenger.deliveries
WHERE class <> 'card' AND notification_id IS NOT NULL ORDER BY created_at DESC LIMIT 10000
"""


async def referred(connection: Connection, said: str) -> list[Record]:
    """Return id and notification of each delivery of this reference, whatever its case, among the last 10,000."""
    if len(said) != REFERENCE:
        return []
    return [row for row in await connection.fetch(LATEST) if reference(row["id"]) == said.upper()]


FIND: Final = """
SELECT id::text FROM messenger.deliveries
WHERE class <> 'card' AND (id BETWEEN $1 AND $2 OR notification_id BETWEEN $1 AND $2) LIMIT 2
"""


async def find(connection: Connection, said: str) -> str:
    """Return the id of the one delivery that is meant.

    It is meant by its reference, or by the beginning of its id or of its notification's id.
    """
    if len(said) < SHORTEST:
        found = [row["id"] for row in await referred(connection, said)]
    else:
        between = that_begin(said.lower())
        found = [] if between is None else [row["id"] for row in await connection.fetch(FIND, *between)]
    if len(found) != 1:
        what = "More than one delivery has" if found else "No delivery has"
        raise InvalidInput(f"{what} the id or the reference `{said[:40]}`.", "See `butlers deliveries list`.")
    return str(found[0])


ONE: Final = f"{ROW} WHERE d.id = $1"
PARTS: Final = "SELECT n, status, wire_sha, provider_id FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"
ATTEMPTS: Final = """
SELECT n, attempt, started_at, marked_at, ended_at, outcome, detail FROM messenger.attempts
WHERE delivery_id = $1 ORDER BY n, attempt
"""


async def one(connection: Connection, delivery_id: str) -> Shown:
    """Return a delivery that exists, with all that was tried."""
    key = UUID(delivery_id)
    (delivery,) = await connection.fetch(ONE, key)
    parts, attempts = await connection.fetch(PARTS, key), await connection.fetch(ATTEMPTS, key)
    return Shown(delivery, tuple(parts), tuple(attempts))


def as_object(row: Record) -> Mapping[str, object]:
    """Return the row of a delivery for a program, with its reference."""
    return {**dict(row), "reference": reference(row["id"])}
