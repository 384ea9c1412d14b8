"""Notices: what happened, for the agent of a butler, from the moment it is added until the agent has been shown it.

The only writer of shared.notices. A notice is `queued`, then `shown` in one session with one of its calls, then `done`.
The table itself bounds what comes: of the owner's nothing is left out.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias
from uuid import UUID

from shared.db.pool import Connection
from shared.db.wake import tell
from shared.storage.sessions import storable

TOPIC: Final = "notices"
LONGEST: Final = 4000
LONGEST_KEY: Final = 200
KEPT: Final = timedelta(hours=24)
OWNERS_KEPT: Final = timedelta(days=7)

Trust: TypeAlias = Literal["owner", "internal", "external"]
Priority: TypeAlias = Literal["critical", "high", "normal", "low"]


@dataclass(frozen=True, slots=True)
class Notice:
    """What an agent is to be told: from where (`source`), of what kind, about what (`key`), and whose words they are.

    `wakes` begins a session of the butler where none runs. With an `id` it is added once, however often that is tried.
    """

    source: str
    kind: str
    text: str
    key: str = ""
    trust: Trust = "internal"
    priority: Priority = "normal"
    wakes: bool = False
    # Only this session is shown it.
    session_id: str | None = None
    id: str | None = None


ADD = """
INSERT INTO shared.notices (id, butler, session_id, source, kind, key, text, trust, priority, wakes, expires_at)
VALUES (coalesce($1, gen_random_uuid()), $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::interval)
ON CONFLICT DO NOTHING
"""


async def add(connection: Connection, butler: str, notice: Notice) -> None:
    """Put a notice in the queue of this butler, and wake who shows it; a text that is too long is cut."""
    text = storable(notice.text)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    await connection.execute(
        ADD,
        UUID(notice.id) if notice.id else None,
        butler,
        UUID(notice.session_id) if notice.session_id else None,
        notice.source,
        notice.kind,
        storable(notice.key)[:LONGEST_KEY],
        text.strip() or "(empty)",
        notice.trust,
        notice.priority,
        notice.wakes,
        OWNERS_KEPT if notice.trust == "owner" else KEPT,
    )
    await tell(connection, TOPIC, butler)
