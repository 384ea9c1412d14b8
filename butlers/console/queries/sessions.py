"""What the page of a butler shows: its schedules and sessions, by SELECT only; hidden characters are written out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from butlers.console.labels import ago, count, excerpt, mapping, moment
from shared.db.pool import Connection, Record
from shared.display.schedule import what_it_does
from shared.display.visible import in_line, visible
from shared.storage import schedules, session_list, session_steps

MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Call:
    """One tool that a session called, and how that was answered."""

    tool: str
    status: str


@dataclass(frozen=True, slots=True)
class Run:
    """One session; the calls and words are shown of those that have not ended, and of the newest."""

    id: str
    status: str
    words: str
    cause: str
    prompt: str
    outcome: str
    used: str
    when: str
    can_stop: bool
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """One schedule: what it does, when it is due, next and as the file or the butler said it, and how it went last."""

    name: str
    what: str
    due: str
    next: str
    last: str
    # The name by which the owner may remove it, which the butler set itself; "" for the file's.
    own: str


KNOWN: Final = """
SELECT EXISTS (SELECT FROM switchboard.butlers WHERE name = $1 AND kind = 'butler')
    OR EXISTS (SELECT FROM shared.sessions WHERE butler = $1)
"""


async def is_known(connection: Connection, name: str) -> bool:
    """Return whether there is a butler of that name, or was one that had sessions."""
    return bool(await connection.fetchval(KNOWN, name))


async def runs(connection: Connection, name: str) -> tuple[Run, ...]:
    """Return the butler's last sessions: what runs and waits first, then the newest."""
    now = await connection.fetchval("SELECT clock_timestamp()")
    rows = await session_list.newest(connection, name, MOST)
    steps = {row["id"]: await session_steps.of(connection, row["id"]) for row in rows[:5]}
    ages = [(now - (row["ended_at"] or row["began_at"] or row["created_at"])).total_seconds() for row in rows]
    return tuple(_run(row, age, steps.get(row["id"], ())) for row, age in zip(rows, ages, strict=True))


async def timed(connection: Connection, name: str) -> tuple[Timed, ...]:
    """Return the butler's schedules; what is due first comes first."""
    return tuple(map(_timed, (await schedules.of(connection, name))[:MOST]))


def _timed(row: Record) -> Timed:
    last = f"{moment(row['last_due_at'])}: {row['last_status']}" if row["last_due_at"] else ""
    return Timed(
        in_line(row["name"]),
        excerpt(what_it_does(row["prompt"], row["tool"], row["arguments"])),
        f"{in_line(row['cron'])} in {row['zone']}" if row["cron"] else "once",
        moment(row["next_due_at"]) or "never again",
        f"{last} {visible(row['last_outcome'] or '')}".strip(),
        row["name"] if row["source"] == "tool" else "",
    )


def _run(row: Record, age: float, steps: Sequence[Record]) -> Run:
    is_open = row["ended_at"] is None
    return Run(
        row["id"],
        row["status"],
        session_list.words_of(row),
        in_line(row["cause"]),
        excerpt(row["prompt"] or ""),
        visible(row["outcome"] or ""),
        _used(mapping(row["used"]), row["steps"]),
        ago(age),
        is_open and row["stop_asked_at"] is None,
        tuple(Call(in_line(step["tool"]), in_line(step["status"])) for step in steps),
    )


def _used(used: Mapping[str, object], steps: int) -> str:
    """Return what a session used, as a phrase; what its butler wrote there and is no number is left out."""
    told = [count(steps, "call", "calls")]
    tokens, dollars = used.get("tokens"), used.get("dollars")
    if isinstance(tokens, int) and tokens:
        told.append(count(tokens, "token", "tokens"))
    if isinstance(dollars, int | float) and dollars:
        told.append(f"${dollars:.2f}")
    return ", ".join(told)
