"""The audit's lines about refused attempts: who tried, what refused it, and why.

There is at most one line in five minutes for one caller, one reason and one thing, so that nobody fills the audit by
trying. That limit is a row of shared.request_windows, so all processes keep it together. No line holds a word of a
message.
"""

from dataclasses import dataclass

from shared.db.pool import Connection
from shared.hashing import digest
from shared.storage.notifications import recent_lineage
from shared.storage.pending_actions import Event, record


@dataclass(frozen=True, slots=True)
class Refused:
    """One attempt: which daemon refused it, whose it was, why (one of few sentences), and on what it was tried."""

    by: str
    caller: str
    why: str
    about: str = ""


async def keep(connection: Connection, refused: Refused, new_id: str, **detail: object) -> None:
    """Write the attempt's line in the caller's transaction, unless there is one like it of the last five minutes."""
    kind = digest("refused.v1", refused.by, refused.caller, refused.why, refused.about)
    fresh = f"refused:{new_id}"
    if await recent_lineage(connection, refused.by, kind, fresh) == fresh:
        event = Event("refused", refused.by, reason=refused.why)
        await record(connection, event, caller=refused.caller, **detail)
