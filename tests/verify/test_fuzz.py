"""Ten thousand inputs that nobody sends by mistake alone; `--hypothesis-seed` draws others.

The figures are kept in build/figures/fuzz.json.
"""

import json
import time
from pathlib import Path

import pytest

from tests.rig.bench import Bench
from tests.rig.fuzzed import fuzz, under_fuzz
from tests.rig.fuzzing import inputs

FIGURES = Path(__file__).resolve().parents[2] / "build" / "figures" / "fuzz.json"
INPUTS = 10_000


async def test_ten_thousand_inputs_break_nothing(bench: Bench, request: pytest.FixtureRequest) -> None:
    seed, started = int(request.config.getoption("--hypothesis-seed") or 0), time.monotonic()
    async with under_fuzz(bench) as on:
        told = await fuzz(on, inputs(seed, INPUTS))
    figures = {
        "inputs": told.inputs,
        "seed": seed,
        "answers": {str(status): count for status, count in sorted(told.statuses.items())},
        "slowest_seconds": round(told.slowest, 2),
        "grown_mb": told.grown_mb,
        "seconds": round(time.monotonic() - started, 1),
    }
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
