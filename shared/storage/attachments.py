"""Files that came with messages, fetched because a butler asked for them: the latest few, for a short while.

The only writer of shared.attachments. A row is a piece of a file; only the butler that the message was routed to reads
it. The channel keeps the file itself, so whatever is not here any more can be fetched again.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from shared.db.pool import Connection

LARGEST: Final = 20 * 2**20
PIECE: Final = 2**20
# Of more than these the oldest goes.
MOST_FILES: Final = 10
MOST_NUMBER: Final = 32


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a file lies: the message it came with, and what the channel said of it."""

    channel: str
    endpoint: str
    thread: str | None
    sender: str
    number: int
    name: str | None = None
    type: str | None = None
    size: int | None = None
    file_id: str | None = None
    verified: bool = False


# INVARIANT: of a message that was routed to this very butler.
REFERENCE: Final = """
SELECT channel, endpoint_identity AS endpoint, thread, sender, verified,
    attachments -> ($3::integer - 1) AS attached
FROM switchboard.inbox WHERE id = $1 AND routed_to = $2
"""


async def reference(connection: Connection, butler: str, message_id: UUID, number: int) -> Reference | None:
    """Return where a file of a message lies; None if that message, or that file of it, is not this butler's."""
    row = await connection.fetchrow(REFERENCE, message_id, butler, number)
    if row is None or not isinstance(row["attached"], dict):
        return None
    said = row["attached"]
    about = {name: said[name] for name in ("name", "type", "size", "file_id") if name in said}
    place = row["channel"], row["endpoint"], row["thread"], row["sender"]
    return Reference(*place, number, verified=row["verified"] is True, **about)


MAKE_ROOM: Final = """
DELETE FROM shared.attachments WHERE (message_id, number) IN (
    SELECT message_id, number FROM shared.attachments WHERE piece = 0 ORDER BY fetched_at DESC OFFSET $1)
"""
# Two that fetch the same file at once bring the same bytes.
KEEP: Final = """
INSERT INTO shared.attachments (message_id, number, piece, butler, body) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""


async def keep(connection: Connection, butler: str, message_id: UUID, number: int, body: bytes) -> None:
    """Keep a file for this butler, of at most LARGEST bytes."""
    await connection.execute(MAKE_ROOM, MOST_FILES - 1)
    for piece, begin in enumerate(range(0, max(len(body), 1), PIECE)):
        await connection.execute(KEEP, message_id, number, piece, butler, body[begin : begin + PIECE])


KEPT: Final = """
SELECT body FROM shared.attachments WHERE message_id = $1 AND number = $2 AND butler = $3 ORDER BY piece
"""


async def kept(connection: Connection, butler: str, message_id: UUID, number: int) -> bytes | None:
    """Return a file of this butler's that was fetched lately; None if it has to be fetched."""
    rows = await connection.fetch(KEPT, message_id, number, butler)
    return b"".join(row["body"] for row in rows) if rows else None
