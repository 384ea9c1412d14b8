"""A short form of the hands' campaign; the whole of it is in tests/long."""

import pytest

from tests.chaos.hands import campaign
from tests.rig.bench import Bench

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
KILLS = 8


async def test_daemons_and_children_are_killed_and_nothing_happens_twice(bench: Bench) -> None:
    done = await campaign(bench, KILLS, 15)
    assert not done.wrong, "\n".join(done.wrong)
    assert done.ran > 0
    assert min(done.daemons, done.children) > 0, done
