"""Waiting for what must happen, however slow the machine is.

A time that is itself a promise is not told by how long a test waits: it is read off the database's clock.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

VARIABLE: Final = "TESTS_WAIT_SECONDS"
# Only a failure ever waits so long; where failures are wanted, less is told by the variable.
LONGEST: Final = float(os.environ.get(VARIABLE, "30"))
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
