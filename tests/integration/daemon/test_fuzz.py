"""Inputs that nobody sends by mistake alone; `--hypothesis-seed` draws others.

The figures are kept in build/figures/fuzz.json.
"""

import time

import pytest

from tests.rig import figures
from tests.rig.bench import Bench
from tests.rig.fuzzed import fuzz, under_fuzz
from tests.rig.fuzzing import inputs

pytestmark = [pytest.mark.slow, pytest.mark.whole]

INPUTS, ALL_INPUTS = 1_000, 10_000


async def test_no_input_breaks_anything(bench: Bench, request: pytest.FixtureRequest, whole: bool) -> None:  # noqa: FBT001
    seed, started = int(request.config.getoption("--hypothesis-seed") or 0), time.monotonic()
    async with under_fuzz(bench) as on:
        sent = await fuzz(on, inputs(seed, ALL_INPUTS if whole else INPUTS))
    assert set(sent.kinds) == {"Posted", "Raw", "Update"}
    assert {200, 400, 401, 403} <= set(sent.statuses), sent
    told = {
        "inputs": sent.inputs,
        "seed": seed,
        "answers": {str(status): count for status, count in sorted(sent.statuses.items())},
        "slowest_seconds": round(sent.slowest, 2),
        "grown_mb": sent.grown_mb,
        "seconds": round(time.monotonic() - started, 1),
    }
    figures.keep("fuzz", told)
