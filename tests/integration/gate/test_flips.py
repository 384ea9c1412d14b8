"""Flips of what may leave against busy Messengers, in short."""

from random import Random

import pytest

from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.flipping import context, flip

pytestmark = pytest.mark.slow  # tests/verify has the long form

FLIPS = 50


async def test_nothing_is_marked_after_what_forbids_it(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_CARD_BURST="100000"), "one")
    async with context(fleet) as on:
        flipped = await flip(on, FLIPS, Random(FLIPS))
    await fleet.stop()
    assert flipped.flips >= FLIPS
    assert flipped.marks > FLIPS / 2, flipped
    assert flipped.between > FLIPS / 4, flipped
