"""How a notification stands now: for its own butler, and for the daemons that carry it."""

from uuid import UUID

from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import Connection, Record
from shared.hashing import id_in

STATUS = "SELECT answer, being_sent FROM shared.notification_status WHERE notification_id = $1"
OWN = STATUS + " AND origin_butler = $2"


async def status(connection: Connection, notification_id: str) -> NotifyResponse | None:
    """Return the current answer about one of the caller's own notifications."""
    return _as_it_stands(await connection.fetchrow(STATUS, UUID(notification_id)))


async def own(connection: Connection, notification_id: str, butler: str) -> NotifyResponse | None:
    """Return the current answer about a notification of this butler; None for any other's, and for what is none."""
    return _as_it_stands(await connection.fetchrow(OWN, id_in(notification_id), butler))


def _as_it_stands(row: Record | None) -> NotifyResponse | None:
    """Return the stored answer; past its marker, that it is being sent.

    From then on nobody may promise that it will be delivered.
    """
    if row is None:
        return None
    answer = NotifyResponse.model_validate(row["answer"])
    if row["being_sent"] and answer.status == "queued":
        return answer.model_copy(update={"message": answers.BEING_SENT})
    return answer
