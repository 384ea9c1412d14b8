"""The limit on what is kept of strangers' messages: so much of each and of so many in a day; the rest is counted.

Each channel counts its own, so that whoever floods one takes no place on another.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from messenger.storage import cards
from messenger.storage.updates import sender_of
from shared import retention
from shared.addresses import folded
from shared.db.pool import Connection, Record
from shared.storage import pairings

CARD: Final = "strangers"
# What is kept of one unknown sender in a day, and of how many unknown senders.
MOST_MESSAGES: Final = 20
# A mail may be long: with 20 kB for a day, a second long one would be lost.
MOST_BYTES: Final[Mapping[str, int]] = {"telegram": 20_000, "email": 100_000}
MOST_SENDERS: Final = 200
# What somebody sends.
WRITTEN: Final = ("message", "edited_message", "message_reaction")

Update = Mapping[str, object]


KNOWN: Final = "SELECT lookup FROM shared.contact_info WHERE type = 'telegram' AND lookup = ANY ($1)"
FORGET: Final = "DELETE FROM messenger.strangers WHERE first_at < clock_timestamp() - $1::interval"


async def beyond(connection: Connection, updates: Sequence[Update]) -> set[int]:
    """Return the numbers of these updates that are over the bounds; count them, and tell the owner once a day.

    A press is no message: each press is checked, and refused, by itself. Nor is a pairing code while one is good, so
    that no flood keeps the owner out.
    """
    senders = {number: sender for one in updates if (number := _number(one)) is not None and (sender := _sender(one))}
    if not senders:
        return set()
    known = {row["lookup"] for row in await connection.fetch(KNOWN, list(set(senders.values())))}
    strange = [one for one in updates if (number := _number(one)) in senders and senders[number] not in known]
    if not strange:
        return set()
    await connection.execute(FORGET, retention.STRANGERS)
    pairs = await pairings.is_open(connection)
    over = set[int]()
    for one in strange:
        number, long = int(str(one["update_id"])), len(json.dumps(one, ensure_ascii=False).encode("utf-8", "replace"))
        if pairs and _text(one).startswith("/start "):
            continue
        if not await _takes(connection, "telegram", senders[number], long):
            over.add(number)
    return over


KNOWN_BY_MAIL: Final = """
SELECT EXISTS (SELECT FROM shared.contact_info WHERE type = 'email' AND lookup = $1)
"""


async def takes_mail(connection: Connection, sender: str, long: int, *, vouched: bool) -> bool:
    """Return whether a mail is within the bounds; count one that is not, and tell the owner once a day.

    A contact is known by its address only where the owner's own server vouches for it: anybody may have written it.
    """
    address = folded(sender)
    if vouched and await connection.fetchval(KNOWN_BY_MAIL, address):
        return True
    await connection.execute(FORGET, retention.STRANGERS)
    return await _takes(connection, "email", address, min(long, MOST_BYTES["email"]))


TAKE: Final = """
INSERT INTO messenger.strangers AS s (sender, messages, bytes, channel) SELECT $1, 1, $2::bigint, $6
WHERE $2::bigint <= $4::bigint AND (EXISTS (SELECT FROM messenger.strangers WHERE sender = $1 AND channel = $6)
    OR (SELECT count(*) FROM messenger.strangers WHERE sender <> '' AND channel = $6) < $5)
ON CONFLICT (channel, sender) DO UPDATE SET messages = s.messages + 1, bytes = s.bytes + $2
WHERE s.messages < $3 AND s.bytes + $2 <= $4 RETURNING sender
"""
COUNT: Final = """
INSERT INTO messenger.strangers AS s (sender, messages, bytes, channel) VALUES ('', 1, $1, $2)
ON CONFLICT (channel, sender) DO UPDATE SET messages = s.messages + 1, bytes = s.bytes + $1 RETURNING messages
"""


async def _takes(connection: Connection, channel: str, sender: str, long: int) -> bool:
    """Count a stranger's message on its channel; return whether it is kept, else the owner is told once a day."""
    taken = (sender, long, MOST_MESSAGES, MOST_BYTES[channel], MOST_SENDERS, channel)
    if await connection.fetchval(TAKE, *taken) is not None:
        return True
    if await connection.fetchval(COUNT, long, channel) == 1:
        await cards.tell_of(connection, CARD)
    return False


COUNTED: Final = """
SELECT min(first_at) AS first_at, sum(messages)::bigint AS messages
FROM messenger.strangers WHERE sender = '' HAVING count(*) > 0
"""


async def counted(connection: Connection) -> Record | None:
    """Return how much was only counted since when: first_at and messages; None where all was kept."""
    return await connection.fetchrow(COUNTED)


def _number(one: Update) -> int | None:
    number = one.get("update_id")
    return number if isinstance(number, int) else None


def _sender(one: Update) -> str:
    """Return who wrote, edited or reacted: '?' where it names nobody, '' where the update is none of these."""
    name = next((name for name in WRITTEN if name in one), None)
    if name is None:
        return ""
    message = one[name]
    sender = sender_of(message) if isinstance(message, Mapping) else None
    return str(sender.get("id") or "?") if isinstance(sender, Mapping) else "?"


def _text(one: Update) -> str:
    message = one.get("message")
    return str(message.get("text")) if isinstance(message, Mapping) else ""
