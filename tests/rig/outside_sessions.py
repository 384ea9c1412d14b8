"""Sessions that a program outside runs: rows without a prompt, which only a token speaks for."""

from collections.abc import Mapping
from uuid import UUID

from shared.db.pool import Connection

BEGIN = """
INSERT INTO shared.sessions (id, butler, request_context, status, began_at)
VALUES ($1, $2, $3, 'running', clock_timestamp())
"""


async def begin(
    connection: Connection, session_id: str, butler: str, request_context: Mapping[str, object] | None = None
) -> None:
    """Begin a session that answers the request of that context, or none."""
    await connection.execute(BEGIN, UUID(session_id), butler, request_context)


END = """
UPDATE shared.sessions SET status = 'done', ended_at = clock_timestamp()
WHERE id = $1 AND butler = $2 AND status = 'running'
"""


async def end(connection: Connection, session_id: str, butler: str) -> None:
    """End it; its token counts no more within five seconds, and calls no tool from now on."""
    await connection.execute(END, UUID(session_id), butler)
