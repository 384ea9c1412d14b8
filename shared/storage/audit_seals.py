"""The seals as rows: finding what no seal covers yet, adding a seal, and reading all of them for judging.

The only writer of shared.audit_seals. Reading takes no lock that an INSERT into the audit would wait for.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from shared.audit import BEGINNING, Line, Seal, Spans, line_of, text_of
from shared.db.pool import Connection, Record

PAGE: Final = 1000
# Lines of one seal: more than the busiest house writes in a minute. The sealer holds so many in memory, the verifier
# those of a few seals.
MOST: Final = 100_000
# Every column, as one text that no setting of a session changes.
COLUMNS: Final = """seq, to_json(at AT TIME ZONE 'UTC')::text AS at, event_type, action_id::text, rule_id::text,
    notification_id::text, actor, reason, detail::text"""
# What these columns are called, in their order.
LINE: Final = (
    "seq",
    "at",
    "event_type",
    "action_id",
    "rule_id",
    "notification_id",
    "actor",
    "reason",
    "detail",
)
# A Messenger seals each minute: a line that waits so long shows that none does, or that it cannot keep up.
WAITS_AT_MOST: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Last:
    """The end of the chain, and the lines that need no look: those up to `floor`, and those in `recent`."""

    n: int = 0
    hash: bytes = BEGINNING
    due: bool = True
    floor: int = 0
    recent: str = "{}"


# A seal with a time in the future was made by a wrong clock: the next one does not wait for that time.
LAST: Final = """
SELECT n, hash, at <= clock_timestamp() - $1::interval OR at > clock_timestamp() AS due,
    coalesce((SELECT upper(seqs) - 1 FROM shared.audit_seals WHERE n <= s.n - 2
        ORDER BY upper(seqs) DESC LIMIT 1), 0) AS floor,
    (SELECT range_agg(seqs) FROM shared.audit_seals WHERE n > s.n - 2)::text AS recent
FROM shared.audit_seals s ORDER BY n DESC LIMIT 1
"""


async def last(connection: Connection, every: timedelta) -> Last:
    """Return the end of the chain; it is `due` if it is that long ago by the database's clock, or ahead of it."""
    row = await connection.fetchrow(LAST, every)
    return Last(**row) if row else Last()


# The spans of the last two seals are read once, not for each line.
UNSEALED: Final = f"""
SELECT {COLUMNS} FROM shared.approval_events
WHERE seq > $1 AND NOT seq <@ (SELECT $2::text::int8multirange) ORDER BY seq LIMIT $3
"""


async def unsealed(connection: Connection, after: Last, most: int = MOST) -> AsyncIterator[Line]:
    """Yield the first committed lines that no seal covers, in the order of their numbers, a page at a time.

    A line below the reach of all seals but the last two is not looked at: no unit of work of ours lasts so long that it
    could still have come by itself. A line that a butler's login kept open on purpose is never sealed, so that the
    Messenger vouches for nothing that was put in later.
    """
    floor = after.floor
    while most > 0:
        rows = await connection.fetch(UNSEALED, floor, after.recent, min(PAGE, most))
        for row in rows:
            yield line_of(*row)
        if len(rows) < PAGE:
            return
        floor, most = rows[-1]["seq"], most - PAGE


OVERDUE: Final = """
SELECT count(*) AS lines, to_json(min(at) AT TIME ZONE 'UTC') #>> '{}' AS since FROM shared.approval_events
WHERE seq > $1 AND NOT seq <@ (SELECT $2::text::int8multirange) AND at < clock_timestamp() - $3::interval
"""


async def overdue(connection: Connection) -> tuple[int, str | None]:
    """Count the lines that have waited for a seal for more than ten minutes, and return since when.

    Lines that are never to be sealed do not count.
    """
    end = await last(connection, timedelta())
    row = await connection.fetchrow(OVERDUE, end.floor, end.recent, WAITS_AT_MOST)
    return (row["lines"], row["since"]) if row else (0, None)


NOW: Final = "SELECT to_json(clock_timestamp() AT TIME ZONE 'UTC') #>> '{}'"


async def now(connection: Connection) -> str:
    """Return the database's time as a seal has it."""
    return str(await connection.fetchval(NOW))


# Of several Messengers that insert the same number the first wins, and none waits longer than its insert takes.
APPEND: Final = """
INSERT INTO shared.audit_seals (n, seqs, digests, prev, hash, signature, at)
VALUES ($1, $2::text::int8multirange, $3, $4, $5, $6, $7::text::timestamp AT TIME ZONE 'UTC')
ON CONFLICT (n) DO NOTHING RETURNING n
"""


async def append(connection: Connection, seal: Seal) -> bool:
    """Add the seal as the chain's next link; return False if another Messenger was first."""
    made = (seal.n, seal.seqs, seal.digests, seal.prev, seal.hash, seal.signature, seal.at)
    return await connection.fetchval(APPEND, *made) is not None


SEALS: Final = """
SELECT n, seqs::text, digests, prev, to_json(at AT TIME ZONE 'UTC') #>> '{}' AS at, hash, signature
FROM shared.audit_seals WHERE n > $1 ORDER BY n LIMIT 5
"""


async def after(connection: Connection, n: int) -> Sequence[Seal]:
    """Return the next five seals after that one."""
    return [Seal(**row) for row in await connection.fetch(SEALS, n)]


# OFFSET 0: each span is looked up by itself, whatever the statistics say. A flood leaves as many spans as lines.
COVERED: Final = f"""
SELECT s.n, e.* FROM shared.audit_seals s CROSS JOIN LATERAL unnest(s.seqs) AS span CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM shared.approval_events WHERE seq >= lower(span) AND seq < upper(span) OFFSET 0) e
WHERE s.n BETWEEN $1 AND $2 ORDER BY s.n, e.seq
"""


async def covered(connection: Connection, first: int, last: int) -> AsyncIterator[tuple[int, Line]]:
    """Yield the lines that these seals cover and that exist, each with its seal; within a transaction."""
    async for row in connection.cursor(COVERED, first, last, prefetch=PAGE):
        n, *columns = row
        yield n, line_of(*columns)


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A line outside all seals; `own` if the login of its actor, which can use no other name, can have written it."""

    seq: int
    at: str
    actor: str
    own: bool


# The lines outside these spans. `own`: a butler's or the Switchboard's login can have written the line, however late it
# committed: its actor is a login that can use no other name, and its time lies between those of the sealed lines on
# both sides. The database gives number and time, one right after the other, and only a superuser chooses them.
UNCOVERED: Final = """
SELECT e.seq, to_json(e.at AT TIME ZONE 'UTC') #>> '{}' AS at, e.actor,
    e.seq > 0 AND e.actor NOT IN ('messenger', 'console', 'owner')
        AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = e.actor)
        AND (before.seq IS NOT NULL OR coalesce(lower(gap), 1) <= 1) AND after.seq IS NOT NULL
        AND e.at >= coalesce(before.at, e.at) - $2::interval AND e.at <= after.at + $2::interval AS own
FROM unnest(int8multirange(int8range(NULL, NULL)) - $1::text::int8multirange) AS gap
CROSS JOIN LATERAL (SELECT seq, at, actor FROM shared.approval_events
    WHERE seq >= coalesce(lower(gap), -9223372036854775808)
        AND seq <= coalesce(upper(gap) - 1, 9223372036854775807) OFFSET 0) e
LEFT JOIN shared.approval_events before ON before.seq = lower(gap) - 1
LEFT JOIN shared.approval_events after ON after.seq = upper(gap)
ORDER BY e.seq
"""


async def uncovered(connection: Connection, spans: Spans, slack: timedelta) -> AsyncIterator[Uncovered]:
    """Yield the lines outside these spans, each with its time as a seal has it; within a transaction.

    Times that differ by less than `slack` are the same.
    """
    async for row in connection.cursor(UNCOVERED, text_of(spans), slack, prefetch=PAGE):
        yield Uncovered(**row)


EVERY_LINE: Final = f"SELECT {COLUMNS} FROM shared.approval_events ORDER BY seq"


async def every_line(connection: Connection) -> AsyncIterator[Sequence[str | None]]:
    """Yield every line as the texts of its columns, which are what its digest is made of; within a transaction."""
    async for row in connection.cursor(EVERY_LINE, prefetch=PAGE):
        seq, *columns = row
        yield [str(seq), *columns]


LATEST: Final = f"""
SELECT * FROM (SELECT {COLUMNS} FROM shared.approval_events
    WHERE ($1 = '' OR action_id::text LIKE $1 || '%' OR notification_id::text LIKE $1 || '%'
        OR rule_id::text LIKE $1 || '%') AND ($2 = '' OR event_type = $2)
        AND ($4 = '' OR actor = $4) AND seq < coalesce($5::bigint, 9223372036854775807)
    ORDER BY seq DESC LIMIT $3) AS latest ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: about the id that begins so, of that event, by that actor, below that number; empty is any."""

    about: str = ""
    event: str = ""
    actor: str = ""
    before: int | None = None


async def latest_lines(connection: Connection, wanted: Wanted, most: int) -> list[dict[str, str | None]]:
    """Return the latest of these lines, oldest first."""
    args = (_literal(wanted.about.lower()), wanted.event, most, wanted.actor, wanted.before)
    return [_readable(row) for row in await connection.fetch(LATEST, *args)]


def subject_of(line: Mapping[str, str | None]) -> str:
    """Return the id of what a line is about: a question, else its message, else a rule; empty where it names none."""
    return next((found for name in ("action_id", "notification_id", "rule_id") if (found := line[name])), "")


ONE_LINE: Final = f"SELECT {COLUMNS} FROM shared.approval_events WHERE seq = $1"


async def one_line(connection: Connection, seq: int) -> dict[str, str | None] | None:
    """Return one line by its number, or None."""
    row = await connection.fetchrow(ONE_LINE, seq)
    return None if row is None else _readable(row)


def _literal(text: str) -> str:
    """Return the text so that LIKE takes no character of it for a pattern."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _readable(row: Record) -> dict[str, str | None]:
    """Return a line by the names of its columns, its time in UTC as RFC 3339 has it."""
    found = {name: None if value is None else str(value) for name, value in zip(LINE, row, strict=True)}
    return found | {"at": f"{json.loads(str(found['at']))}Z"}
