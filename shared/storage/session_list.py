"""Sessions as people, programs and other butlers look at them; `shared/storage/sessions.py` writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from shared.contracts import MOST_DEPTH, AskedSession, Asking
from shared.db.pool import Connection, Record
from shared.errors import Forbidden, InvalidInput
from shared.hashing import digest, id_in, that_begin
from shared.storage.keyring import COUNTS
from shared.storage.notifications import take_turn

# What a person reads of a status.
STATES: Final = {
    "waiting": "waiting",
    "running": "running",
    "done": "done",
    "failed": "failed",
    "stopped": "stopped",
    "limit": "ended at a limit",
    "lost": "lost",
}

# The cause of a session that is asked which butler takes a message. It calls no tool.
CLASSIFY: Final = "classify"
CLASSIFIED = """
SELECT status, coalesce(outcome, '') AS words,
    coalesce(ended_at, clock_timestamp()) NOT BETWEEN created_at AND created_at + $3::interval AS is_late
FROM shared.sessions WHERE id = $1 AND butler = $2 AND cause = 'classify'
"""


async def classification(connection: Connection, session_id: str, butler: str, within: timedelta) -> Record | None:
    """Return how the session of this classifier stands: status, its last words, and whether these are too late."""
    return await connection.fetchrow(CLASSIFIED, UUID(session_id), butler, within)


@dataclass(frozen=True, slots=True)
class About:
    """What a session answers, and what of a schedule it is: the lineage of all it sends."""

    request_context: Mapping[str, object] | None
    occurrence_id: str | None


ABOUT = """
SELECT request_context, occurrence_id::text
FROM shared.sessions WHERE id = $1 AND butler = $2 AND status = 'running'
"""


async def about(connection: Connection, butler: str, session_id: str) -> About:
    """Return what the session is about; raise InvalidInput if it has ended."""
    row = await connection.fetchrow(ABOUT, UUID(session_id), butler)
    if row is None:
        raise InvalidInput("This session has ended.", "Begin a new one.")
    return About(**row)


LATEST = """
SELECT id::text, butler, cause, left(prompt, 2000) AS prompt, runtime, status, limits, used, steps, created_at,
    began_at, ended_at, left(outcome, 500) AS outcome, told_nobody, stop_asked_at
FROM shared.sessions WHERE ($1::text IS NULL OR butler = $1) AND ($3::text IS NULL OR id::text = $3)
ORDER BY ended_at IS NULL DESC, created_at DESC LIMIT $2
"""


async def newest(connection: Connection, butler: str | None, most: int, only: str | None = None) -> Sequence[Record]:
    """Return sessions, those that have not ended first, then the newest first; of one id alone, if one is given."""
    return await connection.fetch(LATEST, butler, most, only)


BEGINS = "SELECT id::text FROM shared.sessions s WHERE id BETWEEN $1 AND $2 ORDER BY s.id LIMIT 2"


async def id_of(connection: Connection, begins: str) -> str:
    """Return the id that begins so; raise InvalidInput if none does, or more than one."""
    between = that_begin(begins)
    rows = [] if between is None else await connection.fetch(BEGINS, *between)
    if len(rows) != 1:
        several = "More than one session begins" if rows else "No session begins"
        raise InvalidInput(f"{several} with `{begins[:40]}`.", "`butlers sessions list` shows them.")
    return str(rows[0]["id"])


ONE = """
SELECT id::text, butler, cause, prompt, runtime, status, limits, used, steps, attempt, created_at, began_at, ended_at,
    outcome, said, told_nobody, stop_asked_at, occurrence_id::text FROM shared.sessions WHERE id = $1
"""


async def one(connection: Connection, session_id: str) -> Record | None:
    """Return one session with its words, or None."""
    return await connection.fetchrow(ONE, id_in(session_id))


def as_object(row: Record) -> dict[str, object]:
    """Return a session as an object for a program, without what only its runner needs."""
    return {name: value for name, value in row.items() if name not in {"attempt", "stop_asked_at"}}


def words_of(row: Record) -> str:
    """Return how a session stands, as a person reads it."""
    if row["ended_at"] is None and row["stop_asked_at"] is not None:
        return "being stopped"
    return f"{STATES[row['status']]}{', told nobody' if row['told_nobody'] else ''}"


# The owner's words, by themselves or about a conversation of somebody else's. No butler can write them into a row.
OWN: Final = "own"
REPLY: Final = "reply"
# Whether the owner, by words of their own matter, or a schedule of the owner's file began a session.
BY_OWNER: Final = """
(cause = 'ask' OR (owners_words = 'own') IS TRUE OR EXISTS (SELECT FROM shared.schedules c
        WHERE c.butler = sessions.butler AND 'schedule:' || c.name = sessions.cause AND c.source = 'file'))
"""
# Whether somebody else, or an agent for itself, began a session: such ones leave the owner half of a day's dollars.
BY_OTHERS: Final = f"NOT (cause IN ('classify', 'notice') OR owners_words IS NOT NULL OR {BY_OWNER})"
# What a session was asked, on one line, so that whoever wrote it adds no line and no end of the quotation.
WAS_ASKED: Final = r"""
' It was asked: “' || translate(regexp_replace(left(prompt, 200), '\s+', ' ', 'g'), '“”', '''''') || '”'
"""
# A tool that has answered anything but an error has told somebody, or asked the owner to.
TELLS: Final = "t.tool IN ('notify', 'ask_user', 'desk_notify') AND t.status NOT IN ('running', 'error')"
IS_BY_OWNER = f"SELECT EXISTS (SELECT FROM shared.sessions WHERE id = $1 AND butler = $2 AND {BY_OWNER})"


async def is_by_owner(connection: Connection, session_id: str, butler: str) -> bool:
    """Return whether this session of this butler works for the owner: the owner or the butler's own file began it."""
    return bool(await connection.fetchval(IS_BY_OWNER, id_in(session_id), butler))


IS_RUNNING = "SELECT EXISTS (SELECT FROM shared.sessions WHERE id = $1 AND butler = $2 AND status = 'running')"


async def is_running(connection: Connection, butler: str, session_id: str) -> bool:
    """Return whether this butler has a session of that id that runs."""
    return bool(await connection.fetchval(IS_RUNNING, id_in(session_id), butler))


ASKED = """
SELECT id::text AS session_id, butler, status, outcome FROM shared.asked_sessions WHERE id = $1 AND asked_by = $2
"""


async def asked_session(connection: Connection, asker: str, session_id: str) -> Record | None:
    """Return how a session stands that this butler asked of another, or None if it asked none of that id."""
    return await connection.fetchrow(ASKED, id_in(session_id), asker)


REMOVED: Final = "The butler's folder was removed."
# Where another process still serves a butler of that name, the folder is only elsewhere.
LEFT: Final = """
SELECT DISTINCT butler FROM shared.sessions s
WHERE butler <> ALL ($1::text[]) AND prompt IS NOT NULL AND ended_at IS NULL
    AND (status = 'waiting' OR lease_until < clock_timestamp())
    AND NOT EXISTS (SELECT FROM switchboard.butlers b WHERE b.name = s.butler AND b.status <> 'gone'
        AND b.last_seen_at > clock_timestamp() - $2::interval)
ORDER BY butler
"""


async def left(connection: Connection, there: Sequence[str], silent: timedelta) -> Sequence[str]:
    """Return for which butlers that are not there any more sessions wait."""
    return [row["butler"] for row in await connection.fetch(LEFT, there, silent)]


WAITS = """
SELECT EXISTS (SELECT FROM shared.sessions
    WHERE butler = $1 AND cause = $2 AND status = 'waiting' AND ended_at IS NULL)
"""


async def waits(connection: Connection, butler: str, cause: str) -> bool:
    """Return whether a session of this butler waits that began for this cause."""
    return bool(await connection.fetchval(WAITS, butler, cause))


SOMEBODY_THINKS = (
    f"SELECT EXISTS (SELECT FROM switchboard.butlers b WHERE kind = 'butler' AND has_runtime AND {COUNTS})"
)


async def somebody_thinks(connection: Connection) -> bool:
    """Return whether any butler has a runtime, so that what is written to it can begin a session."""
    return bool(await connection.fetchval(SOMEBODY_THINKS))


# By a view, since the Switchboard sees nothing else of another's session.
IN_WHICH = "SELECT occurrence_id, chain, depth FROM shared.session_chains WHERE id = $1 AND butler = $2"


async def next_in_chain(connection: Connection, asker: str, asking: Asking) -> AskedSession:
    """Return the session that this butler asks for, in the chain of its own that asks, or at the beginning of one.

    Raises InvalidInput if that one does not run, and Forbidden where its chain is too deep.
    """
    if asking.asked_in is None:
        return AskedSession(session_id=asking.session_id, asked_by=asker, chain=asking.session_id, depth=1)
    row = await connection.fetchrow(IN_WHICH, asking.asked_in, asker)
    if row is None:
        raise InvalidInput("This session has ended.", "Begin a new one.")
    if row["depth"] >= MOST_DEPTH:
        raise Forbidden(
            "Butlers have passed this on too often already, so it cannot be asked of another one.",
            "End with what you know.",
        )
    return AskedSession(
        session_id=asking.session_id,
        asked_by=asker,
        chain=row["chain"] or asking.asked_in,
        depth=row["depth"] + 1,
        occurrence_id=row["occurrence_id"],
    )


# How many sessions of one butler may wait or run at once, and begin in a day, because one other asked for them.
MOST_ASKED_OPEN: Final = 10
MOST_ASKED_A_DAY: Final = 200
# Of a client, of a schedule or of a program that says so, each question begins a chain of its own.
ASKED_LATELY: Final = """
SELECT count(*) FILTER (WHERE ended_at IS NULL) AS open, count(*) AS in_a_day FROM shared.sessions
WHERE butler = $1 AND asked_by = $2 AND id <> $3 AND created_at > clock_timestamp() - interval '1 day'
"""


async def demand_room(connection: Connection, butler: str, asked: AskedSession) -> None:
    """Raise Forbidden if who asks has asked this butler too often already, in whatever chains.

    Prompts of one asker are counted one after the other, until the caller's transaction ends.
    """
    await take_turn(connection, butler, digest("asked.v1", asked.asked_by), str(asked.session_id))
    lately = await connection.fetchrow(ASKED_LATELY, butler, asked.asked_by, asked.session_id)
    if lately is not None and (lately["open"] >= MOST_ASKED_OPEN or lately["in_a_day"] >= MOST_ASKED_A_DAY):
        raise Forbidden(
            f"{asked.asked_by} has asked {butler} too often: {MOST_ASKED_OPEN} at once, {MOST_ASKED_A_DAY} in a day.",
            "Wait for the answers.",
        )
