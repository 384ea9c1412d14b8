"""What a unit of work says of a statement that failed, so that its caller knows whether the same one may work later."""

import asyncio

import pytest

from shared.db.pool import BRIEFLY
from shared.errors import Away, ButlersError, Locked
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOR_A_BLINK = "SET LOCAL statement_timeout = '50ms'"
IDLE_FOR_A_BLINK = "SET LOCAL idle_in_transaction_session_timeout = '50ms'"
HOLD = "LOCK TABLE shared.questions IN ACCESS EXCLUSIVE MODE"


async def asked(house: House, first: str | None, statement: str, number: int) -> None:
    async with house.context("messenger").db.work(first) as connection:
        await asyncio.sleep(0.1)
        await connection.fetch(statement, number)


@pytest.mark.parametrize(
    ("first", "statement", "number", "told"),
    [
        pytest.param(FOR_A_BLINK, "SELECT pg_sleep($1)", 5, Locked, id="too long"),
        pytest.param(BRIEFLY, "SELECT $1::int FROM shared.questions", 1, Locked, id="held"),
        pytest.param(None, "SELECT $1::bigint", 2**70, ButlersError, id="too large a number"),
        pytest.param(None, "SELECT 1 / $1::int", 0, ButlersError, id="refused"),
        pytest.param(IDLE_FOR_A_BLINK, "SELECT $1::int", 1, Away, id="lost"),
    ],
)
async def test_only_a_database_that_is_not_there_is_called_away(
    still_house: House, first: str | None, statement: str, number: int, told: type[ButlersError]
) -> None:
    async with still_house.sql.transaction():
        await still_house.sql.execute(HOLD)
        with pytest.raises(ButlersError) as said:
            await asked(still_house, first, statement, number)
    assert type(said.value) is told
