"""Sessions: the runs of runtime instances, each with the request it answers; its row ends it, and its token with it."""

from collections.abc import Mapping
from uuid import UUID

from shared.db.pool import Connection
from shared.errors import InvalidInput

BEGIN = "INSERT INTO shared.sessions (id, butler, request_context) VALUES ($1, $2, $3)"


async def begin(
    connection: Connection, session_id: str, butler: str, request_context: Mapping[str, object] | None
) -> None:
    """Begin a session of this butler, which answers the request of that context, or none."""
    await connection.execute(BEGIN, UUID(session_id), butler, request_context)


END = "UPDATE shared.sessions SET ended_at = clock_timestamp() WHERE id = $1 AND butler = $2 AND ended_at IS NULL"


async def end(connection: Connection, session_id: str, butler: str) -> None:
    """End a session; its token counts no more within five seconds."""
    await connection.execute(END, UUID(session_id), butler)


IS_RUNNING = "SELECT EXISTS (SELECT FROM shared.sessions WHERE id::text = $1 AND butler = $2 AND ended_at IS NULL)"


async def is_running(connection: Connection, butler: str, session_id: str) -> bool:
    """Return whether this butler has a session of that id that goes on."""
    return bool(await connection.fetchval(IS_RUNNING, session_id, butler))


CONTEXT = "SELECT request_context FROM shared.sessions WHERE id = $1 AND butler = $2 AND ended_at IS NULL"


async def context_of(connection: Connection, butler: str, session_id: str) -> Mapping[str, object] | None:
    """Return the request_context the session answers, or None; raise InvalidInput if the session has ended."""
    row = await connection.fetchrow(CONTEXT, UUID(session_id), butler)
    if row is None:
        raise InvalidInput("This session has ended.", "Begin a new one.")
    found: Mapping[str, object] | None = row["request_context"]
    return found


ENQUEUE = """
INSERT INTO shared.sessions (id, butler, cause, prompt, request_context, occurrence_id)
VALUES ($1::text::uuid, $2, $3, $4, $5, $6::text::uuid)
"""


async def enqueue(  # noqa: PLR0913  # what a session is begun with
    connection: Connection,
    *,
    session_id: str,
    butler: str,
    cause: str,
    prompt: str,
    request_context: Mapping[str, object] | None = None,
    occurrence_id: str | None = None,
) -> None:
    """Let a session with this prompt wait for its runtime."""
    await connection.execute(ENQUEUE, session_id, butler, cause, prompt, request_context, occurrence_id)
