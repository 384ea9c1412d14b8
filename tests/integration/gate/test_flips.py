"""Flips of what may leave against busy Messengers, and how long the owner waits for one.

The figures are kept in build/figures/flips.json.
"""

import time
from random import Random

import pytest

from tests.rig import figures
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.flipping import context, flip

pytestmark = [pytest.mark.slow, pytest.mark.whole]

FLIPS, ALL_FLIPS = 60, 1_000
# The database's own limit to a statement; on a quiet machine a flip waits for a marker or two, which is a figure.
SLOWEST_MS = 20_000


async def test_nothing_is_marked_after_what_forbids_it(bench: Bench, whole: bool) -> None:  # noqa: FBT001
    many = ALL_FLIPS if whole else FLIPS
    fleet, started = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "one"), time.monotonic()
    async with context(fleet) as on:
        flipped = await flip(on, many, Random(many))
    await fleet.stop()
    assert flipped.flips >= many
    assert flipped.marks > many / 2, flipped
    assert flipped.between > many / 4, flipped
    assert not whole or (flipped.refused and flipped.parked), flipped
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
