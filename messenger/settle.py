"""Writing what became of it: parts, delivery, the stored answer, the pending action, in one transaction.

Lock order as everywhere: notification, delivery, part, pending action, rule.
"""

from datetime import timedelta
from typing import Final

from butlers.butler import Ground
from butlers.gate import tool_args
from butlers.judge import look
from messenger import store, views
from messenger.check import Stopped
from messenger.outcome import Next
from messenger.store import Claimed, PartEnd
from shared import answers, approvals, notifications
from shared.approvals import Event, Parked
from shared.contracts import Delivered, ErrorClass, NotifyEnvelope, NotifyResponse
from shared.db import Connection, Record
from shared.identity import MissingIdentifier
from shared.telemetry import deliveries_total

NOBODY_ANSWERED: Final = "Nobody answered in time. It was not sent."
SETTLES_SOON: Final = timedelta(seconds=5)
UNKNOWN_CLASS: Final[dict[str, ErrorClass]] = {"timeout": "timeout"}


async def part_ended(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """Write one attempt's end and, with the last part or a failure, the delivery's and the answer."""
    if claimed.notification_id is not None and then.delivery is not None:
        await notifications.locked(connection, claimed.notification_id)
    end = PartEnd(n, then.outcome, then.detail, then.part, then.provider_id)
    if not await store.end_part(connection, claimed, end) or then.delivery is None:
        return
    await _turn(connection, claimed, then)


async def not_prepared(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """The same for an attempt that never came to its marker."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    await store.not_sent(connection, claimed, PartEnd(n, then.outcome, then.detail, then.part))
    await _turn(connection, claimed, then)


async def _turn(connection: Connection, claimed: Claimed, then: Next) -> None:
    if then.delivery is None:
        return
    come_from = ["claimed", "sending", "uncertain"]
    if not await store.turn(connection, claimed, come_from, then.delivery, then.reason, then.after):
        return
    deliveries_total.labels(channel=claimed.channel, state=then.delivery, reason=then.reason or "").inc()
    if claimed.notification_id is not None and then.delivery == "queued":
        await notifications.accepted_again(connection, claimed.notification_id)
    elif claimed.notification_id is not None:
        await _answer(connection, claimed, then)


async def _answer(connection: Connection, claimed: Claimed, then: Next) -> None:
    notification_id = str(claimed.notification_id)
    answer, action = await _told(connection, claimed, then), then.delivery
    await notifications.settle(connection, notification_id, answer)
    moved = {"sent": "executed", "failed": "failed", "uncertain": "uncertain"}.get(str(action))
    if moved:
        result = {"status": answer.status}
        await approvals.move(connection, notification_id, ["approved", "executing", "uncertain"], moved, result)
    if then.delivery == "failed":
        parts = await store.parts(connection, claimed.id)
        if not any(row["status"] == "sent" for row in parts):
            await approvals.give_back(connection, notification_id)


async def _told(connection: Connection, claimed: Claimed, then: Next) -> NotifyResponse:
    notification_id = str(claimed.notification_id)
    if then.delivery == "sent":
        parts = await store.parts(connection, claimed.id)
        row = await notifications.one(connection, notification_id)
        delivered = Delivered(
            channel=claimed.channel,  # type: ignore[arg-type]  # the column holds one of the two
            delivery_id=parts[0]["provider_id"] or then.provider_id or "",
            parts=len(parts) if len(parts) > 1 else None,
            sandbox=True if row is not None and row["realm"] == "sandbox" else None,
        )
        return answers.sent(notification_id, delivered)
    if then.delivery == "uncertain":
        return answers.uncertain(notification_id, UNKNOWN_CLASS.get(then.reason or "", "internal_error"))
    return answers.failed(notification_id, "provider_rejected", f"The provider refused it: {then.detail}")


async def stopped(connection: Connection, claimed: Claimed, why: Stopped, ground: Ground) -> None:
    """What the gate stopped goes where the gate says, with its answer."""
    if why.to == "moved":
        await store.readdress(connection, claimed, why.address)
        return
    if why.to == "delayed":
        await _delay(connection, claimed, why)
        return
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    come_from, nothing = ["claimed", "sending"], timedelta()
    if not await store.turn(connection, claimed, come_from, why.to, why.findings[0].code, nothing):
        return
    if claimed.notification_id is None:
        return
    deliveries_total.labels(channel=claimed.channel, state=why.to, reason=why.findings[0].code).inc()
    if why.to == "parked" and why.row is not None:
        await park(connection, why, why.row, ground)
    else:
        await _close(connection, claimed.notification_id, why)


async def _delay(connection: Connection, claimed: Claimed, why: Stopped) -> None:
    """Back to the queue without a mark against it; whoever waits is told why."""
    row = await notifications.locked(connection, str(claimed.notification_id))
    if row is None or not await store.delay(connection, claimed, why.findings[0].code, why.until):
        return
    answer = answers.queued(row["id"], answers.BRAKED)
    if row["answer"].get("message") != answer.message:
        await notifications.settle(connection, row["id"], answer)
        event = Event(why.findings[0].code, "messenger", notification_id=row["id"], reason=why.text)
        await approvals.record(connection, event)


async def duplicate(connection: Connection, claimed: Claimed) -> None:
    """The second fence, met at the marker: it ends with the first one's answer, and waits until there is one."""
    notification_id = str(claimed.notification_id)
    judged = await look(connection, notification_id, lock=True)
    if isinstance(judged, MissingIdentifier):
        return
    origin, lineage = judged.row["origin_butler"], judged.row["lineage"]
    first = await views.same_content(connection, origin, lineage, judged.action.content_sha)
    answer = await notifications.status(connection, first) if first else None
    come_from = ["claimed", "sending"]
    if answer is None or answer.status == "queued":
        await store.turn(connection, claimed, come_from, "queued", "duplicate", SETTLES_SOON)
    elif await store.turn(connection, claimed, come_from, "cancelled", "duplicate", timedelta()):
        told = {"notification_id": notification_id, "duplicate": True, "note": answers.SAME_WORDS}
        await notifications.settle(connection, notification_id, answer.model_copy(update=told))
        await approvals.move(connection, notification_id, ["approved", "executing"], "cancelled")
        event = Event("duplicate", "messenger", notification_id=notification_id, reason=f"The same as {first}.")
        await approvals.record(connection, event)


async def _close(connection: Connection, notification_id: str, why: Stopped) -> None:
    if why.to in {"refused", "cancelled"}:
        answer = answers.failed(notification_id, "forbidden", why.text)
    else:
        answer = answers.failed(notification_id, "timeout", f"{why.text} It was not sent.", retryable=True)
    await notifications.settle(connection, notification_id, answer)
    ended = "expired" if why.to == "expired" else "cancelled"
    await approvals.move(connection, notification_id, ["approved", "executing"], ended)
    happened = why.findings[0].code if why.to == "cancelled" else why.to
    event = Event(happened, "messenger", notification_id=notification_id, reason=why.text)
    await approvals.record(connection, event)


async def park(connection: Connection, why: Stopped, row: Record, ground: Ground) -> None:
    """One open action at most: the one there is asks again as a new revision, or a new one is made."""
    notification_id, envelope = row["id"], NotifyEnvelope.model_validate(row["envelope"])
    kept, ttl = tool_args(envelope, row["whom"]), ground.settings.approval_ttl
    found = await approvals.open_of(connection, notification_id)
    if found is not None:
        action_id = found["id"]
        again = approvals.Revision(action_id, found["revision"], why.content_sha or "", kept, ttl)
        await approvals.revise(connection, again)
    else:
        action_id = ground.new_id()
        summary = f"{row['origin_butler']} wants to send this. {why.text}"
        parked = Parked(action_id, notification_id, row["origin_butler"], kept, why.content_sha, summary)
        await approvals.park(connection, parked, ttl)
    missing = answers.missing(notification_id, action_id, envelope.delivery.channel)
    answer = missing if why.missing else answers.waiting(notification_id, action_id)
    await notifications.settle(connection, notification_id, answer)
    event = Event("parked", "messenger", action_id, None, notification_id, why.text)
    await approvals.record(connection, event)


async def expired(connection: Connection) -> int:
    """Close the questions nobody answered in time; how many there were. Nothing of them was sent."""
    closed = 0
    for row in await approvals.unanswered(connection):
        await notifications.locked(connection, row["notification_id"])
        if not await approvals.expire(connection, row["id"]):
            continue
        closed += 1
        answer = answers.failed(row["notification_id"], "timeout", NOBODY_ANSWERED, retryable=False)
        await notifications.settle(connection, row["notification_id"], answer)
        event = Event("expired", "messenger", row["id"], None, row["notification_id"], NOBODY_ANSWERED)
        await approvals.record(connection, event)
    return closed


async def reaped(connection: Connection) -> int:
    """Take over what silent holders left behind; how many there were."""
    silent = await views.silent(connection)
    for row in silent:
        if row["notification_id"] is not None:
            await notifications.locked(connection, row["notification_id"])
    lost = await store.reap(connection, [row["id"] for row in silent]) if silent else []
    for row in lost:
        if row["status"] == "uncertain" and row["notification_id"] is not None:
            answer = answers.uncertain(row["notification_id"], "internal_error")
            await notifications.settle(connection, row["notification_id"], answer)
            await approvals.move(connection, row["notification_id"], ["approved", "executing"], "uncertain")
    return len(lost)
