"""What a butler's login leaves open for too long is ended, whatever times it sets; the house's own goes on."""

from datetime import timedelta
from functools import partial

import pytest

from messenger.maintenance import watchdog
from shared.auth import keystore
from shared.db.pool import LOST
from tests.integration.database.test_hardening import logged_in
from tests.integration.house import House, Rows
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; BEGIN; SELECT FROM shared.state"


async def is_ended(connection: Rows) -> bool:
    try:
        await connection.fetchval("SELECT 1")
    except LOST:
        return True
    return False


async def test_a_butlers_transaction_that_lasts_too_long_is_ended_and_nobody_elses(still_house: House) -> None:
    context = still_house.context("messenger", longest_transaction=timedelta(0))
    async with (
        logged_in(still_house, "greeter") as held,
        logged_in(still_house, "health") as idle,
        logged_in(still_house, keystore.UP) as house,
        logged_in(still_house, "switchboard") as switchboard,
        still_house.sql.transaction(),
    ):
        await held.execute(OPEN)
        await house.execute("BEGIN")
        await switchboard.execute(OPEN)
        assert await watchdog.look(still_house.context("messenger"))
        assert await held.fetchval("SELECT 1") == 1
        assert await watchdog.look(context)
        await eventually(partial(is_ended, held))
        for spared in (idle, house, switchboard, still_house.sql):
            assert await spared.fetchval("SELECT 1") == 1
