"""The leases of one Messenger: which deliveries it holds, since when, and how it keeps them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from butlers.butler import Context
from messenger.channels.base import Channel
from messenger.delivery.witness import Witness
from messenger.storage import deliveries
from messenger.storage.deliveries import Claimed
from shared.config.timings import Timings
from shared.db import witness
from shared.db.clock import Moment, moment
from shared.loops import apart, pause
from shared.telemetry.logs import logger

log = logger("messenger.delivery.lease")


@dataclass(slots=True)
class Worker:
    """One Messenger at work: its channels, and since when, for a lease, it has held which delivery by its fence."""

    context: Context
    channels: Mapping[str, Channel]
    held: dict[tuple[str, int], Moment] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    jitter: float = 0.5
    # The channels whose messages are counted against their limits.
    limited: frozenset[str] = frozenset()
    # Whether anything may be waiting in the queue, as far as the last look saw; true while one goes on.
    more: bool = True
    # Whether the loop that claims is at work: before and after, what is queued stays so.
    at_work: bool = False
    # Held while this process claims, since two of its claims at once would be in each other's way.
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    clock: Callable[[], Moment] = moment
    witness: Witness = field(init=False)

    def __post_init__(self) -> None:
        """Make the witness, which lies in this Messenger's home."""
        context = self.context
        self.witness = Witness(witness.places(context.home, context.name, context.settings.witness))

    @property
    def timings(self) -> Timings:
        """How long leases last, and how often they are renewed."""
        return self.context.settings.timings

    @property
    def holder(self) -> str:
        """The name under which this process holds leases."""
        return self.context.instance


def still_held(worker: Worker, claimed: Claimed) -> bool:
    """Return whether the lease lasts, with its margin.

    A process that slept past its lease, with its computer or not, writes nothing: somebody else may have taken over.
    """
    since, timings = worker.held.get((claimed.id, claimed.fence)), worker.timings
    return since is not None and since.passed(worker.clock()) < timings.lease.total_seconds() - timings.margin


async def renew(worker: Worker, stopping: asyncio.Event) -> None:
    """Renew the leases again and again, independent of any socket; when stopping, end only when nothing is in hand."""
    timings = worker.timings
    while not stopping.is_set() or worker.tasks:
        since = worker.clock()
        with apart(log, "leases not renewed"):
            if worker.held:
                async with worker.context.db.work() as connection:
                    held = await deliveries.renew(connection, worker.holder, list(worker.held), timings.lease)
                for claim in held & worker.held.keys():
                    worker.held[claim] = since
        await (asyncio.sleep(timings.stopping_renew) if stopping.is_set() else pause(stopping, timings.renew))
