"""The end of what lies in the queue past its time: `dead` where it was tried in vain, else `expired`."""

from collections.abc import Sequence

from butlers.butler import Context
from messenger import poison
from messenger.storage import deliveries as store
from messenger.storage import queries, targets, transitions
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import BRIEFLY, Connection, Record, tell
from shared.errors import Unreadable
from shared.loops import apart
from shared.storage import deliveries, notices, notifications, pending_actions, resolutions
from shared.storage.pending_actions import Event, Why
from shared.telemetry.logs import logger
from shared.telemetry.metrics import deliveries_total

log = logger("messenger.delivery.expire")
TOO_LATE = "Expired before it could be sent."


async def bring_late(context: Context, late: Sequence[str]) -> None:
    """Put into the queue, where it ends, what no Switchboard brought in its time; no row keeps the others from it.

    What cannot be read ends at once.
    """
    for notification_id in late:
        with apart(log, "not ended", notification=notification_id):
            async with context.db.work(BRIEFLY) as connection:
                await _bring(connection, notification_id)


async def _bring(connection: Connection, notification_id: str) -> None:
    row = await notifications.locked(connection, notification_id)
    # A Switchboard may have brought it meanwhile, or the owner have given it more time.
    if row is None or row["status"] != "queued" or not row["too_late"]:
        return
    try:
        await store.enqueue(connection, await targets.not_yet_brought(connection, row))
    except Unreadable as unfit:
        await poison.end(connection, notification_id, unfit.message)


async def end_late(connection: Connection) -> int:
    """End some of what is past its time, whenever its next try would have been; return how many."""
    late = await queries.overdue(connection)
    return sum([await end_overdue(connection, notification_id) for notification_id in late])


async def end_overdue(connection: Connection, notification_id: str) -> bool:
    """End the message with its answer and its open action, and return whether this ended it.

    Locks the notification's row.
    """
    await notifications.locked(connection, notification_id)
    row = await transitions.out_of_time(connection, notification_id)
    if row is None:
        return False
    begun = await deliveries.begun(connection, notification_id)
    deliveries_total.labels(channel=row["channel"], state=row["status"], reason="too_late").inc()
    await notifications.settle(connection, notification_id, answer(notification_id, row, begun=begun))
    left = "Part of it may have arrived." if begun else "It was not sent."
    await notices.add_outcome(connection, notification_id, "expired", f"ran out of time. {left}", always=True)
    moved = "failed" if row["status"] == "dead" else "expired"
    await over(connection, notification_id, moved, row["status"], TOO_LATE)
    await tell(connection, "cards")
    return True


def answer(notification_id: str, row: Record, *, begun: bool) -> NotifyResponse:
    """Return the answer, which says how often it was tried and how the last try ended.

    What may have left in part is not to be asked for again, nor what another admitted, which no call begins anew. The
    provider's own words may name our account or its host: they stand in the attempt, for the owner.
    """
    tried = "once" if row["times"] == 1 else f"{row['times']} times"
    if begun:
        times = f" It was tried {tried}." if row["times"] else ""
        return answers.failed(notification_id, "forbidden", f"{TOO_LATE}{times} {answers.EARLIER}")
    if not row["times"]:
        return answers.failed(notification_id, "timeout", f"{TOO_LATE} Not sent.", retryable=row["again"])
    last = resolutions.WHY.get(row["last"], "unknown")
    said = f"Gave up after retrying: tried {tried}, not sent. Last reason: {last}."
    return answers.failed(notification_id, "timeout", said, retryable=row["again"])


async def over(connection: Connection, notification_id: str, moved: str, happened: str, reason: str) -> None:
    """End the open action with its message; add an audit line where there is no action, or where it says less."""
    why = Why("messenger", reason)
    action_id = await pending_actions.move(connection, notification_id, ["approved", "executing"], moved, why)
    if action_id is None or happened == "dead":
        event = Event(happened, "messenger", notification_id=notification_id, reason=reason)
        await pending_actions.record(connection, event)
