"""The steps of a session: each call of a tool by its token, written where the daemon serves the call.

The only writer of shared.session_steps.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from shared.db.pool import Connection, Record
from shared.hashing import canonical_json, digest, id_in
from shared.storage import sessions

LONGEST: Final = 200

BEGUN = """
INSERT INTO shared.session_steps (session_id, butler, seq, tool, arguments_hash) VALUES ($1, $2, $3, $4, $5)
"""


async def begun(
    connection: Connection, butler: str, session_id: str, tool: str, arguments: Mapping[str, object]
) -> int:
    """Write that the session calls a tool, before it does; return the step's number, or raise Forbidden if it ended."""
    seq = await sessions.count_step(connection, butler, session_id)
    hashed = digest("arguments.v1", canonical_json(dict(arguments)))
    await connection.execute(BEGUN, UUID(session_id), butler, seq, tool[:LONGEST], hashed)
    return seq


ENDED = """
UPDATE shared.session_steps SET status = $4, ended_at = clock_timestamp()
WHERE session_id = $1 AND butler = $2 AND seq = $3
"""


async def ended(connection: Connection, butler: str, session_id: str, seq: int, status: str) -> None:
    """Write how the tool answered."""
    await connection.execute(ENDED, UUID(session_id), butler, seq, status)


OF = """
SELECT seq, tool, arguments_hash, status, began_at, ended_at FROM shared.session_steps
WHERE session_id = $1 ORDER BY seq LIMIT 1000
"""


async def of(connection: Connection, session_id: str) -> Sequence[Record]:
    """Return the steps of a session, in order."""
    return await connection.fetch(OF, id_in(session_id))
