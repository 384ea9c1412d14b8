"""Waiting for a hint, or for a tick: the rows say what there is to do, so a lost hint costs one tick."""

import asyncio
from contextlib import suppress

from shared.loops import first_of


async def either(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events, at most so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(first_of(*events), seconds)
