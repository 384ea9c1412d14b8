"""Ten thousand approval races at the deciding statement, and three hundred by every surface of a running fleet.

The figures are kept in build/figures/races.json.
"""

import time
from random import Random

from tests.rig import figures
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.racing import MOST_DECIDERS, race, track
from tests.rig.surfaces import race_surfaces

RACES = 10_000
AT_SURFACES = 300


async def test_ten_thousand_races_have_one_effect_each(bench: Bench) -> None:
    house, started = await bench.house(), time.monotonic()
    async with track(house) as on:
        raced = await race(on, RACES, Random(RACES))
    house.close()
    assert (raced.races, raced.most) == (RACES, MOST_DECIDERS)
    assert min(raced.won[one] for one in ("approved", "denied", "edited", "expired")) > RACES / 100, raced
    seconds = round(time.monotonic() - started, 1)
    told = {"races": RACES, "deciders": raced.deciders, "won": raced.won, "seconds": seconds}
    figures.keep("races", {"statement": told})


async def test_three_hundred_races_by_button_page_and_command_line(bench: Bench) -> None:
    fleet, started = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "two"), time.monotonic()
    told = await race_surfaces(fleet, AT_SURFACES, Random(AT_SURFACES))
    await fleet.stop()
    assert told.races == AT_SURFACES
    assert set(told.won) == {"telegram", "console", "cli"}, told
    seconds = round(time.monotonic() - started, 1)
    surfaces = {"races": AT_SURFACES, "by_process": told.processes, "won": told.won, "seconds": seconds}
    figures.keep("races", {"surfaces": surfaces})
