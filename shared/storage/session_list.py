"""Sessions as people, programs and other butlers look at them; `shared/storage/sessions.py` writes them."""

from collections.abc import Sequence
from typing import Final

from shared.contracts import AskedSession
from shared.db.pool import Connection, Record
from shared.errors import Forbidden, InvalidInput

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

LATEST = """
SELECT id::text, butler, cause, left(prompt, 2000) AS prompt, runtime, status, limits, used, steps, created_at,
    began_at, ended_at, left(outcome, 500) AS outcome, told_nobody, stop_asked_at
FROM shared.sessions WHERE ($1::text IS NULL OR butler = $1) ORDER BY ended_at IS NULL DESC, created_at DESC LIMIT $2
"""


async def newest(connection: Connection, butler: str | None, most: int) -> Sequence[Record]:
    """Return sessions, those that have not ended first, then the newest first."""
    return await connection.fetch(LATEST, butler, most)


BEGINS = "SELECT id::text FROM shared.sessions WHERE id::text LIKE $1 || '%' ORDER BY created_at DESC LIMIT 2"


async def id_of(connection: Connection, begins: str) -> str:
    """Return the id that begins so; raise InvalidInput if none does, or more than one."""
    plain = begins and set(begins) <= set("0123456789abcdef-")
    rows = await connection.fetch(BEGINS, begins) if plain else []
    if len(rows) != 1:
        several = "More than one session begins" if rows else "No session begins"
        raise InvalidInput(f"{several} with `{begins[:40]}`.", "`butlers sessions list` shows them.")
    return str(rows[0]["id"])


ONE = """
SELECT id::text, butler, cause, prompt, runtime, status, limits, used, steps, attempt, created_at, began_at, ended_at,
    outcome, said, told_nobody, stop_asked_at, occurrence_id::text FROM shared.sessions WHERE id::text = $1
"""


async def one(connection: Connection, session_id: str) -> Record | None:
    """Return one session with its words, or None."""
    return await connection.fetchrow(ONE, session_id)


def as_object(row: Record) -> dict[str, object]:
    """Return a session as an object for a program, without what only its runner needs."""
    return {name: value for name, value in row.items() if name not in {"attempt", "stop_asked_at"}}


def words_of(row: Record) -> str:
    """Return how a session stands, as a person reads it."""
    if row["ended_at"] is None and row["stop_asked_at"] is not None:
        return "being stopped"
    return f"{STATES[row['status']]}{', told nobody' if row['told_nobody'] else ''}"


ASKED = """
SELECT id::text AS session_id, butler, status, outcome FROM shared.asked_sessions WHERE id::text = $1 AND asked_by = $2
"""


async def asked_session(connection: Connection, asker: str, session_id: str) -> Record | None:
    """Return how a session stands that this butler asked of another, or None if it asked none of that id."""
    return await connection.fetchrow(ASKED, session_id.lower(), asker)


# How many sessions of one butler may wait or run at once, and begin in a day, because one other asked for them.
MOST_ASKED_OPEN: Final = 10
MOST_ASKED_A_DAY: Final = 200
# Of a client, of a schedule or of a program that says so, each question begins a chain of its own.
ASKED_LATELY: Final = """
SELECT count(*) FILTER (WHERE ended_at IS NULL) AS open, count(*) AS in_a_day FROM shared.sessions
WHERE butler = $1 AND asked_by = $2 AND id <> $3 AND created_at > clock_timestamp() - interval '1 day'
"""


async def demand_room(connection: Connection, butler: str, asked: AskedSession) -> None:
    """Raise Forbidden if who asks has asked this butler too often already, in whatever chains."""
    lately = await connection.fetchrow(ASKED_LATELY, butler, asked.asked_by, asked.session_id)
    if lately is not None and (lately["open"] >= MOST_ASKED_OPEN or lately["in_a_day"] >= MOST_ASKED_A_DAY):
        raise Forbidden(
            f"{asked.asked_by} has asked {butler} too often: {MOST_ASKED_OPEN} at once, {MOST_ASKED_A_DAY} in a day.",
            "Wait for the answers.",
        )
