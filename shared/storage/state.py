"""State: JSON values that a butler keeps by key between its sessions; each change gives a version never had before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.db.pool import Connection

MOST_KEYS: Final = 1000
"""The most keys of one butler."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a key holds, and its version; version 0 stands for a key that is not there."""

    value: object
    version: int
    changed_at: datetime | None = None


GET = "SELECT value, version, changed_at FROM shared.state WHERE butler = $1 AND key = $2"


async def get(connection: Connection, butler: str, key: str) -> Value | None:
    """Return what the key holds, or None."""
    row = await connection.fetchrow(GET, butler, key)
    return None if row is None else Value(row["value"], row["version"], row["changed_at"])


# One statement decides and writes, so that of two who read the same version one alone goes on. A new key is refused
# where there are too many; two at once may both fit in below the bound.
PUT = """
INSERT INTO shared.state AS s (butler, key, value)
SELECT $1, $2, $3
WHERE ($4::bigint IS NULL OR $4 = 0 OR EXISTS (SELECT FROM shared.state WHERE butler = $1 AND key = $2))
    AND ((SELECT count(*) FROM shared.state WHERE butler = $1) < $5
        OR EXISTS (SELECT FROM shared.state WHERE butler = $1 AND key = $2))
ON CONFLICT (butler, key) DO UPDATE SET value = EXCLUDED.value, version = DEFAULT, changed_at = clock_timestamp()
    WHERE $4::bigint IS NULL OR s.version = $4
RETURNING version
"""


async def put(connection: Connection, butler: str, key: str, value: object, version: int | None) -> int | None:
    """Set a key, if given a `version` only where it has that one; return its new version, or None if nothing is set."""
    found: int | None = await connection.fetchval(PUT, butler, key, value, version, MOST_KEYS)
    return found


# Its trigger takes the row away.
DELETE = """
UPDATE shared.state SET removed = true WHERE butler = $1 AND key = $2 AND ($3::bigint IS NULL OR version = $3)
RETURNING version
"""


async def delete(connection: Connection, butler: str, key: str, version: int | None) -> bool:
    """Delete a key, if given a `version` only where it has that one; return whether it was deleted."""
    return await connection.fetchval(DELETE, butler, key, version) is not None


KEYS = """
SELECT key, version FROM shared.state WHERE butler = $1 AND starts_with(key, $2) ORDER BY key LIMIT $3
"""


async def keys(connection: Connection, butler: str, prefix: str) -> Sequence[tuple[str, int]]:
    """Return the keys that begin so, each with its version."""
    return [(row["key"], row["version"]) for row in await connection.fetch(KEYS, butler, prefix, MOST_KEYS)]
