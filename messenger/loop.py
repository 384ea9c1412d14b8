"""A loop that looks on each hint and each tick: the rows say what there is to do, so a lost hint costs one tick."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from butlers.butler import Context
from shared.loops import first_of, pause


async def go(context: Context, stopping: asyncio.Event, look: Callable[[], Awaitable[float]]) -> None:
    """Look on each hint about cards and each tick, until stopping.

    `look` returns how many seconds to wait at least before the next look.
    """
    wake = context.wakes["cards"]
    while not stopping.is_set():
        ticket = wake.ticket()
        if await pause(stopping, await look()):
            return
        timer = asyncio.ensure_future(pause(stopping, context.settings.sweep_seconds))
        waiting = asyncio.ensure_future(first_of(ticket, stopping))
        await asyncio.wait([timer, waiting], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        waiting.cancel()


async def either(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events, at most so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(first_of(*events), seconds)
