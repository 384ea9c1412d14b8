"""The whole process is killed after a step of the conversation and started again: it goes on, nothing twice."""

import pytest

from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import UP
from tests.story.conversation import Telling, by_a_script

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Whoever held them is dead, so that they run out is a matter of time alone.
RUN_OUT = """
UPDATE messenger.pollers SET lease_until = clock_timestamp();
UPDATE messenger.mailboxes SET lease_until = clock_timestamp();
UPDATE shared.sessions SET lease_until = clock_timestamp() WHERE status = 'running';
UPDATE switchboard.inbox SET route_until = clock_timestamp() WHERE route_until IS NOT NULL;
"""
STEPS = [one.__name__ for one in Telling.STEPS]
# The butler has answered, and has not yet asked what else it was told: nobody can know what it would have done.
BREAKS_OFF = "butler_takes_it"
# Where what somebody wrote is nowhere but outside, or in a row that nobody has taken up; the others by --whole.
ALWAYS = ("owner_asks", "chloe_answers")


async def killed(telling: Telling) -> None:
    """Kill all there is, and start it again."""
    await telling.fleet.kill(UP)
    await telling.fleet.db.execute(RUN_OUT)
    await telling.fleet.restart(UP)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(one, marks=pytest.mark.slow if one in ALWAYS else pytest.mark.whole)
        for one in STEPS
        if one != BREAKS_OFF
    ],
)
async def test_it_goes_on_after_a_kill(bench: Bench, step: str) -> None:
    async with by_a_script(bench) as telling:
        for one in Telling.STEPS:
            await one(telling)
            if one.__name__ == step:
                await killed(telling)
        first = await telling.all_is_over()
        if first["status"] == "lost":
            await telling.owner_is_told_that_it_broke_off()
        else:
            assert first["status"] == "done"


@pytest.mark.slow
async def test_the_owner_is_told_what_nobody_goes_on_with(bench: Bench) -> None:
    async with by_a_script(bench, pause=300) as telling:
        await telling.owner_asks()
        await telling.butler_takes_it()
        await killed(telling)
        await telling.owner_is_told_that_it_broke_off()
        assert [e for e in await telling.fleet.outside.having(telling.told.takes) if e.to == str(OWNER)][1:] == []
        assert not await telling.fleet.outside.having(telling.told.drafts)
