"""The sending of one delivery, part by part, with stages 7 and 9: prepare and finish."""

from functools import partial

from messenger.channels.base import Prepared, Receipt, SendFailed
from messenger.delivery import settle, stop
from messenger.delivery.lease import Worker, still_held
from messenger.delivery.mark import Checked, check, mark
from messenger.delivery.outcome import Ended, Next, after
from messenger.delivery.settle import heed, write_down
from messenger.storage.deliveries import Claimed
from shared.channels.base import Wire
from shared.errors import Unavailable
from shared.telemetry.metrics import attempts_total


async def deliver(worker: Worker, claimed: Claimed, checked: Checked | None = None) -> bool:
    """Check the delivery unless it was, then send each part that has no receipt yet; return whether all have theirs."""
    checked = checked or await check(worker, claimed)
    if checked is None:
        return False
    wires, rows = checked
    parts = dict(enumerate((wire.sha for wire in wires), start=1))
    done = {row["n"]: row["wire_sha"] for row in rows if row["status"] == "sent"}
    if not done.items() < parts.items():
        async with worker.context.db.work() as connection:
            await stop.nothing_follows(connection, claimed, whole=done == parts)
        return False
    total = len(parts)
    for n, wire in enumerate(wires, start=1):
        if n not in done and not await send_part(worker, claimed, (n, total), wire):
            return False
    return True


async def send_part(worker: Worker, claimed: Claimed, place: tuple[int, int], wire: Wire) -> bool:
    """Take part n of total through stages 7 to 10; return whether it has its receipt and the next may follow."""
    n, _ = place
    prepared = await prepare(worker, claimed, place, wire)
    if prepared is None:
        return False
    try:
        marked = await mark(worker, claimed, (n, wire))
    except Unavailable as lost:
        # The marker may count all the same, and nobody else knows that the last byte was not written.
        await prepared.abandon()
        unsent = SendFailed("unavailable", lost.message, proved_not_sent=True)
        then = _after(worker, claimed, unsent, wire, place)
        await write_down(worker.context, claimed, (n, unsent), then)
        return False
    except BaseException:
        await prepared.abandon()
        raise
    if not marked:
        await prepared.abandon()
        return False
    result = await finish(worker, claimed, prepared)
    then = _after(worker, claimed, result, wire, place)
    return await write_down(worker.context, claimed, (n, result), then) and then.part == "sent"


async def prepare(worker: Worker, claimed: Claimed, place: tuple[int, int], wire: Wire) -> Prepared | None:
    """Stage 7, prepare: write all but the last byte; where that fails, nothing was sent, which is settled at once."""
    prepared = await worker.channels[claimed.channel].prepare(wire)
    if not isinstance(prepared, SendFailed):
        return prepared
    then = _after(worker, claimed, prepared, wire, place)
    async with worker.context.db.work() as connection:
        await settle.not_prepared(connection, claimed, place[0], then)
        await heed(connection, claimed, prepared, worker.timings)
    return None


async def finish(worker: Worker, claimed: Claimed, prepared: Prepared) -> Receipt | SendFailed:
    """Stage 9, finish: write the last byte under a lease that still lasts, then wait for the answer."""
    return await prepared.finish(partial(still_held, worker, claimed))


def _after(worker: Worker, claimed: Claimed, result: Receipt | SendFailed, wire: Wire, place: tuple[int, int]) -> Next:
    kind = "reaction" if wire.verb == "setMessageReaction" else claimed.kind
    n, total = place
    then = after(Ended(result, n == total, kind, claimed.attempt, worker.jitter))
    attempts_total.labels(channel=claimed.channel, outcome=then.outcome).inc()
    return then
