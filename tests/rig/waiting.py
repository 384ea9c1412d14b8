"""Waiting for what must happen, however slow the machine is.

A time that is itself a promise is not told by how long a test waits: it is read off the database's clock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

# Seconds. Only a failure ever waits so long.
LONGEST: Final = 30.0
T = TypeVar("T")


async def until(look: Callable[[], T | None]) -> T:
    """What `look` finds, as soon as that is something."""

    async def looking() -> T | None:
        return look()

    return await eventually(looking)


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """The same where looking takes time."""
    async with asyncio.timeout(LONGEST):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.01)
