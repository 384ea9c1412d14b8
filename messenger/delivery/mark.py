"""Stage 8, mark: one transaction that asks the gate again and spends what the gate gives."""

from datetime import timedelta
from typing import Final

from butlers.butler import Context
from messenger.cards.kinds import KINDS, shows_again
from messenger.delivery import stop
from messenger.delivery.authorize import authorize
from messenger.delivery.lease import Worker
from messenger.delivery.witness import Behind
from messenger.poison import not_rendered
from messenger.storage import attempts, deliveries, rate_limits
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels.base import Wire, shas
from shared.channels.realms import realm_of
from shared.channels.telegram import words_of
from shared.db.pool import Connection, Record
from shared.errors import ButlersError, IdempotencyConflict, InvalidInput, Unreadable
from shared.gate.evaluate import Held
from shared.storage import pending_actions
from shared.telemetry.metrics import rate_limited_total

# The wires of a delivery that may leave, and its parts as they are kept.
Checked = tuple[tuple[Wire, ...], list[Record]]
AUTHORITY_HOLDS: Final = pending_actions.Why("messenger", "Checked again: same recipient, same content.")


class NotOurs(ButlersError):
    """The marker found the delivery in other hands, or with other bytes: its next holder begins anew."""


class OverLimit(ButlersError):
    """The marker found no room left in a rate limit, and is undone."""


async def check(worker: Worker, claimed: Claimed) -> Checked | None:
    """Ask the gate before anything is prepared, and keep which bytes each part is, in one transaction.

    Return None if the delivery may not leave now.
    """
    async with worker.context.db.work() as connection:
        return await checked(connection, worker, claimed)


async def checked(connection: Connection, worker: Worker, claimed: Claimed, held: Held | None = None) -> Checked | None:
    """Do the same in the caller's transaction, which may hold the notification."""
    verdict = await _verdict(connection, claimed, worker.context, marker=False, held=held)
    if isinstance(verdict, Blocked):
        await stop.stopped(connection, claimed, verdict, worker.context)
        return None
    # What has buttons is edited when it is over, and then shows these words again.
    shown = words_of(verdict.wires[-1]) if shows_again(claimed) else None
    return verdict.wires, await attempts.keep_parts(connection, claimed.id, shas(verdict.wires), shown)


async def mark(worker: Worker, claimed: Claimed, marker: tuple[int, Wire]) -> bool:
    """Ask the gate again and set the marker of one part; return whether it may leave, with these bytes, now.

    What has the same content as something sent before in the same lineage is ended as its duplicate. Raises NotOurs
    where the marker finds the delivery in other hands, or the database behind its witness.
    """
    try:
        return await _asked(worker, claimed, marker)
    except IdempotencyConflict:
        async with worker.context.db.work() as connection:
            await stop.duplicate(connection, claimed, worker.timings.duplicate_again)
    except Behind:
        await worker.witness.look(worker.context)
        raise NotOurs("A backup was put back; nothing of this was kept.") from None
    except OverLimit:
        async with worker.context.db.work() as connection:
            until = await rate_limits.free_at(connection, claimed.channel, claimed.address, claimed.origin)
            await deliveries.delay(connection, claimed, "rate_limited", until or 0.0, worker.timings.braked_again)
        rate_limited_total.labels(channel=claimed.channel).inc()
    return False


async def _asked(worker: Worker, claimed: Claimed, marker: tuple[int, Wire]) -> bool:
    """Ask the gate under the authority lock and spend what it gives, in one transaction; return whether it gives it."""
    covered = claimed.kind == "third_party"
    if covered:
        await worker.witness.ready(worker.context)
    async with worker.context.db.work(pending_actions.LOCK_AUTHORITY) as connection:
        verdict = await _verdict(connection, claimed, worker.context, marker=True)
        if isinstance(verdict, Blocked):
            await stop.stopped(connection, claimed, verdict, worker.context)
            return False
        leaves = await _mark(connection, claimed, verdict, marker, worker.timings.lease)
        if leaves is None:
            raise NotOurs("The delivery is no longer held here, or its bytes changed.")
        place = claimed.channel, claimed.address, claimed.origin
        if not leaves or not await rate_limits.spend(connection, *place, worker.limited):
            raise OverLimit("Its limit is used up; nothing of this is kept.")
        moved = await worker.witness.move(connection) if covered else None
    if moved is not None:
        await worker.witness.keep(moved)
    return True


async def _verdict(
    connection: Connection, claimed: Claimed, context: Context, *, marker: bool, held: Held | None = None
) -> Authorized | Blocked:
    try:
        if claimed.kind == "card":
            return await KINDS[str(claimed.card_kind)].authorize(connection, claimed, context)
        realm = realm_of(context.settings, claimed.channel)
        return await authorize(connection, claimed, realm, marker=marker, held_here=held)
    except (Unreadable, InvalidInput) as unfit:
        return await not_rendered(connection, claimed, unfit)


async def _mark(
    connection: Connection, claimed: Claimed, cleared: Authorized, marker: tuple[int, Wire], lease: timedelta
) -> bool | None:
    """Set the marker: from here on, without an answer, the outcome is unknown.

    Return None if it was not set, and False if the provider has asked to wait longer.
    """
    n, wire = marker
    if n > len(cleared.wires) or cleared.wires[n - 1].sha != wire.sha:
        return None
    content_sha = cleared.action.content_sha if cleared.action and claimed.kind == "third_party" else None
    leaves = await deliveries.mark(connection, claimed, (n, wire.sha), lease, content_sha, cleared.decision)
    if leaves and claimed.notification_id is not None:
        if cleared.decision.approval_id is not None or cleared.decision.rule_id is not None:
            await pending_actions.move(connection, claimed.notification_id, ["approved"], "executing", AUTHORITY_HOLDS)
        if cleared.decision.rule_id is not None:
            await pending_actions.spend(connection, cleared.decision.rule_id, claimed.notification_id)
    return leaves
