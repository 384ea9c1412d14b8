"""Which fleet each class is tried on: the shared one, or one of its own where the file has settings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

from tests.attacks.world import World, enter
from tests.rig.bench import Bench
from tests.rig.cluster import BUTLERS
from tests.rig.fleet import Fleet, Mode

# Every question gets its card at once: what floods is the corpus, and its own class has a fleet of its own.
SETTINGS: Final = {
    "BUTLERS_CARD_BURST": "9999",
    "BUTLERS_SWEEP_SECONDS": "0.2",
    "BUTLERS_CONSOLE_PASSWORD": "the owner's own password",
}


@asynccontextmanager
async def opened(bench: Bench, mode: str, settings: Mapping[str, str]) -> AsyncIterator[World]:
    """A fleet of this shape and with these settings beside SETTINGS, entered; it stops without a traceback."""
    fleet = await Fleet.start(
        await bench.house(code=None, butlers=BUTLERS, **{**SETTINGS, **settings}), cast("Mode", mode)
    )
    world = None
    try:
        world = await enter(fleet)
        yield world
    finally:
        if world is not None:
            await world.close()
        await fleet.stop()
