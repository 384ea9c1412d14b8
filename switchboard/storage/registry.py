"""The registry: one row per instance, kept alive by its heartbeat."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final, TypeAlias
from uuid import UUID

from shared.config.timings import STANDARD, Timings
from shared.db.pool import Connection
from shared.storage.keyring import COUNTS

STATUSES: Final = ("starting", "ready", "draining", "gone")

# The most instances kept of one name, those last heard of; one that was deleted comes back with its next heartbeat.
MOST_INSTANCES: Final = 64


SEEN = """
INSERT INTO switchboard.butlers (name, url, kind, tools, status, has_runtime)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name, url) DO UPDATE SET kind = EXCLUDED.kind, tools = EXCLUDED.tools, status = EXCLUDED.status,
    has_runtime = EXCLUDED.has_runtime, last_seen_at = clock_timestamp()
"""
CROWDED = """
DELETE FROM switchboard.butlers WHERE (name, url) IN (
    SELECT name, url FROM (SELECT name, url,
        row_number() OVER (PARTITION BY name ORDER BY last_seen_at DESC, url) AS place FROM switchboard.butlers) b
    WHERE place > $1)
"""
Seen: TypeAlias = tuple[str, str, str, Sequence[str], str, bool]


async def all_seen(connection: Connection, beats: Sequence[Seen]) -> None:
    """Note heartbeats (name, url, kind, tools, status, has a runtime).

    Of one name instances beyond the most are forgotten, those silent longest.
    """
    await connection.executemany(SEEN, beats)
    await connection.execute(CROWDED, MOST_INSTANCES)


# INVARIANT: what is written goes to nobody without a key that counts: one that is gone for good reads nothing any more.
BUTLERS = f"""
SELECT DISTINCT b.name, d.butler IS NOT NULL AS is_default
FROM switchboard.butlers b LEFT JOIN switchboard.default_butler d ON d.butler = b.name
WHERE b.kind = 'butler' AND {COUNTS} ORDER BY b.name
"""


async def butlers(connection: Connection) -> list[tuple[str, bool]]:
    """Return each butler heard of in the last day, unless it is gone for good, by name.

    With it comes whether it is the owner's for what names none.
    """
    return [(row["name"], row["is_default"]) for row in await connection.fetch(BUTLERS)]


# Those that are there and can read, and that are in the owner's files.
CLASSIFIER = """
SELECT c.butler, (SELECT coalesce(jsonb_object_agg(b.name, c.descriptions -> b.name), '{}') FROM switchboard.butlers b
    WHERE b.kind = 'butler' AND b.status = 'ready' AND b.last_seen_at > clock_timestamp() - $1::interval
        AND b.has_runtime AND c.descriptions ? b.name) AS butlers
FROM switchboard.classifier c LIMIT 1
"""


async def classifier(connection: Connection) -> tuple[str, Mapping[str, str]] | None:
    """Return the classifier, if the owner has one, and those it may name, each with what it is for."""
    row = await connection.fetchrow(CLASSIFIER, STANDARD.instance_counts)
    return (row["butler"], row["butlers"]) if row is not None else None


HAS_RUNTIME = f"""
SELECT b.has_runtime AND {COUNTS} FROM switchboard.butlers b
WHERE b.name = $1 AND b.kind = 'butler' ORDER BY b.last_seen_at DESC LIMIT 1
"""


async def has_runtime(connection: Connection, name: str) -> bool:
    """Return whether something thinks for this butler, as it said last, unless it is gone for good."""
    return bool(await connection.fetchval(HAS_RUNTIME, name))


# A butler that is down for a while stays known, if it reads: what is written to it waits, and goes to no other.
# What died said nothing of it, so it stays until it is back, in its own place or another, or is removed: the owner is
# told. INVARIANT: what is dated ahead, by a wrong clock or on purpose, goes: else it would be the one last heard of. So
# does what no heartbeat can write: a name that has a key and no daemon would never be heard of again.
FORGET = """
DELETE FROM switchboard.butlers b
WHERE last_seen_at > clock_timestamp() + $3::interval
    OR kind <> CASE WHEN name IN ('switchboard', 'messenger', 'console', 'sandbox', 'owner', 'up') THEN name
        ELSE 'butler' END
    OR (status = 'gone' AND last_seen_at < clock_timestamp() - $1::interval)
    OR (last_seen_at < clock_timestamp() - $2::interval AND (status = 'gone' AND NOT has_runtime OR EXISTS (
        SELECT FROM switchboard.butlers other WHERE other.name = b.name AND other.last_seen_at > b.last_seen_at)))
"""


async def tidy(connection: Connection, timings: Timings) -> None:
    """Forget instances that left long ago, those in whose place another is there, and those of the future."""
    await connection.execute(FORGET, timings.instance_forgotten, timings.gone_forgotten, timings.instance_counts)


@dataclass(frozen=True, slots=True)
class Routed:
    """One route that was taken."""

    request_id: str
    origin: str
    target: str
    tool: str
    notification_id: UUID | None
    status: str
    error_class: str | None
    milliseconds: float


ROUTED = """
INSERT INTO switchboard.routes (request_id, origin_butler, target_butler, tool, notification_id, status, error_class,
    duration_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::float8[])
"""


async def routed(connection: Connection, routes: Sequence[Routed]) -> None:
    """Note these routes, in the order in which they were taken."""
    await connection.execute(ROUTED, *map(list, zip(*map(astuple, routes), strict=True)))
