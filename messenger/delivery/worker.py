"""Claim, prepare, mark, finish, settle: the way of a delivery through one Messenger.

Between the marker's commit and the provider's answer lies the only thing nobody can know. The committing
byte is written after the marker, by the holder of a lease that still lasts, or never.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from butlers.butler import Ground
from messenger.cards import approval, bounced, digest, uncertain
from messenger.cards.notices import check_notice
from messenger.channels.base import Channel, SendFailed
from messenger.delivery import expire, settle
from messenger.delivery.authorize import authorize
from messenger.delivery.ending import heed, write_down
from messenger.delivery.outcome import Ended, Next, after
from messenger.delivery.witness import Behind, Witness
from messenger.loop import either
from messenger.maintenance import circuit_breaker
from messenger.poison import not_rendered, put_off
from messenger.storage import attempts, cards, deliveries, queries, rate_limits, transitions
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels.base import Wire
from shared.channels.realms import realm_of
from shared.db import witness
from shared.db.clock import Moment, moment
from shared.db.pool import Connection
from shared.errors import ButlersError, IdempotencyConflict, InvalidInput, Unavailable, Unreadable
from shared.loops import apart, pause
from shared.storage import pending_actions
from shared.telemetry.logs import logger
from shared.telemetry.metrics import attempts_total, rate_limited_total

log = logger("messenger.delivery.worker")
AUTHORITY_HOLDS: Final = pending_actions.Why("messenger", "What lets it out still holds, for exactly these bytes.")
# For each channel, so that a mail server that hangs never holds up Telegram.
AT_ONCE: Final = 16
LEASE_SECONDS: Final = 7.0
RENEW_SECONDS: Final = 2.0
# Less than this left of the lease, and the committing byte is not written.
MARGIN_SECONDS: Final = 1.0
# What is in hand when the process stops gets so long to end.
DRAIN_SECONDS: Final = 20.0


class NotOurs(ButlersError):
    """The marker found the delivery in other hands, or other bytes: whoever takes it next begins anew."""


class OverLimit(ButlersError):
    """The marker found no room left, and is undone."""


@dataclass(slots=True)
class Desk:
    """One Messenger at work: its channels, and since when it has held which delivery by its fence, for a lease."""

    ground: Ground
    channels: Mapping[str, Channel]
    held: dict[tuple[str, int], Moment] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    jitter: float = 0.5
    # The channels whose messages are counted against their limits.
    limited: frozenset[str] = frozenset()
    clock: Callable[[], Moment] = moment
    witness: Witness = field(init=False)

    def __post_init__(self) -> None:
        """Its witness lies in its home."""
        ground = self.ground
        self.witness = Witness(witness.places(ground.home, ground.name, ground.settings.witness))

    @property
    def holder(self) -> str:
        """The name under which this process holds leases."""
        return self.ground.instance


async def run(desk: Desk, stopping: asyncio.Event) -> None:
    """Claim and deliver until stopping; then finish what is in hand."""
    wake = desk.ground.wakes["deliveries"]
    while not stopping.is_set():
        ticket = wake.ticket()
        wait = desk.ground.settings.sweep_seconds
        try:
            await desk.witness.open(desk.ground)
            wait = min(wait, await claim_some(desk))
        except ButlersError as lost:
            log.warning("nothing claimed", why=lost.message)
        await either(wait, ticket, stopping)
    if desk.tasks:
        _, late = await asyncio.wait(desk.tasks, timeout=DRAIN_SECONDS)
        for one in late:
            one.cancel()


async def claim_some(desk: Desk) -> float:
    """Start on what is due; seconds until it is worth looking again."""
    busy = Counter(task.get_name() for task in desk.tasks)
    room = {name: AT_ONCE - busy[name] for name in desk.channels if busy[name] < AT_ONCE}
    since = desk.clock()
    async with desk.ground.db.work() as connection:
        taken = await deliveries.claim(connection, desk.holder, room)
        next_due = await queries.next_due(connection)
    for claimed in taken:
        desk.held[claimed.id, claimed.fence] = since
        task = asyncio.create_task(_deliver(desk, claimed), name=claimed.channel)
        desk.tasks.add(task)
        task.add_done_callback(desk.tasks.discard)
    # What waits behind one of these is woken when that one ends.
    return max(0.05, next_due or RENEW_SECONDS)


async def _deliver(desk: Desk, claimed: Claimed) -> None:
    """One delivery; it is left to its lease while the database is away, and what breaks otherwise is put off."""
    over = False
    try:
        with apart(log, "a delivery broke", delivery=claimed.id):
            try:
                await deliver(desk, claimed)
            except (Unavailable, NotOurs) as lost:
                log.warning("left to its lease", delivery=claimed.id, why=lost.message)
            over = True
        if not over:
            with apart(log, "left to its lease", delivery=claimed.id):
                async with desk.ground.db.work() as connection:
                    await put_off(connection, claimed, desk.jitter)
    finally:
        desk.held.pop((claimed.id, claimed.fence), None)
        desk.ground.wakes["deliveries"]()
        desk.ground.wakes["settled"](str(claimed.notification_id))


async def deliver(desk: Desk, claimed: Claimed) -> None:
    """Check, then each part that has no receipt yet, in order."""
    cleared = await _check(desk, claimed, marker=None)
    if cleared is None:
        return
    parts = dict(enumerate((wire.sha for wire in cleared.wires), start=1))
    async with desk.ground.db.work() as connection:
        rows = await attempts.keep_parts(connection, claimed.id, list(parts.values()))
    done = {row["n"]: row["wire_sha"] for row in rows if row["status"] == "sent"}
    if not done.items() < parts.items():
        async with desk.ground.db.work() as connection:
            await settle.nothing_follows(connection, claimed, whole=done == parts)
        return
    total = len(parts)
    for n, wire in enumerate(cleared.wires, start=1):
        if n not in done and not await send_part(desk, claimed, (n, total), wire):
            return


async def send_part(desk: Desk, claimed: Claimed, place: tuple[int, int], wire: Wire) -> bool:
    """Stages 7 to 10 for part n of total; true if it has its receipt and the next may follow."""
    n, total = place
    prepared = await desk.channels[claimed.channel].prepare(wire)
    if isinstance(prepared, SendFailed):
        then = _after(desk, claimed, prepared, wire, last=n == total)
        async with desk.ground.db.work() as connection:
            await settle.not_prepared(connection, claimed, n, then)
            await heed(connection, claimed, prepared)
        return False
    try:
        marked = await _check(desk, claimed, marker=(n, wire))
    except Unavailable as lost:
        # The marker may count all the same, and nobody else knows that the last byte was not written.
        await prepared.abandon()
        unsent = SendFailed("unavailable", lost.message, proved_not_sent=True)
        then = _after(desk, claimed, unsent, wire, last=n == total)
        await write_down(desk.ground, claimed, (n, unsent), then)
        return False
    except BaseException:
        await prepared.abandon()
        raise
    if marked is None:
        await prepared.abandon()
        return False
    result = await prepared.finish(partial(_still_held, desk, claimed))
    then = _after(desk, claimed, result, wire, last=n == total)
    return await write_down(desk.ground, claimed, (n, result), then) and then.part == "sent"


def _after(desk: Desk, claimed: Claimed, result: object, wire: Wire, *, last: bool) -> Next:
    kind = "reaction" if wire.verb == "setMessageReaction" else claimed.kind
    ended = Ended(result, last, kind, claimed.attempt, desk.jitter)  # type: ignore[arg-type]
    then = after(ended)
    attempts_total.labels(channel=claimed.channel, outcome=then.outcome).inc()
    return then


def _still_held(desk: Desk, claimed: Claimed) -> bool:
    """Whoever slept past the lease, its computer too, writes nothing: somebody else may have taken over."""
    since = desk.held.get((claimed.id, claimed.fence))
    return since is not None and since.passed(desk.clock()) < LEASE_SECONDS - MARGIN_SECONDS


async def _check(desk: Desk, claimed: Claimed, *, marker: tuple[int, Wire] | None) -> Authorized | None:
    """The gate's word; what went out before in the same lineage is ended as its duplicate."""
    try:
        return await _asked(desk, claimed, marker=marker)
    except IdempotencyConflict:
        async with desk.ground.db.work() as connection:
            await settle.duplicate(connection, claimed)
        return None
    except Behind:
        await desk.witness.look(desk.ground)
        raise NotOurs("A backup was put back; nothing of this was kept.") from None
    except OverLimit:
        async with desk.ground.db.work() as connection:
            until = await rate_limits.free_at(connection, claimed.channel, claimed.address)
            await deliveries.delay(connection, claimed, "rate_limited", until or 0.0)
        rate_limited_total.labels(channel=claimed.channel).inc()
        return None


async def _asked(desk: Desk, claimed: Claimed, *, marker: tuple[int, Wire] | None) -> Authorized | None:
    """At the marker the gate is asked under the authority lock, and what it gives is spent in the same transaction."""
    covered = marker is not None and claimed.kind == "third_party"
    if covered:
        await desk.witness.ready(desk.ground)
    async with desk.ground.db.work() as connection:
        if marker is not None:
            await pending_actions.lock_authority(connection)
        try:
            verdict = await _verdict(connection, claimed, desk.ground, marker=marker is not None)
        except (Unreadable, InvalidInput) as unfit:
            verdict = await not_rendered(connection, claimed, unfit)
        if isinstance(verdict, Blocked):
            await settle.stopped(connection, claimed, verdict, desk.ground)
            return None
        if marker is not None and not await _mark(connection, claimed, verdict, marker):
            raise NotOurs("The delivery is no longer held here, or its bytes changed.")
        if marker is not None and not await rate_limits.spend(
            connection, claimed.channel, claimed.address, desk.limited
        ):
            raise OverLimit("Its limit is used up; nothing of this is kept.")
        moved = await desk.witness.move(connection) if covered else None
    if moved is not None:
        await desk.witness.keep(moved)
    return verdict


async def _verdict(connection: Connection, claimed: Claimed, ground: Ground, *, marker: bool) -> Authorized | Blocked:
    if claimed.kind == "card":
        return await _card(connection, claimed, ground)
    return await authorize(connection, claimed, realm_of(ground.settings, claimed.channel), marker=marker)


async def _card(connection: Connection, claimed: Claimed, ground: Ground) -> Authorized | Blocked:
    """A card asks about actions, or about an attempt of unknown outcome, or tells of what came back or of a pause."""
    if claimed.action_id is not None:
        return await approval.check(connection, claimed, ground)
    if claimed.digest_id is not None:
        return await digest.check(connection, claimed, claimed.digest_id, ground)
    if claimed.revision is not None:
        row = await queries.about(connection, claimed.id)
        if row is not None and row["status"] == "bounced" and row["attempt"] < claimed.revision:
            return await bounced.check(connection, claimed, row, ground)
        return await uncertain.check(connection, claimed, row, ground)
    return await check_notice(connection, claimed, ground)


async def _mark(connection: Connection, claimed: Claimed, cleared: Authorized, marker: tuple[int, Wire]) -> bool:
    """Stage 8: from here on, without an answer, nobody knows."""
    n, wire = marker
    if n > len(cleared.wires) or cleared.wires[n - 1].sha != wire.sha:
        return False
    content_sha = cleared.action.content_sha if cleared.action and claimed.kind == "third_party" else None
    if not await deliveries.mark(connection, claimed, (n, wire.sha), content_sha, cleared.decision.rule_id):
        return False
    if claimed.notification_id is not None:
        if cleared.decision.approval_id is not None or cleared.decision.rule_id is not None:
            await pending_actions.move(connection, claimed.notification_id, ["approved"], "executing", AUTHORITY_HOLDS)
        if cleared.decision.rule_id is not None:
            await pending_actions.spend(connection, cleared.decision.rule_id, claimed.notification_id)
    return True


async def renew(desk: Desk, stopping: asyncio.Event) -> None:
    """The heartbeat of the leases, independent of any socket; it ends only when nothing is held."""
    while not stopping.is_set() or desk.tasks:
        since = desk.clock()
        try:
            async with desk.ground.db.work() as connection:
                held = await deliveries.renew(connection, desk.holder, list(desk.held))
            for claim in held & desk.held.keys():
                desk.held[claim] = since
        except ButlersError as lost:
            log.warning("leases not renewed", why=lost.message)
        await (asyncio.sleep(0.2) if stopping.is_set() else pause(stopping, RENEW_SECONDS))


async def tidy(desk: Desk, stopping: asyncio.Event) -> None:
    """Take over what silent holders left, and write the cards that are missing."""
    wake = desk.ground.wakes["cards"]
    while not stopping.is_set():
        ticket = wake.ticket()
        try:
            async with desk.ground.db.work() as connection:
                reaped = await settle.reaped(connection) + await settle.expired(connection)
                await transitions.close_answered(connection)
                written = await transitions.delayed_no_more(connection) + await transitions.sooner(connection)
                written += await circuit_breaker.tell_owner(connection)
                await rate_limits.forget(connection)
            reaped += await expire.all_ended(desk.ground.db)
            async with desk.ground.db.work() as connection:
                written += await cards.write_missing_cards(connection, desk.ground.settings.card_burst)
            if reaped or written:
                desk.ground.wakes["deliveries"]()
        except ButlersError as lost:
            log.warning("not tidied", why=lost.message)
        await either(desk.ground.settings.sweep_seconds, ticket, stopping)
