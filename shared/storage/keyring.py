"""The public keys that count: one per daemon, two while one replaces another. The only writer of shared.keyring.

A retired key proves no caller any more; it stays, so that what it once signed can be checked. Whether the token of a
client or a session counts no more, the row that its jti names says.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from shared.db.pool import Connection, Record
from shared.errors import Misconfigured
from shared.hashing import id_in

ADD: Final = "INSERT INTO shared.keyring (name, public_key) VALUES ($1, $2) ON CONFLICT (name, public_key) DO NOTHING"
IS_RETIRED: Final = "SELECT retired_at IS NOT NULL FROM shared.keyring WHERE name = $1 AND public_key = $2"


async def add_key(connection: Connection, name: str, public_key: str) -> None:
    """Let this key count for that name; raise Misconfigured if it was retired, since a retired key stays so."""
    await connection.execute(ADD, name, public_key)
    if await connection.fetchval(IS_RETIRED, name, public_key):
        raise Misconfigured(
            f"The key of {name} in BUTLERS_HOME has been retired.", f"Run `butlers keys rotate {name}`."
        )


RETIRE: Final = """
UPDATE shared.keyring SET retired_at = clock_timestamp()
WHERE name = $1 AND public_key <> $2 AND retired_at IS NULL RETURNING public_key
"""


async def retire_others(connection: Connection, name: str, kept: str) -> Sequence[str]:
    """Retire every key of that name but this one; return those that counted until now."""
    return [row["public_key"] for row in await connection.fetch(RETIRE, name, kept)]


COUNTING: Final = "SELECT name, public_key FROM shared.keyring WHERE retired_at IS NULL"


async def counting(connection: Connection) -> dict[str, list[str]]:
    """Return the public keys that count, by name."""
    found: dict[str, list[str]] = {}
    for row in await connection.fetch(COUNTING):
        found.setdefault(row["name"], []).append(row["public_key"])
    return found


OVER: Final = """
SELECT EXISTS (SELECT FROM shared.client_tokens
        WHERE jti = $1 AND (revoked_at IS NOT NULL OR expires_at <= clock_timestamp()))
    OR EXISTS (SELECT FROM shared.sessions
        WHERE id = $2 AND (status <> 'running' OR stop_asked_at IS NOT NULL))
"""


async def is_over(connection: Connection, jti: str) -> bool:
    """Return whether a client's token was revoked or has ended, or a session has ended or is being stopped."""
    return bool(await connection.fetchval(OVER, jti, id_in(jti)))


# Of a row `b` that names a daemon: it is none that is gone for good, and was heard of in the last day.
HAS_KEY: Final = "EXISTS (SELECT FROM shared.keyring k WHERE k.name = b.name AND k.retired_at IS NULL)"
COUNTS: Final = f"{HAS_KEY} AND b.last_seen_at > clock_timestamp() - interval '1 day'"
ALL_OF: Final = "SELECT public_key FROM shared.keyring WHERE name = $1 ORDER BY added_at DESC"


async def all_of(connection: Connection, name: str) -> Sequence[str]:
    """Return every public key that name ever had, newest first."""
    return [row["public_key"] for row in await connection.fetch(ALL_OF, name)]


LIST: Final = "SELECT name, public_key, added_at, retired_at FROM shared.keyring ORDER BY name, added_at"


async def every(connection: Connection) -> Sequence[Record]:
    """Return every key with its name, since when it counts, and since when it counts no more."""
    return await connection.fetch(LIST)


SERVES_ANOTHER_HOME: Final = """
SELECT EXISTS (SELECT FROM shared.keyring) AND NOT EXISTS (SELECT FROM shared.keyring WHERE public_key = ANY ($1))
    AND EXISTS (SELECT FROM switchboard.butlers
        WHERE status <> 'gone' AND last_seen_at > clock_timestamp() - $2::interval)
"""


async def serves_another_home(connection: Connection, keys: Sequence[str], counts: timedelta) -> bool:
    """Return whether daemons run on this database and none of these keys was ever a key here.

    `counts` is how long a daemon counts as running after its last heartbeat.
    """
    return bool(await connection.fetchval(SERVES_ANOTHER_HOME, keys, counts))
