"""Where a delivery goes that may not leave: it is parked, refused, delayed, moved, or ended as a duplicate."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from butlers.butler import Context
from messenger.delivery import expire
from messenger.delivery.outcome import Next
from messenger.delivery.settle import HELD, transition
from messenger.storage import cards, queries
from messenger.storage import deliveries as store
from messenger.storage.deliveries import Claimed
from messenger.verdict import Blocked
from shared import answers
from shared.db.pool import Connection, Record, wait_briefly
from shared.gate.admit import tool_args, why_asked
from shared.gate.evaluate import evaluate
from shared.model import Finding
from shared.storage import deliveries, notices, notifications, pending_actions, standing
from shared.storage.contacts import MissingIdentifier
from shared.storage.pending_actions import Event, Parked, Why
from shared.telemetry.metrics import deliveries_total

NOT_SENT: Final = "Not sent."
CHANGED: Final = "Its address or text changed after part of it had been sent."


async def nothing_follows(connection: Connection, claimed: Claimed, *, whole: bool) -> None:
    """End a delivery of which nothing more is to be sent.

    It ends as sent if it is `whole`, else as failed: what would follow no longer belongs to what has left.
    """
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    if whole:
        await transition(connection, claimed, Next("sent", "sent"), ["claimed"])
    elif await store.turn(connection, claimed, HELD, "failed", "half_sent", timedelta()):
        deliveries_total.labels(channel=claimed.channel, state="failed", reason="half_sent").inc()
        notification_id = str(claimed.notification_id)
        answer = answers.failed(notification_id, "forbidden", f"{CHANGED} {answers.EARLIER}")
        await notices.settle_and_tell(connection, notification_id, answer)
        await expire.over(connection, notification_id, "failed", "half_sent", CHANGED)


async def stopped(connection: Connection, claimed: Claimed, why: Blocked, context: Context) -> None:
    """Move what the gate stopped to where the gate says, with its answer."""
    why = await _if_there_is_room(connection, why)
    if why.address and await _elsewhere(connection, claimed, why):
        return
    if why.to == "delayed":
        await _delay(connection, claimed, why, context.settings.timings.braked_again)
        return
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    if why.to == "late":
        await _late(connection, claimed, context.settings.timings.braked_again)
        return
    if not await store.turn(connection, claimed, HELD, why.to, why.findings[0].code, timedelta()):
        return
    if claimed.notification_id is None:
        return
    deliveries_total.labels(channel=claimed.channel, state=why.to, reason=why.findings[0].code).inc()
    if why.to == "parked" and why.row is not None:
        await park(connection, why, why.row, context)
    else:
        await _close(connection, claimed.notification_id, why)


async def _if_there_is_room(connection: Connection, why: Blocked) -> Blocked:
    """Refuse what the owner was to be asked about if the most of who admitted it wait, this one not among them.

    Where a butler's process or the Switchboard queues what no rule allows, the question begins here.
    """
    row = why.row
    if why.to != "parked" or row is None or await pending_actions.open_of(connection, row["id"]) is not None:
        return why
    if not await pending_actions.too_many_wait(connection, row["origin_butler"], row["admitted_by"]):
        return why
    return replace(why, to="refused", findings=(Finding("too_many_wait", pending_actions.TOO_MANY),))


async def _elsewhere(connection: Connection, claimed: Claimed, why: Blocked) -> bool:
    """Deal with a changed address, and return whether nothing else is to be done.

    A message of which a part may have left goes to no other address, whoever approves that; one that only moved follows
    to the new address.
    """
    if claimed.notification_id is not None and await deliveries.begun(connection, claimed.notification_id):
        await nothing_follows(connection, claimed, whole=False)
    elif why.to == "moved":
        to = (why.address, why.kind or claimed.kind, why.realm or claimed.realm)
        if not await store.readdress(connection, claimed, *to):
            await store.turn(connection, claimed, HELD, "cancelled", "there_already", timedelta())
    else:
        return False
    return True


async def _delay(connection: Connection, claimed: Claimed, why: Blocked, again: timedelta) -> None:
    """Put it back in the queue without counting the attempt, and tell the caller that waits why."""
    row = await notifications.locked(connection, str(claimed.notification_id))
    if row is None or not await store.delay(connection, claimed, why.findings[0].code, why.until, again):
        return
    answer = answers.queued(row["id"], answers.BRAKED)
    if row["answer"].get("message") != answer.message:
        await notifications.settle(connection, row["id"], answer)
        event = Event(why.findings[0].code, "messenger", notification_id=row["id"], reason=why.text)
        await pending_actions.record(connection, event)


async def _late(connection: Connection, claimed: Claimed, again: timedelta) -> None:
    """Put it back in the queue without counting the attempt, and end it there at once, since its time is over."""
    if await store.delay(connection, claimed, "too_late", 0.0, again):
        await expire.end_overdue(connection, str(claimed.notification_id))


async def duplicate(connection: Connection, claimed: Claimed, again: timedelta) -> None:
    """End a duplicate, met at the marker by the second fence, with the first one's answer; wait until there is one."""
    notification_id = str(claimed.notification_id)
    judged = await evaluate(connection, notification_id, lock=True)
    if isinstance(judged, MissingIdentifier):
        return
    origin, lineage = judged.row["origin_butler"], judged.row["lineage"]
    first = await queries.same_content(connection, origin, lineage, judged.action.content_sha)
    answer = await standing.status(connection, first) if first else None
    if answer is None or answer.status == "queued":
        await store.turn(connection, claimed, HELD, "queued", "duplicate", again)
    elif await store.turn(connection, claimed, HELD, "cancelled", "duplicate", timedelta()):
        told = {"notification_id": notification_id, "duplicate": True, "note": answers.SAME_WORDS}
        await notifications.settle(connection, notification_id, answer.model_copy(update=told))
        await expire.over(connection, notification_id, "cancelled", "duplicate", f"The same as {first}.")


async def _close(connection: Connection, notification_id: str, why: Blocked) -> None:
    if await deliveries.begun(connection, notification_id):
        answer = answers.failed(notification_id, "forbidden", f"{why.text} {answers.EARLIER}")
    elif why.to in {"refused", "cancelled"}:
        answer = answers.failed(notification_id, "forbidden", why.text)
    else:
        own = why.row is not None and why.row["admitted_by"] == why.row["origin_butler"]
        answer = answers.failed(notification_id, "timeout", f"{why.text} {NOT_SENT}", retryable=own)
    if why.to == "cancelled":  # its butler's own wish, which is answered
        await notifications.settle(connection, notification_id, answer)
    else:
        await notices.settle_and_tell(connection, notification_id, answer)
    ended = "expired" if why.to == "expired" else "cancelled"
    happened = why.findings[0].code if why.to == "cancelled" else why.to
    await expire.over(connection, notification_id, ended, happened, why.text)


async def park(connection: Connection, why: Blocked, row: Record, context: Context) -> None:
    """Ask the owner by the open action as a new revision, or by a new action if there is none: at most one is open."""
    notification_id, envelope = row["id"], notifications.envelope_of(row)
    kept, ttl = tool_args(envelope, row["whom"]), context.settings.approval_ttl
    summary = why_asked(row["origin_butler"], why.findings)
    found = await pending_actions.open_of(connection, notification_id)
    if found is not None:
        action_id = found["id"]
        again = pending_actions.Revision(action_id, found["revision"], why.content_sha or "", kept, ttl, summary)
        await pending_actions.revise(connection, again, Why("messenger", why.text))
        await cards.leave_list(connection, action_id)
    else:
        action_id = context.new_id()
        parked = Parked(action_id, notification_id, row["origin_butler"], kept, why.content_sha, summary)
        # A butler's process may keep the transaction of a question open: no lease runs out while this waits for it.
        await wait_briefly(connection)
        await pending_actions.park(connection, parked, ttl, "messenger")
    missing = answers.missing(notification_id, action_id, envelope.delivery.channel)
    answer = missing if why.missing else answers.waiting(notification_id, action_id)
    await notifications.settle(connection, notification_id, answer)
