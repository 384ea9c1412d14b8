"""Approval races at the deciding statement, and by every surface of a running fleet at once.

The figures are kept in build/figures/races.json.
"""

import time
from random import Random

import pytest

from tests.rig import figures
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.racing import MOST_DECIDERS, race, track
from tests.rig.surfaces import race_surfaces

pytestmark = [pytest.mark.slow, pytest.mark.whole]

RACES, ALL_RACES = 1_000, 10_000
AT_SURFACES, ALL_AT_SURFACES = 30, 300


async def test_however_many_decide_at_once_there_is_one_effect(bench: Bench, whole: bool) -> None:  # noqa: FBT001
    many = ALL_RACES if whole else RACES
    house, started = await bench.house(), time.monotonic()
    async with track(house) as on:
        raced = await race(on, many, Random(many))
    house.close()
    assert raced.races == many
    assert not whole or raced.most == MOST_DECIDERS
    assert min(raced.won[one] for one in ("approved", "denied", "edited", "expired")) > many / 100, raced
    seconds = round(time.monotonic() - started, 1)
    told = {"races": many, "deciders": raced.deciders, "won": raced.won, "seconds": seconds}
    figures.keep("races", {"statement": told})


async def test_button_page_and_command_line_at_once_have_one_effect(bench: Bench, whole: bool) -> None:  # noqa: FBT001
    many = ALL_AT_SURFACES if whole else AT_SURFACES
    fleet, started = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "two"), time.monotonic()
    told = await race_surfaces(fleet, many, Random(many))
    await fleet.stop()
    assert told.races == many
    assert set(told.won) == {"telegram", "console", "cli"}, told
    seconds = round(time.monotonic() - started, 1)
    surfaces = {"races": many, "by_process": told.processes, "won": told.won, "seconds": seconds}
    figures.keep("races", {"surfaces": surfaces})
