"""The closing of questions that nobody answered in time."""

from typing import Final

from messenger.delivery.stop import NOT_SENT
from shared import answers
from shared.db.pool import Connection
from shared.storage import deliveries, notifications, pending_actions
from shared.storage.pending_actions import Why

NOBODY_ANSWERED: Final = "Nobody answered in time."


async def close_unanswered(connection: Connection) -> int:
    """Close the questions that nobody answered in time; return how many there were."""
    closed = 0
    for row in await pending_actions.unanswered(connection):
        told = row["notification_id"]
        held = await notifications.locked(connection, told) if told is not None else None
        if not await pending_actions.expire(connection, row["id"], Why("messenger", NOBODY_ANSWERED)):
            continue
        closed += 1
        if held is not None and held["status"] in answers.ASKED:
            begun = await deliveries.begun(connection, told)
            said = f"{NOBODY_ANSWERED} {answers.EARLIER if begun else NOT_SENT}"
            answer = answers.failed(told, "forbidden" if begun else "timeout", said, retryable=False)
            await notifications.settle(connection, told, answer)
    return closed
