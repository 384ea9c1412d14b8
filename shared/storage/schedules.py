"""Schedules: what a butler does at a time or again and again; rows from its butler.toml and from its tools alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from shared.db.pool import Connection, Record

CatchUp = Literal["once", "skip"]
Source = Literal["file", "tool"]
MOST_OWN: Final = 1000
"""The most schedules a butler has of its own making."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule: when (`cron`, or `at` once), in which zone, and what (`prompt`, or `tool` with `arguments`)."""

    name: str
    zone: str
    cron: str | None = None
    at: datetime | None = None
    prompt: str | None = None
    tool: str | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)
    catch_up: CatchUp = "once"

    @property
    def cause(self) -> str:
        """Return why a session of its prompt began."""
        return f"schedule:{self.name}"


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule whose time has come, locked by this unit of work: its row's id, when it was due, and the time now."""

    id: str
    schedule: Schedule
    due_at: datetime
    now: datetime


NOW = "SELECT clock_timestamp()"


async def now(connection: Connection) -> datetime:
    """Return the time by the database's clock, which rules what is due."""
    found: datetime = await connection.fetchval(NOW)
    return found


# When it is due was chosen from what its row said before ($11); what another process has moved since then stays.
FOLLOW = """
INSERT INTO shared.schedules AS s (butler, name, source, cron, once_at, zone, prompt, tool, arguments, catch_up,
    next_due_at)
VALUES ($1, $2, 'file', $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (butler, name) DO UPDATE SET source = 'file', cron = EXCLUDED.cron, once_at = EXCLUDED.once_at,
    zone = EXCLUDED.zone, prompt = EXCLUDED.prompt, tool = EXCLUDED.tool, arguments = EXCLUDED.arguments,
    catch_up = EXCLUDED.catch_up,
    next_due_at = CASE WHEN s.next_due_at IS NOT DISTINCT FROM $11 THEN EXCLUDED.next_due_at ELSE s.next_due_at END
"""


async def follow(
    connection: Connection, butler: str, schedule: Schedule, waits: datetime | None, due: datetime | None
) -> None:
    """Write a schedule of the butler's file, due next at `due`; its row, if there is one, waits for `waits`."""
    await connection.execute(FOLLOW, butler, *_columns(schedule), due, waits)


# Its trigger takes the row away.
FORGET = """
UPDATE shared.schedules SET removed = true WHERE butler = $1 AND source = 'file' AND name <> ALL ($2::text[])
"""


async def forget_others(connection: Connection, butler: str, names: Sequence[str]) -> None:
    """Remove what is no longer in the butler's file."""
    await connection.execute(FORGET, butler, list(names))


FORGET_ALL = """
UPDATE shared.schedules SET removed = true WHERE butler = $1 RETURNING name, source = 'tool' AND next_due_at IS NOT NULL
"""


async def forget_all(connection: Connection, butler: str) -> Sequence[str]:
    """Remove the schedules of a butler that is gone for good; return the names of its own that were to come."""
    return sorted(name for name, waits in await connection.fetch(FORGET_ALL, butler) if waits)


COUNT = "SELECT count(*) FROM shared.schedules WHERE butler = $1 AND source = 'tool'"


async def number_of_own(connection: Connection, butler: str) -> int:
    """Return how many schedules the butler has made itself."""
    return int(await connection.fetchval(COUNT, butler))


ADD = """
INSERT INTO shared.schedules (butler, name, source, cron, once_at, zone, prompt, tool, arguments, catch_up, next_due_at)
VALUES ($1, $2, 'tool', $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (butler, name) DO NOTHING RETURNING id::text
"""


async def add_own(connection: Connection, butler: str, schedule: Schedule, due: datetime) -> bool:
    """Add a schedule of the butler's own making; return False if it has one of that name."""
    return await connection.fetchval(ADD, butler, *_columns(schedule), due) is not None


REMOVE = """
UPDATE shared.schedules SET removed = true WHERE butler = $1 AND name = $2 AND source = 'tool' RETURNING id::text
"""


async def remove_own(connection: Connection, butler: str, name: str) -> bool:
    """Remove a schedule of the butler's own making; return whether there was one."""
    return await connection.fetchval(REMOVE, butler, name) is not None


SOURCE = "SELECT source FROM shared.schedules WHERE butler = $1 AND name = $2"


async def source_of(connection: Connection, butler: str, name: str) -> Source | None:
    """Return whether the butler's schedule of that name is from its file or its tool, or None."""
    found: Source | None = await connection.fetchval(SOURCE, butler, name)
    return found


OF = """
SELECT s.id::text, s.name, s.source, s.cron, s.once_at, s.zone, s.prompt, s.tool, s.arguments, s.catch_up,
    s.next_due_at, o.due_at AS last_due_at, o.status AS last_status, o.outcome AS last_outcome
FROM shared.schedules s LEFT JOIN LATERAL (SELECT due_at, status, outcome FROM shared.occurrences
    WHERE schedule_id = s.id ORDER BY due_at DESC LIMIT 1) o ON true
WHERE s.butler = $1 ORDER BY s.next_due_at NULLS LAST, s.name LIMIT 1000
"""


async def of(connection: Connection, butler: str) -> list[Record]:
    """Return the butler's schedules, each with how its last occurrence went; what is due first comes first."""
    return list(await connection.fetch(OF, butler))


DUE = """
SELECT id::text, name, zone, cron, once_at, prompt, tool, arguments, catch_up, next_due_at, clock_timestamp() AS now
FROM shared.schedules WHERE butler = $1 AND next_due_at <= clock_timestamp()
ORDER BY next_due_at LIMIT $2 FOR UPDATE SKIP LOCKED
"""


async def due(connection: Connection, butler: str, most: int) -> list[Due]:
    """Lock what is due and nobody else has in hand."""
    return [
        Due(row["id"], schedule_of(row), row["next_due_at"], row["now"])
        for row in await connection.fetch(DUE, butler, most)
    ]


MOVE = "UPDATE shared.schedules SET next_due_at = $2 WHERE id = $1::text::uuid"


async def move(connection: Connection, schedule_id: str, due: datetime | None) -> None:
    """Let a schedule be due next then, or never again."""
    await connection.execute(MOVE, schedule_id, due)


NEXT = """
SELECT extract(epoch FROM least(
    (SELECT min(next_due_at) FROM shared.schedules WHERE butler = $1),
    (SELECT min(leased_until) FROM shared.occurrences WHERE butler = $1 AND ended_at IS NULL)
) - clock_timestamp())::float8
"""


async def seconds_until_next(connection: Connection, butler: str) -> float | None:
    """Return the seconds until something of this butler is due or a lease runs out; None if nothing is to come."""
    found: float | None = await connection.fetchval(NEXT, butler)
    return found


def schedule_of(row: Record) -> Schedule:
    """Return the schedule that a row holds."""
    return Schedule(
        name=row["name"],
        zone=row["zone"],
        cron=row["cron"],
        at=row["once_at"],
        prompt=row["prompt"],
        tool=row["tool"],
        arguments=row["arguments"] or {},
        catch_up=row["catch_up"],
    )


def _columns(one: Schedule) -> tuple[object, ...]:
    arguments = None if one.tool is None else dict(one.arguments)
    return one.name, one.cron, one.at, one.zone, one.prompt, one.tool, arguments, one.catch_up
