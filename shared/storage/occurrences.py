"""Occurrences: each time of a schedule once, claimed by one process under a lease, and how it went."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from shared.db.pool import Connection
from shared.storage.schedules import Due, Schedule, schedule_of

Status = Literal["done", "failed", "uncertain", "skipped"]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time of a schedule in this process's hands; `begun` says that another process may have carried it out."""

    id: str
    schedule: Schedule
    begun: bool = False


# INVARIANT: a schedule and its time are one row, so whoever comes second gets nothing, whatever it believed. What
# repeats is not made up for once a later time of it has passed: a clock that was behind has written that it is due.
CLAIM = """
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, claimed_by, leased_until)
SELECT id, $2, $3, 'claimed', $4, clock_timestamp() + $5::interval FROM shared.schedules s
WHERE id = $1::text::uuid AND (cron IS NULL OR NOT EXISTS (SELECT FROM shared.occurrences o
    WHERE o.schedule_id = s.id AND o.due_at > $3 AND o.due_at <= clock_timestamp()))
ON CONFLICT (schedule_id, due_at) DO NOTHING RETURNING id::text
"""


async def claim_due(connection: Connection, butler: str, due: Due, holder: str, lease: timedelta) -> Occurrence | None:
    """Claim this time of a schedule; return None if somebody has, or a later one of what repeats."""
    found = await connection.fetchval(CLAIM, due.id, butler, due.due_at, holder, lease)
    return None if found is None else Occurrence(found, due.schedule)


SKIP = """
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, ended_at, outcome)
VALUES ($1::text::uuid, $2, $3, 'skipped', clock_timestamp(), $4) ON CONFLICT (schedule_id, due_at) DO NOTHING
"""


async def skip(connection: Connection, butler: str, due: Due, why: str) -> None:
    """Note that this time of a schedule was let pass."""
    await connection.execute(SKIP, due.id, butler, due.due_at, why)


# By the key alone, and not by a plan that counts on how many rows other butlers have.
TAKE_OVER = """
UPDATE shared.occurrences o SET claimed_by = $2, leased_until = clock_timestamp() + $3::interval
FROM shared.schedules s WHERE o.butler = $1 AND s.butler = $1 AND s.id = o.schedule_id AND o.id = ANY (ARRAY(
    SELECT id FROM shared.occurrences WHERE butler = $1 AND ended_at IS NULL
        AND leased_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + 2 * $3::interval
        AND id <> ALL ($5::text[]::uuid[])
    ORDER BY leased_until LIMIT $4 FOR UPDATE SKIP LOCKED))
RETURNING o.id::text AS occurrence, o.status, s.name, s.zone, s.cron, s.once_at, s.prompt, s.tool, s.arguments,
    s.catch_up
"""


async def take_over(
    connection: Connection, butler: str, holder: str, lease: timedelta, most: int, held: Collection[str]
) -> Sequence[Occurrence]:
    """Claim what a process had in hand that fell silent; what this one has `held` all the time is none of it."""
    rows = await connection.fetch(TAKE_OVER, butler, holder, lease, most, list(held))
    return [Occurrence(row["occurrence"], schedule_of(row), row["status"] == "running") for row in rows]


BEGIN = """
UPDATE shared.occurrences SET status = 'running', leased_until = clock_timestamp() + $3::interval
WHERE id = $1::text::uuid AND claimed_by = $2 AND ended_at IS NULL AND leased_until > clock_timestamp()
RETURNING true
"""


async def start_call(connection: Connection, occurrence_id: str, holder: str, lease: timedelta) -> bool:
    """Note that it is being carried out; return False if it is no longer this holder's, who then must not."""
    return bool(await connection.fetchval(BEGIN, occurrence_id, holder, lease))


RENEW = """
UPDATE shared.occurrences SET leased_until = clock_timestamp() + $3::interval
WHERE id = ANY ($1::text[]::uuid[]) AND claimed_by = $2 AND ended_at IS NULL
"""


async def keep_held(connection: Connection, ids: Sequence[str], holder: str, lease: timedelta) -> None:
    """Keep what this holder has in hand."""
    await connection.execute(RENEW, list(ids), holder, lease)


# A notice that waits and begins no session may never be shown.
FAILURE_IS_TOLD = """
SELECT EXISTS (SELECT FROM shared.notices n WHERE n.butler = s.butler AND n.source = 'schedule' AND n.key = s.name
    AND (n.state <> 'queued' OR (n.wakes AND n.expires_at > clock_timestamp()))
    AND n.created_at > coalesce((SELECT d.ended_at FROM shared.occurrences d WHERE d.schedule_id = s.id
        AND d.due_at < o.due_at AND d.status = 'done' ORDER BY d.due_at DESC LIMIT 1), s.created_at))
FROM shared.occurrences o JOIN shared.schedules s ON s.id = o.schedule_id WHERE o.id = $1::text::uuid
"""


async def failure_is_told(connection: Connection, occurrence_id: str) -> bool:
    """Return whether its butler was told, or is about to be, that this schedule fails since it last went well."""
    return bool(await connection.fetchval(FAILURE_IS_TOLD, occurrence_id))


END = """
UPDATE shared.occurrences SET status = $3, outcome = left($4, 500), ended_at = clock_timestamp()
WHERE id = $1::text::uuid AND claimed_by = $2 AND ended_at IS NULL RETURNING true
"""


async def write_end(connection: Connection, occurrence_id: str, holder: str, status: Status, outcome: str) -> bool:
    """Write how it went; return False if somebody else has taken it over, who will."""
    return bool(await connection.fetchval(END, occurrence_id, holder, status, outcome))
