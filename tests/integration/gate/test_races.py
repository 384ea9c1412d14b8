"""Approval races, in short: at the deciding statement, and through every surface at once."""

from random import Random

import pytest

from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.racing import race, track
from tests.rig.surfaces import race_surfaces

pytestmark = pytest.mark.slow  # tests/verify has the long form

RACES = 200
AT_SURFACES = 6


async def test_however_many_decide_at_once_there_is_one_effect(bench: Bench) -> None:
    house = await bench.house()
    async with track(house) as on:
        raced = await race(on, RACES, Random(RACES))
    house.close()
    assert raced.races == RACES
    assert set(raced.won) == {"approved", "denied", "edited", "expired"}, raced


async def test_button_page_and_command_line_at_once_have_one_effect(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "one")
    told = await race_surfaces(fleet, AT_SURFACES, Random(AT_SURFACES))
    await fleet.stop()
    assert (told.races, told.processes) == (AT_SURFACES, 1)
