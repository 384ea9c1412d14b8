"""Writing what became of it: parts, delivery, the stored answer, the pending action, in one transaction.

Lock order as everywhere: notification, delivery, part, pending action, rule, rate row.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from butlers.butler import Ground
from messenger.delivery import expire
from messenger.delivery.outcome import Next
from messenger.storage import attempts, cards, queries, transitions
from messenger.storage import deliveries as store
from messenger.storage.attempts import PartEnd
from messenger.storage.deliveries import Claimed
from messenger.verdict import Blocked
from shared import answers
from shared.contracts import Delivered, ErrorClass, NotifyResponse
from shared.db.pool import Connection, Record, wait_briefly
from shared.db.wake import tell
from shared.gate.admit import tool_args, why_asked
from shared.gate.evaluate import look
from shared.storage import deliveries, notifications, pending_actions, standing
from shared.storage.contacts import MissingIdentifier
from shared.storage.pending_actions import Event, Parked, Why
from shared.telemetry.metrics import deliveries_total

REFUSED: Final = "The provider refused it."
NOBODY_ANSWERED: Final = "Nobody answered in time."
NOT_SENT: Final = "It was not sent."
LOST: Final = Why("messenger", "Whoever was sending it fell silent. It may have arrived.")
ARRIVED: Final = Why("messenger", "It had arrived: there is nothing left to ask.")
KNOWN: Final = Why("messenger", "What became of it is known by now. It goes on.")
CHANGED: Final = "Its address or its words changed after it had begun to leave."
# Out of these a holder's word moves its delivery; of what is uncertain it knows the end.
HELD: Final = ("claimed", "sending", "uncertain")
SETTLES_SOON: Final = timedelta(seconds=5)
UNKNOWN_CLASS: Final[dict[str, ErrorClass]] = {"timeout": "timeout"}


async def part_ended(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """Write one attempt's end and, with the last part or a failure, the delivery's and the answer."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    end = PartEnd(n, then.outcome, then.detail, then.part, then.provider_id)
    ended = await attempts.end_part(connection, claimed, end)
    if ended == "attempt" and then.part == "sent" and claimed.kind != "card":
        await _came_late(connection, claimed, n, then)
    elif ended == "part" and not await _turn(connection, claimed, then, HELD) and then.part == "sent":
        await _known_at_last(connection, claimed, then)


async def _known_at_last(connection: Connection, claimed: Claimed, then: Next) -> None:
    """A receipt ends what was uncertain, or left as it was; the parts after it go on."""
    if then.delivery is None:
        await _turn(connection, claimed, replace(then, delivery="queued"), ["uncertain"])
    elif await _turn(connection, claimed, then, ["abandoned"]):
        await _shown_again(connection, claimed)


async def _came_late(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """A receipt whose part has gone on: it ends what is unknown, and spares a repeat that has not begun."""
    receipt = then.provider_id or ""
    twice = await transitions.late(connection, claimed, n, receipt)
    known = await transitions.evident(connection, claimed, n, receipt)
    if known is not None:
        deliveries_total.labels(channel=claimed.channel, state=known, reason="late_receipt").inc()
    if known == "sent":
        await _answer(connection, replace(claimed, repeated=int(twice)), replace(then, delivery=known))
        await pending_actions.move(connection, str(claimed.notification_id), ["pending"], "cancelled", ARRIVED)
    elif known == "queued":
        await _queued_again(connection, claimed)
    said = f"The receipt of attempt {claimed.attempt} came late: {receipt}."
    event = Event("late_receipt", "messenger", notification_id=claimed.notification_id, reason=said)
    await pending_actions.record(connection, event)
    await _shown_again(connection, claimed)


async def _shown_again(connection: Connection, claimed: Claimed) -> None:
    await cards.show_again(connection, claimed.id, claimed.attempt)
    await tell(connection, "cards")


async def not_prepared(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """The same for an attempt that never came to its marker."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    await attempts.not_sent(connection, claimed, PartEnd(n, then.outcome, then.detail, then.part))
    await _turn(connection, claimed, then, HELD)


async def _turn(connection: Connection, claimed: Claimed, then: Next, come_from: Sequence[str]) -> bool:
    """Whether the delivery went where this says, with its answer; false also where it says nothing."""
    if then.delivery is None:
        return False
    if not await store.turn(connection, claimed, come_from, then.delivery, then.reason, then.after):
        return False
    deliveries_total.labels(channel=claimed.channel, state=then.delivery, reason=then.reason or "").inc()
    if claimed.notification_id is not None and then.delivery == "queued":
        await _queued_again(connection, claimed)
    elif claimed.notification_id is not None:
        await _answer(connection, claimed, then)
    return True


async def _queued_again(connection: Connection, claimed: Claimed) -> None:
    """It waits once more; what was uncertain does so under the authority it had, a repeat by machine in its doubt."""
    notification_id = str(claimed.notification_id)
    found = await standing.status(connection, notification_id)
    by_machine = claimed.kind == "owner" and claimed.repeated > 0
    if found is None or found.status != "uncertain" or by_machine:
        await notifications.accepted_again(connection, notification_id)
        return
    await notifications.settle(connection, notification_id, answers.queued(notification_id))
    await pending_actions.move(connection, notification_id, ["uncertain"], "executing", KNOWN)


async def _answer(connection: Connection, claimed: Claimed, then: Next) -> None:
    notification_id = str(claimed.notification_id)
    answer, action = await _told(connection, claimed, then), then.delivery
    await notifications.settle(connection, notification_id, answer)
    moved = {"sent": "executed", "failed": "failed", "uncertain": "uncertain"}.get(str(action))
    if moved:
        result, come_from = {"status": answer.status}, ["approved", "executing", "uncertain"]
        # The provider's own words may quote the message: they stand in the attempt and the answer, not in the audit.
        reason = REFUSED if then.delivery == "failed" else answer.message or "The provider has it."
        await pending_actions.move(connection, notification_id, come_from, moved, Why("messenger", reason), result)
    if then.delivery == "failed" and not await deliveries.begun(connection, notification_id):
        await pending_actions.give_back(connection, notification_id)
    if then.delivery == "uncertain":
        await tell(connection, "cards")


async def _told(connection: Connection, claimed: Claimed, then: Next) -> NotifyResponse:
    notification_id = str(claimed.notification_id)
    if then.delivery == "sent":
        parts = await attempts.parts(connection, claimed.id)
        row = await notifications.one(connection, notification_id)
        delivered = Delivered(
            channel=claimed.channel,  # type: ignore[arg-type]  # the column holds one of the two
            delivery_id=parts[0]["provider_id"] or then.provider_id or "",
            parts=len(parts) if len(parts) > 1 else None,
            sandbox=True if row is not None and row["realm"] == "sandbox" else None,
        )
        return answers.sent(notification_id, delivered, answers.TWICE if claimed.repeated else None)
    if then.delivery == "uncertain":
        return answers.uncertain(notification_id, UNKNOWN_CLASS.get(then.reason or "", "internal_error"))
    said = answers.refusal(then.detail)
    if await deliveries.begun(connection, notification_id):
        said = f"{said} {answers.EARLIER}"
    return answers.failed(notification_id, "provider_rejected", said)


async def nothing_follows(connection: Connection, claimed: Claimed, *, whole: bool) -> None:
    """What has left leaves nothing to be sent: it is whole, or what would follow belongs to it no more."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    if whole:
        await _turn(connection, claimed, Next("sent", "sent"), ["claimed"])
    elif await store.turn(connection, claimed, ["claimed", "sending"], "failed", "half_sent", timedelta()):
        deliveries_total.labels(channel=claimed.channel, state="failed", reason="half_sent").inc()
        notification_id = str(claimed.notification_id)
        answer = answers.failed(notification_id, "forbidden", f"{CHANGED} {answers.EARLIER}")
        await notifications.settle(connection, notification_id, answer)
        await expire.over(connection, notification_id, "failed", "half_sent", CHANGED)


async def stopped(connection: Connection, claimed: Claimed, why: Blocked, ground: Ground) -> None:
    """What the gate stopped goes where the gate says, with its answer."""
    if why.address and await _elsewhere(connection, claimed, why):
        return
    if why.to == "delayed":
        await _delay(connection, claimed, why)
        return
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    if why.to == "late":
        await _late(connection, claimed)
        return
    if not await store.turn(connection, claimed, ["claimed", "sending"], why.to, why.findings[0].code, timedelta()):
        return
    if claimed.notification_id is None:
        return
    deliveries_total.labels(channel=claimed.channel, state=why.to, reason=why.findings[0].code).inc()
    if why.to == "parked" and why.row is not None:
        await park(connection, why, why.row, ground)
    else:
        await _close(connection, claimed.notification_id, why)


async def _elsewhere(connection: Connection, claimed: Claimed, why: Blocked) -> bool:
    """Whether that was all: half a message goes nowhere else, whoever says yes; what only moved follows."""
    if claimed.notification_id is not None and await deliveries.begun(connection, claimed.notification_id):
        await nothing_follows(connection, claimed, whole=False)
    elif why.to == "moved":
        await store.readdress(connection, claimed, why.address, why.kind or claimed.kind)
    else:
        return False
    return True


async def _delay(connection: Connection, claimed: Claimed, why: Blocked) -> None:
    """Back to the queue without a mark against it; whoever waits is told why."""
    row = await notifications.locked(connection, str(claimed.notification_id))
    if row is None or not await store.delay(connection, claimed, why.findings[0].code, why.until):
        return
    answer = answers.queued(row["id"], answers.BRAKED)
    if row["answer"].get("message") != answer.message:
        await notifications.settle(connection, row["id"], answer)
        event = Event(why.findings[0].code, "messenger", notification_id=row["id"], reason=why.text)
        await pending_actions.record(connection, event)


async def _late(connection: Connection, claimed: Claimed) -> None:
    """Back to the queue without a mark against it, where its time ends it at once."""
    if await store.delay(connection, claimed, "too_late", 0.0):
        await expire.end(connection, str(claimed.notification_id))


async def duplicate(connection: Connection, claimed: Claimed) -> None:
    """The second fence, met at the marker: it ends with the first one's answer, and waits until there is one."""
    notification_id = str(claimed.notification_id)
    judged = await look(connection, notification_id, lock=True)
    if isinstance(judged, MissingIdentifier):
        return
    origin, lineage = judged.row["origin_butler"], judged.row["lineage"]
    first = await queries.same_content(connection, origin, lineage, judged.action.content_sha)
    answer = await standing.status(connection, first) if first else None
    come_from = ["claimed", "sending"]
    if answer is None or answer.status == "queued":
        await store.turn(connection, claimed, come_from, "queued", "duplicate", SETTLES_SOON)
    elif await store.turn(connection, claimed, come_from, "cancelled", "duplicate", timedelta()):
        told = {"notification_id": notification_id, "duplicate": True, "note": answers.SAME_WORDS}
        await notifications.settle(connection, notification_id, answer.model_copy(update=told))
        await expire.over(connection, notification_id, "cancelled", "duplicate", f"The same as {first}.")


async def _close(connection: Connection, notification_id: str, why: Blocked) -> None:
    if await deliveries.begun(connection, notification_id):
        answer = answers.failed(notification_id, "forbidden", f"{why.text} {answers.EARLIER}")
    elif why.to in {"refused", "cancelled"}:
        answer = answers.failed(notification_id, "forbidden", why.text)
    else:
        answer = answers.failed(notification_id, "timeout", f"{why.text} {NOT_SENT}", retryable=True)
    await notifications.settle(connection, notification_id, answer)
    ended = "expired" if why.to == "expired" else "cancelled"
    happened = why.findings[0].code if why.to == "cancelled" else why.to
    await expire.over(connection, notification_id, ended, happened, why.text)


async def park(connection: Connection, why: Blocked, row: Record, ground: Ground) -> None:
    """One open action at most: the one there is asks again as a new revision, or a new one is made."""
    notification_id, envelope = row["id"], notifications.envelope_of(row)
    kept, ttl = tool_args(envelope, row["whom"]), ground.settings.approval_ttl
    summary = why_asked(row["origin_butler"], why.findings)
    found = await pending_actions.open_of(connection, notification_id)
    if found is not None:
        action_id = found["id"]
        again = pending_actions.Revision(action_id, found["revision"], why.content_sha or "", kept, ttl, summary)
        await pending_actions.revise(connection, again, Why("messenger", why.text))
    else:
        action_id = ground.new_id()
        parked = Parked(action_id, notification_id, row["origin_butler"], kept, why.content_sha, summary)
        # A butler's process may hold a question of its own open: no lease runs out while this waits for it.
        await wait_briefly(connection)
        await pending_actions.park(connection, parked, ttl, "messenger")
    missing = answers.missing(notification_id, action_id, envelope.delivery.channel)
    answer = missing if why.missing else answers.waiting(notification_id, action_id)
    await notifications.settle(connection, notification_id, answer)


async def expired(connection: Connection) -> int:
    """Close the questions nobody answered in time; how many there were."""
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


async def reaped(connection: Connection) -> int:
    """Take over what silent holders left behind; how many there were."""
    silent = await queries.silent(connection)
    for row in silent:
        if row["notification_id"] is not None:
            await notifications.locked(connection, row["notification_id"])
    lost = await store.reap(connection, [row["id"] for row in silent]) if silent else []
    for row in lost:
        deliveries_total.labels(channel=row["channel"], state=row["status"], reason="lease_lost").inc()
        if row["status"] == "uncertain" and row["notification_id"] is not None:
            answer = answers.uncertain(row["notification_id"], "internal_error")
            await notifications.settle(connection, row["notification_id"], answer)
            await pending_actions.move(connection, row["notification_id"], ["approved", "executing"], "uncertain", LOST)
    return len(lost)
