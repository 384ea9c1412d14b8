"""SIGKILL at random moments under load, then start again: nothing acknowledged is lost, nothing goes out twice.

`pytest tests/chaos --hypothesis-seed=N` repeats the order of victims and pauses of seed N.
"""

import json
import secrets

import pytest

from tests.chaos.kills import Run, run, write_figures
from tests.rig.bench import Bench


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed asked for on the command line, else a new one."""
    given = request.config.getoption("--hypothesis-seed")
    chosen = int(given) if str(given).isdecimal() else secrets.randbits(32)
    print(f"seed {chosen}")
    return chosen


async def test_ten_kills(bench: Bench, seed: int) -> None:
    judge(await run(bench, 10, seed), "kills-short")


@pytest.mark.slow
async def test_sixty_kills(bench: Bench, seed: int) -> None:
    judge(await run(bench, 60, seed), "kills")


def judge(done: Run, name: str) -> None:
    """Write the figures down, whatever they say; then nothing may be broken, and the load was a load."""
    write_figures(name, done)
    told = json.dumps(done.figures, indent=1)
    print(told)
    assert not done.verdict.broken, "\n".join([*done.verdict.broken, told])
    assert not done.strange, done.strange
    figures = done.verdict.figures
    assert done.figures["left_open"] == 0, told
    assert 0.25 < figures["third_party"] / figures["messages"] < 0.75, told
    assert done.share_repeated >= 0.3, told
