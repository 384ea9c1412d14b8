"""Calls of gated tools in a backup that was put back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from shared.gate.tool_call import Declared, admit_call
from shared.storage.tool_calls import NewCall
from tests.integration.delivery.test_restoring import found_restored
from tests.integration.house import House, opened
from tests.rig.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVE = "UPDATE shared.pending_actions SET status = 'approved' WHERE id = $1"
HOLD_CALL = "SELECT FROM shared.pending_actions WHERE id = $1 FOR NO KEY UPDATE"
STATUS = "SELECT status FROM shared.pending_actions WHERE id = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def house(cluster: Cluster) -> AsyncIterator[House]:
    """A house of the test's own in which nothing moves by itself."""
    async with opened(cluster, loops=False) as made:
        yield made


async def test_a_call_that_its_butler_holds_keeps_nothing_else_from_being_carried_out(
    house: House, message: str
) -> None:
    call, free = (
        NewCall(str(uuid4()), "greeter", f"tool {n} {message}", "{}", "Call it.", "low", repeatable=False)
        for n in range(2)
    )
    for one in (call, free):
        async with house.context("greeter").db.work() as connection:
            await admit_call(connection, one, Declared("rules", "low"), timedelta(hours=72))
        await house.sql.execute(APPROVE, UUID(one.id))
    async with house.context("greeter").db.work() as holding:
        await holding.execute(HOLD_CALL, UUID(call.id))
        async with asyncio.timeout(3):
            await found_restored(house)
    assert await house.sql.fetchval(STATUS, UUID(free.id)) == "uncertain"
    assert await house.sql.fetchval(STATUS, UUID(call.id)) == "approved"
