"""Two hundred SIGKILLs of daemons and of their sessions' children."""

import pytest

from tests.chaos.hands import campaign
from tests.rig.bench import Bench

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
KILLS = 200


async def test_two_hundred_kills_and_nothing_happens_twice(bench: Bench) -> None:
    done = await campaign(bench, KILLS, 200)
    assert not done.wrong, "\n".join(done.wrong)
    assert done.ran > 0
    assert min(done.daemons, done.children) > KILLS // 10, done
