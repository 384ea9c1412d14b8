"""Service discovery in rows: the registry of daemons, and the client tokens that open them."""

from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from butlers.fleet import SERVICES
from shared.config.parsers import origin_url
from shared.config.timings import STANDARD
from shared.db.decoding import bounded
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.storage import keyring
from shared.storage.pending_actions import Event, record

LONGEST_URL: Final = 300
# A heartbeat from the future was noted while a clock was wrong, and does not count.
INSTANCES: Final = """
SELECT name, url FROM switchboard.butlers
WHERE status = 'ready' AND last_seen_at BETWEEN clock_timestamp() - $1::interval AND clock_timestamp() + $1::interval
ORDER BY last_seen_at DESC
"""
DAEMONS: Final = f"""
SELECT name, kind, url, status = 'ready'
    AND last_seen_at BETWEEN clock_timestamp() - $1::interval AND clock_timestamp() + $1::interval AS ready,
    {bounded("last_seen_at")} AS last_seen_at
FROM switchboard.butlers WHERE status <> 'gone' ORDER BY kind, name, url
"""
WAITING: Final = """
SELECT channel AS what, CASE reason WHEN 'unauthorized' THEN 'paused: the login is refused' ELSE 'paused: unreachable'
    END AS why, detail, since, next_probe_at AS until FROM messenger.circuit_breakers WHERE since IS NOT NULL
UNION ALL
SELECT key, 'asked to wait by the provider', '', told_at, free_at FROM messenger.rate_limits
WHERE told_at IS NOT NULL AND free_at > clock_timestamp() ORDER BY what
"""
KEEP: Final = """
INSERT INTO shared.client_tokens (jti, butler, expires_at, notices, kind)
VALUES ($1, $2, clock_timestamp() + $3, $4, $5)
"""
# How long a token lasts that the command line makes for itself; it is made in the second in which it is stored.
ONE_COMMAND: Final = timedelta(minutes=5)
TOKENS: Final = """
SELECT jti AS id, kind, butler, made_at, expires_at, revoked_at,
    revoked_at IS NULL AND expires_at > clock_timestamp() AS counts,
    kind = 'client' AND expires_at <= made_at + interval '301 seconds' AS brief
FROM shared.client_tokens ORDER BY made_at
"""
REVOKE: Final = """
UPDATE shared.client_tokens SET revoked_at = clock_timestamp() WHERE jti = $1 AND revoked_at IS NULL RETURNING butler
"""
IS_LIVE: Final = """
SELECT EXISTS (SELECT FROM shared.client_tokens
    WHERE jti = $1 AND revoked_at IS NULL AND expires_at > clock_timestamp())
"""


def kind_of(name: str) -> str:
    """Return what a daemon of that name is; the name is the token's, so no daemon chooses its kind."""
    return name if name in SERVICES else "butler"


def is_base_url(text: str) -> bool:
    """Return whether this is just scheme, host and port of a web server, in at most 300 printable characters."""
    try:
        origin_url(text)
    except ValueError:
        return False
    parts = urlsplit(text)
    plain = text.isprintable() and "\\" not in text and len(text) <= LONGEST_URL
    return plain and text.removesuffix("/") == f"{parts.scheme}://{parts.netloc}"


async def daemons(connection: Connection, counts: timedelta = STANDARD.instance_counts) -> list[Record]:
    """Return each instance that is not gone (name, kind, url, ready, last_seen_at), if a heartbeat can write it."""
    rows = await connection.fetch(DAEMONS, counts)
    return [row for row in rows if row["kind"] == kind_of(row["name"]) and is_base_url(row["url"])]


async def instances(connection: Connection, counts: timedelta) -> list[Record]:
    """Return name and url of each ready instance, the freshest first."""
    rows = await connection.fetch(INSTANCES, counts)
    return [row for row in rows if is_base_url(row["url"])]


async def is_up(connection: Connection, name: str) -> bool:
    """Return whether a daemon of that name is ready."""
    return any(row["name"] == name and row["ready"] for row in await daemons(connection))


async def held_up(connection: Connection) -> list[Record]:
    """Return paused channels, and chats a provider makes wait: what, why, detail, since, until (the next try)."""
    return list(await connection.fetch(WAITING))


async def names(connection: Connection) -> list[str]:
    """Return the sorted names of all that have a key and may ask for a message."""
    return sorted((await keyring.counting(connection)).keys() - {"console", "owner", "sandbox"})


async def demand_known(connection: Connection, name: str | None) -> str | None:
    """Return the name if somebody of that name may ask, and None for none; raise InvalidInput otherwise."""
    known = await names(connection)
    if name is not None and name not in known:
        raise InvalidInput(f"Unknown butler `{name}`.", f"Choose from: {', '.join(known)}.")
    return name


# Of each butler that was seen lately its gated tools, or one row without any.
TOOLS: Final = """
SELECT DISTINCT t.tool FROM switchboard.butlers b LEFT JOIN LATERAL unnest(b.tools) AS t(tool) ON true
WHERE b.kind = 'butler' ORDER BY 1
"""


async def demand_tool(connection: Connection, name: str) -> None:
    """Raise InvalidInput if no butler that was seen lately has a gated tool of that name, unless none was seen at all.

    Of any other tool no rule is asked, so one that blocks it would block nothing.
    """
    rows = await connection.fetch(TOOLS)
    known = [row["tool"] for row in rows if row["tool"] is not None]
    if name == "notify" or len(name) > 60 or (rows and name not in known):  # noqa: PLR2004  # the table's bound
        remedy = f"Choose from: {', '.join(known)}." if known else "Let its module gate it; see docs/modules.md."
        raise InvalidInput(f"No butler has a gated tool `{name[:60]}`, and of others no rule is asked.", remedy)


async def keep_token(
    connection: Connection, jti: str, butler: str, lasts: timedelta, *, notices: bool = False, kind: str = "client"
) -> None:
    """Store the id of a token, so that it counts; `kind` is `client` or `desk`.

    `notices` says whether the results of its calls bring them.
    """
    await connection.execute(KEEP, jti, butler, lasts, notices, kind)
    await record(connection, Event("token_made", "owner"), butler=butler, token=jti, seconds=int(lasts.total_seconds()))


async def tokens(connection: Connection) -> list[Record]:
    """Return every token, oldest first: id, kind, butler, made_at, expires_at, revoked_at, and whether it counts.

    What is `brief` lasts as long as those that the command line makes for a single command.
    """
    return list(await connection.fetch(TOKENS))


async def is_live(connection: Connection, jti: str) -> bool:
    """Return whether a client token still counts."""
    return bool(await connection.fetchval(IS_LIVE, jti))


async def revoke_token(connection: Connection, jti: str) -> bool:
    """Revoke a client token, everywhere within five seconds; return false if it was revoked before."""
    butler = await connection.fetchval(REVOKE, jti)
    if butler is None:
        return False
    await record(connection, Event("token_revoked", "owner"), butler=butler, token=jti)
    return True


async def revoke_all(connection: Connection, butler: str) -> int:
    """Revoke every client token of that butler; return how many were not revoked before."""
    theirs = [row["id"] for row in await tokens(connection) if row["butler"] == butler]
    return sum([await revoke_token(connection, jti) for jti in theirs])
