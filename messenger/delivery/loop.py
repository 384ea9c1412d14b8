"""Claim, prepare, mark, finish, settle: the way of a delivery through one Messenger.

Only between the marker's commit and the provider's answer is the outcome unknown. The committing byte is written after
the marker, by the holder of a lease that still lasts, or never.
"""

import asyncio
from collections import Counter
from functools import partial
from typing import Final

from messenger.delivery import mark
from messenger.delivery.lease import Worker
from messenger.delivery.mark import NotOurs
from messenger.delivery.send import deliver
from messenger.delivery.settle import put_off
from messenger.storage import deliveries, queries
from messenger.storage.deliveries import Claimed
from shared.db.clock import Moment
from shared.db.pool import Connection, after_commit, commit_unflushed
from shared.errors import ButlersError, Unavailable
from shared.gate.evaluate import Held
from shared.loops import apart, either
from shared.telemetry.logs import logger

log = logger("messenger.delivery.loop")
# Deliveries at once on each channel, so that a mail server that hangs never holds up Telegram.
AT_ONCE: Final = 16


async def run(worker: Worker, stopping: asyncio.Event) -> None:
    """Claim and deliver until stopping; then finish what is in hand."""
    wake = worker.context.wakes["deliveries"]
    while not stopping.is_set():
        ticket = wake.ticket()
        wait = worker.context.settings.sweep_seconds
        try:
            await worker.witness.open(worker.context)
            worker.at_work = True
            wait = min(wait, await claim_some(worker))
        except ButlersError as lost:
            log.warning("nothing claimed", why=lost.message)
        await either(wait, ticket, stopping)
    # A route that is queuing a delivery at this moment looks while it holds the lock, so none begins after this.
    async with worker.claiming:
        worker.at_work = False
    if worker.tasks:
        _, late = await asyncio.wait(worker.tasks, timeout=worker.timings.drain)
        for one in late:
            one.cancel()


async def claim_some(worker: Worker) -> float:
    """Claim what is due and start on it; return the seconds until it is worth looking again."""
    since, worker.more = worker.clock(), True
    async with worker.claiming, worker.context.db.work() as connection:
        taken = await deliveries.claim(connection, worker.holder, _room(worker), worker.timings)
        next_due, more = await queries.next_due(connection)
    for claimed in taken:
        _start(worker, since, claimed)
    # What waits behind one of these is looked for when that one ends; where nothing waits that needs no look.
    worker.more = more
    return max(0.05, next_due or worker.timings.renew)


async def begin_at_once(connection: Connection, worker: Worker, channel: str, held: Held, *, made: bool) -> bool:
    """Claim what is due on the channel and check the held notification's delivery, in the transaction that queued it.

    What was claimed is delivered once that is committed; `made` says that this transaction made that delivery. Return
    False if it has to wait.
    """
    notification_id = str(held.row["id"])
    since, mine = worker.clock(), False
    room = {name: most for name, most in _room(worker).items() if name == channel}
    taken = await deliveries.claim(connection, worker.holder, room, worker.timings)
    for claimed in taken:
        if claimed.notification_id != notification_id:
            after_commit(connection, partial(_start, worker, since, claimed))
            continue
        mine, found = True, await mark.checked(connection, worker, claimed, held)
        if found is not None:
            after_commit(connection, partial(_start, worker, since, claimed, found))
            # What was made here may be forgotten with a server that crashes: its marker finds none then, and the sweep
            # makes another. What was there before stays, and its fence must never be given twice.
            if made and len(taken) == 1:
                commit_unflushed(connection)
        else:
            after_commit(connection, partial(worker.context.wakes["settled"], notification_id))
    return mine


def _room(worker: Worker) -> dict[str, int]:
    """Return how many more deliveries of each channel this process takes in hand."""
    busy = Counter(task.get_name() for task in worker.tasks)
    return {name: AT_ONCE - busy[name] for name in worker.channels if busy[name] < AT_ONCE}


def _start(worker: Worker, since: Moment, claimed: Claimed, checked: mark.Checked | None = None) -> None:
    worker.held[claimed.id, claimed.fence] = since
    task = asyncio.create_task(_deliver(worker, claimed, checked), name=claimed.channel)
    worker.tasks.add(task)
    task.add_done_callback(worker.tasks.discard)


async def _deliver(worker: Worker, claimed: Claimed, checked: mark.Checked | None) -> None:
    """Deliver what was claimed.

    It is left to its lease while the database is away or where the marker finds it in other hands; what breaks
    otherwise is put off.
    """
    over = whole = False
    try:
        with apart(log, "a delivery broke", delivery=claimed.id):
            try:
                whole = await deliver(worker, claimed, checked)
            except (Unavailable, NotOurs) as lost:
                log.warning("left to its lease", delivery=claimed.id, why=lost.message)
            over = True
        if not over:
            with apart(log, "left to its lease", delivery=claimed.id):
                async with worker.context.db.work() as connection:
                    await put_off(connection, claimed, worker.jitter)
    finally:
        worker.held.pop((claimed.id, claimed.fence), None)
        if worker.more or not whole:
            worker.context.wakes["deliveries"]()
        worker.context.wakes["settled"](str(claimed.notification_id))
