"""A thousand flips of what may leave against busy Messengers, and how long the owner waits for one.

The figures are kept in build/figures/flips.json.
"""

import time
from random import Random

from tests.rig import figures
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.flipping import context, flip

FLIPS = 1_000
# The database's own limit to a statement; on a quiet machine a flip waits for a marker or two, which is a figure.
SLOWEST_MS = 20_000


async def test_a_thousand_flips_each_count_from_their_commit(bench: Bench) -> None:
    fleet, started = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "one"), time.monotonic()
    async with context(fleet) as on:
        flipped = await flip(on, FLIPS, Random(FLIPS))
    await fleet.stop()
    assert flipped.flips >= FLIPS
    assert flipped.marks > FLIPS / 2, flipped
    assert flipped.between > FLIPS / 4, flipped
    assert flipped.refused, flipped
    assert flipped.parked, flipped
    assert flipped.p99() < SLOWEST_MS, flipped.p99()
    told = {
        "flips": flipped.flips,
        "flip_p99_ms": flipped.p99(),
        "marks": flipped.marks,
        "answers": flipped.answered,
        "marked_after": 0,
        "seconds": round(time.monotonic() - started, 1),
    }
    figures.keep("flips", told)
