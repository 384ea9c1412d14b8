"""Inputs that nobody sends by mistake alone, in short; `--hypothesis-seed` draws others."""

import pytest

from tests.rig.bench import Bench
from tests.rig.fuzzed import fuzz, under_fuzz
from tests.rig.fuzzing import inputs

pytestmark = pytest.mark.slow  # tests/verify has the long form

INPUTS = 300


async def test_no_input_breaks_anything(bench: Bench, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    async with under_fuzz(bench) as on:
        told = await fuzz(on, inputs(int(seed or 0), INPUTS))
    assert set(told.kinds) == {"Posted", "Raw", "Update"}
    assert {200, 400, 401, 403} <= set(told.statuses), told
