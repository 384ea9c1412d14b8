"""The fleets that are attacked: a shared one that asks at once whatever comes, and others for classes that need it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from tests.attacks.world import World
    from tests.rig.bench import Bench

Attacked = Callable[[str, Mapping[str, str]], Awaitable["World"]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def attacked(bench: "Bench") -> AsyncIterator[Attacked]:
    """The world of the fleet of this shape and with these settings, started when it is first asked for."""
    from tests.attacks.campaign import opened  # noqa: PLC0415  # seconds of imports that other tests need not pay

    async with AsyncExitStack() as held:
        made: dict[str, World] = {}

        async def world(mode: str, settings: Mapping[str, str]) -> "World":
            name = f"{mode} {sorted(settings.items())}"
            if name not in made:
                made[name] = await held.enter_async_context(opened(bench, mode, settings))
            return made[name]

        yield world
