"""What each page says of the brakes that are on, and whether a channel works in the sandbox; read by SELECT only."""

from dataclasses import dataclass
from typing import Final

from butlers.console.labels import ago, moment
from shared.db.pool import Connection, Record
from shared.display.brakes import held_back
from shared.display.visible import in_line

RESTORED: Final = "A backup was restored. Check rules, brakes, contacts and keys before you lift this."


@dataclass(frozen=True, slots=True)
class Brake:
    """One brake that is on: what waits, since when and until when, and by whom."""

    id: str
    words: str
    since: str
    at: str
    until: str
    by: str


ON: Final = """
SELECT b.id::text, b.butler, c.name AS contact, b.channel, b.owner_too, b.until, b.made_at, b.reason,
    m.name AS maker, coalesce('owner' = ANY (m.roles), false) AS is_owner,
    extract(epoch FROM clock_timestamp() - LEAST(b.made_at, clock_timestamp()))::float8 AS age
FROM shared.brakes b LEFT JOIN shared.contacts c ON c.id = b.contact_id LEFT JOIN shared.contacts m ON m.id = b.made_by
WHERE b.lifted_at IS NULL AND (b.until IS NULL OR b.until > clock_timestamp()) ORDER BY b.made_at, b.id LIMIT 100
"""


async def brakes_on(connection: Connection) -> tuple[Brake, ...]:
    """Return the brakes that are on, oldest first."""
    return tuple(map(_brake, await connection.fetch(ON)))


def _brake(row: Record) -> Brake:
    return Brake(
        id=row["id"],
        words=RESTORED if row["reason"] == "restored" else f"M{held_back(dict(row))[1:]} wait.",
        since=ago(row["age"]),
        at=moment(row["made_at"]),
        until=moment(row["until"]),
        by="you" if row["is_owner"] else in_line(row["maker"] or "the Messenger"),
    )


IN_SANDBOX: Final = "SELECT coalesce(bool_or(realm = 'sandbox'), true) FROM shared.channels"


async def in_sandbox(connection: Connection) -> bool:
    """Return whether any channel works in the sandbox, which then is there."""
    return await connection.fetchval(IN_SANDBOX) is True
