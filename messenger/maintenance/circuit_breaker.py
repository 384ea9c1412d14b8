"""The probing of paused channels: once a provider answers, what waited is due again.

The row is all there is to a pause (`messenger/storage/breakers.py`): while it stands nothing of the channel is claimed,
one Messenger at a time probes, and the owner is told once, by the other channel.
"""

import asyncio
from collections.abc import Mapping, MutableMapping

from butlers.butler import Context
from messenger.cards.channel_paused import sentences
from messenger.channels.base import Channel
from messenger.storage import breakers, transitions
from shared.db.pool import tell
from shared.errors import ButlersError
from shared.loops import pause as wait_for
from shared.telemetry.logs import logger
from shared.telemetry.metrics import channel_paused

log = logger("messenger.maintenance.circuit_breaker")


async def run(
    context: Context, channels: Mapping[str, Channel], paused: MutableMapping[str, str], stopping: asyncio.Event
) -> None:
    """Probe what is paused, until stopping; `paused` shows how it is.

    What this process was just configured with is tried at once.
    """
    first, timings = True, context.settings.timings
    while not stopping.is_set():
        try:
            async with context.db.work() as connection:
                if first:
                    await breakers.probe_now(connection)
                due = await breakers.take_probes(connection, timings.probe, timings.probe_login)
                rows = await breakers.paused(connection)
            first = False
            if due:
                await asyncio.gather(*(_probe(context, channels[name]) for name in due if name in channels))
                async with context.db.work() as connection:
                    rows = await breakers.paused(connection)
            paused.clear()
            paused.update(sentences(rows))
            for name in channels:
                channel_paused.labels(channel=name).set(name in paused)
        except ButlersError as lost:
            log.warning("not probed", why=lost.message)
        await wait_for(stopping, context.settings.sweep_seconds if paused else timings.unhurried)


async def _probe(context: Context, channel: Channel) -> None:
    """Ask the provider for nothing but an answer; if it gives one, lift the pause and make due all that waited."""
    failed = await channel.probe()
    async with context.db.work() as connection:
        if failed is not None:
            await breakers.still_paused(connection, channel.name, failed)
            return
        await transitions.due_again(connection, channel.name)
        await breakers.lift(connection, channel.name)
        await tell(connection, "deliveries")
    log.warning("the channel works again", channel=channel.name)
    context.wakes["deliveries"]()
