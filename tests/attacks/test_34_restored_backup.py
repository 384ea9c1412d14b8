"""A backup is put back, and what had left since is to leave again.

Each attempt begins with a house of which a backup was made and that went on; nobody attacks but time. What left for
third parties afterwards without the owner's word got through.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.rig.bench import Bench
from tests.rig.drill import Drill, gone_on
from tests.rig.fleet import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

# Two rounds of every sweep.
SECONDS = 5
# A lease and a sweep.
PAST_THE_LEASE = 9


@pytest_asyncio.fixture(loop_scope="module")
async def drill(bench: Bench) -> AsyncIterator[Drill]:
    """A fleet of which a backup was made, and that went on; its database is put back."""
    async with gone_on(bench) as made:
        await made.put_back_database()
        yield made


async def test_what_waited_in_it_goes_out_again(drill: Drill) -> None:
    await drill.start()
    await drill.lift_all()
    await asyncio.sleep(SECONDS)
    assert await drill.for_others() == []


async def test_a_call_of_the_lost_span_is_made_again_after_the_owner_has_looked(drill: Drill) -> None:
    await drill.start()
    await drill.lift_all()
    await drill.again(drill.lost)
    await asyncio.sleep(SECONDS)
    assert await drill.for_others() == []


async def test_the_witness_is_taken_away_first(drill: Drill) -> None:
    (drill.fleet.house.home / "keys" / "messenger" / "witness").unlink(missing_ok=True)
    await drill.start()
    await drill.lift_all()
    await drill.again(drill.lost)
    await asyncio.sleep(SECONDS)
    assert await drill.for_others() == []


async def test_the_rows_of_the_last_moment_before_a_marker_come_back_after_a_crash(bench: Bench) -> None:
    drill = Drill(bench, await Fleet.start(await bench.house(), "one"))
    try:
        ruled, _ = await drill.somebody_ruled()
        await asyncio.sleep(2)
        said = await drill.crash_after(ruled)
        await drill.start()
        await drill.lift_all()
        await asyncio.sleep(PAST_THE_LEASE)
        assert await drill.for_others() == []
        assert (await drill.again(said), await drill.status(said)) == ("uncertain", "uncertain uncertain")
    finally:
        await drill.fleet.abandon()


async def test_a_rule_that_was_revoked_since_counts_again(bench: Bench) -> None:
    """Nothing was sent to others since the backup was made."""
    drill = Drill(bench, await Fleet.start(await bench.house(), "one"))
    try:
        ruled, _ = await drill.somebody_ruled()
        kept = await drill.dumped()
        rule = await drill.fleet.value("SELECT id::text FROM shared.approval_rules")
        code, _, err = await drill.fleet.house.butlers("rules", "revoke", str(rule))
        assert code == 0, err
        await drill.sealed()
        await asyncio.sleep(SECONDS)
        await drill.stop()
        await drill.put_back_dump(kept)
        await drill.start()
        await drill.tell(ruled, "by a rule that was revoked")
        await asyncio.sleep(SECONDS)
        assert await drill.for_others() == []
    finally:
        await drill.fleet.abandon()
