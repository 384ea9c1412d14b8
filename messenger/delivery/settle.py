"""Stage 10, settle: one transaction writes what became of parts, delivery, stored answer and pending action.

Lock order as everywhere: notification, delivery, part, pending action, rule, rate row.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from butlers.butler import Context
from messenger.channels.base import Receipt, SendFailed
from messenger.delivery.outcome import Ended, Next, after
from messenger.retry import asked_for, backoff, until_written
from messenger.storage import attempts, breakers, cards, rate_limits, transitions
from messenger.storage import deliveries as store
from messenger.storage.attempts import PartEnd
from messenger.storage.deliveries import Claimed, Turned
from shared import answers
from shared.config.timings import Timings
from shared.contracts import ErrorClass, NotifyResponse
from shared.db.pool import Connection, tell
from shared.errors import ButlersError, Unavailable
from shared.storage import deliveries, notices, notifications, pending_actions, standing
from shared.storage.pending_actions import Event, Why
from shared.telemetry.logs import logger
from shared.telemetry.metrics import deliveries_total

log = logger("messenger.delivery.settle")

REFUSED: Final = "The provider rejected it."
ARRIVED: Final = Why("messenger", "It had already arrived.")
KNOWN: Final = Why("messenger", "Its outcome is now known.")
# The states out of which a holder moves its delivery.
HELD: Final = ("claimed", "sending")
# What its butler is told, where its call cannot have been answered with it.
NEWS: Final[dict[str | None, str]] = {
    "sent": "was sent.",
    "failed": "was not sent: the provider rejected it.",
    "uncertain": "may have arrived; nobody knows. Do not send it again.",
}
UNKNOWN_CLASS: Final[dict[str, ErrorClass]] = {"timeout": "timeout"}


@dataclass(frozen=True, slots=True)
class Moved:
    """A delivery that has moved on, and the answer that is stored with that, if one is."""

    answer: NotifyResponse | None = None


async def part_ended(connection: Connection, claimed: Claimed, n: int, then: Next) -> NotifyResponse | None:
    """Write the end of one attempt and, with the last part or a failure, the delivery's end and its answer.

    Return that answer, if this is the end as it was to be expected.
    """
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    end = PartEnd(n, then.outcome, then.detail, then.part, then.provider_id)
    ended = await attempts.end_part(connection, claimed, end)
    if ended == "attempt" and then.part == "sent" and claimed.kind != "card":
        await _came_late(connection, claimed, n, then)
    if ended != "part":
        return None
    moved = await transition(connection, claimed, then, HELD)
    if moved is None:
        moved = await transition(connection, claimed, then, ["uncertain"])
        if moved is not None:
            await tell(connection, "cards")
    if moved is None and then.part == "sent":
        await _known_at_last(connection, claimed, then)
    return moved.answer if moved is not None else None


async def _known_at_last(connection: Connection, claimed: Claimed, then: Next) -> None:
    """Let a receipt end what was uncertain or abandoned.

    Where parts follow, an uncertain delivery is queued so that they go on.
    """
    if then.delivery is None:
        await transition(connection, claimed, replace(then, delivery="queued"), ["uncertain"])
    elif await transition(connection, claimed, then, ["abandoned"]) is not None:
        await _shown_again(connection, claimed)


async def _came_late(connection: Connection, claimed: Claimed, n: int, then: Next) -> None:
    """Use a receipt whose part has gone on: it ends what is unknown, and stops a repeat that has not begun."""
    receipt = then.provider_id or ""
    twice = await transitions.late(connection, claimed, n, receipt)
    known = await transitions.evident(connection, claimed, n, receipt)
    if known is not None:
        deliveries_total.labels(channel=claimed.channel, state=known, reason="late_receipt").inc()
    if known == "sent":
        parts = await attempts.parts(connection, claimed.id)
        turned = Turned(len(parts), parts[0]["provider_id"])
        await _answer(connection, replace(claimed, repeated=int(twice)), replace(then, delivery=known), turned)
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
    """Write the end of an attempt that never came to its marker, and move its delivery on."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    await attempts.not_sent(connection, claimed, PartEnd(n, then.outcome, then.detail, then.part))
    await transition(connection, claimed, then, HELD)


async def transition(connection: Connection, claimed: Claimed, then: Next, come_from: Sequence[str]) -> Moved | None:
    """Move the delivery as `then` says, with its answer; return None if it did not move, or if that says nothing."""
    if then.delivery is None:
        return None
    turned = await store.turn(connection, claimed, come_from, then.delivery, then.reason, then.after)
    if turned is None:
        return None
    deliveries_total.labels(channel=claimed.channel, state=then.delivery, reason=then.reason or "").inc()
    if claimed.notification_id is not None and then.delivery == "queued":
        await _queued_again(connection, claimed)
    elif claimed.notification_id is not None:
        return Moved(await _answer(connection, claimed, then, turned))
    return Moved()


async def _queued_again(connection: Connection, claimed: Claimed) -> None:
    """Let the notification wait once more.

    What was uncertain waits under the authority it had; a message to the owner that is repeated by machine stays
    uncertain.
    """
    notification_id = str(claimed.notification_id)
    found = await standing.status(connection, notification_id)
    by_machine = claimed.kind == "owner" and claimed.repeated > 0
    if found is None or found.status != "uncertain" or by_machine:
        await notifications.accepted_again(connection, notification_id)
        return
    await notifications.settle(connection, notification_id, answers.queued(notification_id))
    await pending_actions.move(connection, notification_id, ["uncertain"], "executing", KNOWN)


async def _answer(connection: Connection, claimed: Claimed, then: Next, turned: Turned) -> NotifyResponse:
    notification_id = str(claimed.notification_id)
    answer, action = await _told(connection, claimed, then, turned), then.delivery
    stored = await notifications.settle(connection, notification_id, answer)
    if action in NEWS and (stored.asked or stored.age > notices.HEARD_SECONDS):
        await notices.add_outcome(connection, notification_id, str(action), NEWS[action])
    moved = {"sent": "executed", "failed": "failed", "uncertain": "uncertain"}.get(str(action))
    asked = None
    if moved and stored.asked:
        result, come_from = {"status": answer.status}, ["approved", "executing", "uncertain"]
        # The provider's own words may quote the message: they stand in the attempt and the answer, not in the audit.
        reason = REFUSED if then.delivery == "failed" else answer.message or "The provider has it."
        why = Why("messenger", reason)
        asked = await pending_actions.move(connection, notification_id, come_from, moved, why, result)
    # A card shows the end of what the owner was asked, or says what did not arrive; of the rest there is none.
    if asked is not None or moved in ("failed", "uncertain"):
        await tell(connection, "cards")
    return stored.answer


async def _told(connection: Connection, claimed: Claimed, then: Next, turned: Turned) -> NotifyResponse:
    notification_id = str(claimed.notification_id)
    if then.delivery == "sent":
        receipt = turned.receipt or then.provider_id or ""
        delivered = answers.delivered(claimed.channel, receipt, turned.parts, claimed.realm)
        return answers.sent(notification_id, delivered, answers.TWICE if claimed.repeated else None)
    if then.delivery == "uncertain":
        return answers.uncertain(notification_id, UNKNOWN_CLASS.get(then.reason or "", "internal_error"))
    said = answers.refusal(then.detail)
    if await deliveries.begun(connection, notification_id):
        said = f"{said} {answers.EARLIER}"
    return answers.failed(notification_id, "provider_rejected", said)


# A database that answers, and refuses the outcome so often, will not take it.
MOST_REFUSALS: Final = 12


async def heed(connection: Connection, claimed: Claimed, result: Receipt | SendFailed, timings: Timings) -> None:
    """Apply what the provider said to others too: its chat waits after a rate limit, or the whole channel pauses."""
    if isinstance(result, SendFailed) and result.reason == "rate_limited":
        wait = timedelta(seconds=asked_for(result.retry_after))
        await rate_limits.obey(connection, claimed.channel, claimed.address, wait, timings.asked_together)
    await breakers.heed(connection, claimed.channel, result, timings)


async def write_down(context: Context, claimed: Claimed, end: tuple[int, Receipt | SendFailed], then: Next) -> bool:
    """Write down the end of part n's attempt, however long the database is away: only this process knows it.

    Return False if the database will not take it.
    """
    n, result = end
    refused, written = 0, False
    stored: NotifyResponse | None = None
    try:
        for wait in until_written():
            try:
                async with context.db.work() as connection:
                    stored = await part_ended(connection, claimed, n, then)
                    await heed(connection, claimed, result, context.settings.timings)
                written = True
            except ButlersError as lost:
                refused += not isinstance(lost, Unavailable)
                log.warning("outcome not written yet", delivery=claimed.id, why=lost.message)
            if written or refused == MOST_REFUSALS:
                break
            await asyncio.sleep(wait)
    finally:
        if not written:
            log.error("an outcome is given up", delivery=claimed.id, outcome=then.outcome, receipt=then.provider_id)
    context.wakes["settled"](str(claimed.notification_id), stored if written else None)
    return written


BROKEN: Final = SendFailed("unreadable", "A mistake of ours ended it.", proved_not_sent=False)


async def put_off(connection: Connection, claimed: Claimed, jitter: float) -> None:
    """Try it again later and later; where a part is past its marker nobody knows, as after any lost answer."""
    if claimed.notification_id is not None:
        await notifications.locked(connection, claimed.notification_id)
    marked = [part["n"] for part in await attempts.parts(connection, claimed.id) if part["status"] == "sending"]
    for n in marked:
        then = after(Ended(BROKEN, last_part=True, kind=claimed.kind, attempt=claimed.attempt, jitter=jitter))
        await part_ended(connection, claimed, n, then)
    if not marked:
        wait = timedelta(seconds=backoff(claimed.attempt, jitter))
        await store.turn(connection, claimed, HELD, "queued", "broken", wait)
