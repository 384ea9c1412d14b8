"""A campaign of two hundred kills; the long ones are in tests/long.

`pytest tests/chaos --hypothesis-seed=N` repeats the choices of seed N.
"""

import json
import secrets

import pytest

from tests.chaos.campaign import Plan, run
from tests.chaos.ledger import Run, write_figures
from tests.rig.bench import Bench

KILLS = 200
# An idle machine needs a hundred.
MOST_SECONDS = 600


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed asked for on the command line, else a new one."""
    given = request.config.getoption("--hypothesis-seed")
    chosen = int(given) if str(given).isdecimal() else secrets.randbits(32)
    print(f"seed {chosen}")
    return chosen


@pytest.mark.slow
async def test_a_campaign(bench: Bench, seed: int) -> None:
    plan = Plan(seed, kills=KILLS, seconds=MOST_SECONDS, restarts=2, hits=1, mopping=240)
    done = await run(bench, plan)
    judge(done, "campaign")
    assert int(str(done.figures["kills"])) >= KILLS, done.figures
    assert done.figures["failpoints_missing"] == [], done.figures


def judge(done: Run, name: str) -> None:
    """Write the figures down, whatever they say; then nothing may be broken, and the load was a load."""
    write_figures(name, done)
    told = json.dumps(done.figures, indent=1)
    print(told)
    assert not done.wrong, "\n".join([*done.wrong, told])
    figures = done.verdict.figures
    assert 0.25 < figures["third_party"] / figures["messages"] < 0.97, told
    assert done.share_repeated >= 0.3, told
