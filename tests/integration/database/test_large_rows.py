"""Rows as large as a butler's login may make them: whoever goes through many of them has one at a time."""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import pytest
import pytest_asyncio

from butlers.console.queries import contacts, start_page
from butlers.console.queries.decided import decided
from messenger.delivery import restored
from shared.gate import backtest
from shared.storage import brakes, pending_actions
from switchboard import sweeper
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY: Final = 40
# Of empty objects a row of some kilobytes makes 1.6 MB of memory.
LARGE: Final = """
WITH large AS MATERIALIZED (SELECT (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 24000)) AS empty),
told AS (
    INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
        contact_id, third_party, status, answer)
    SELECT gen_random_uuid(), 'greeter', 'greeter', 'sandbox', 'large ' || n, 'large ' || n, 'sha',
        jsonb_build_object('origin_butler', 'greeter', 'odd', empty,
            'delivery', jsonb_build_object('channel', 'email', 'message', 'x')),
        'contact:' || $1::text, $1::text::uuid, true, 'pending_missing_identifier', '{}'
    FROM large, generate_series(1, $2::int) n RETURNING id)
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, notification_id, status, expires_at)
SELECT gen_random_uuid(), 'greeter', jsonb_build_object('odd', empty), id, 'pending', now() + interval '1 day'
FROM large, told
"""
QUEUED: Final = "UPDATE shared.notifications SET status = 'queued', created_at = created_at - interval '1 hour'"
DECIDED: Final = "UPDATE shared.pending_actions SET status = 'denied'"
CLEAR: Final = ("DELETE FROM shared.pending_actions", "DELETE FROM shared.notifications", "DELETE FROM shared.brakes")
# Of all of them it is 50 MB and more; the sweep has eight at once.
MOST: Final = 45_000_000
WHOM: Final = "SELECT contact_id::text FROM shared.notifications LIMIT 1"
KEPT: Final = (
    "SELECT count(*) FROM shared.pending_actions WHERE revision = 2 AND jsonb_array_length(tool_args -> 'odd') > 9"
)


@pytest_asyncio.fixture(loop_scope="module")
async def large(still_house: House) -> AsyncIterator[House]:
    """A house with such rows, which are gone afterwards."""
    await still_house.sql.execute(LARGE, await still_house.contact("Quinn", telegram=new_chat()), MANY)
    yield still_house
    for statement in CLEAR:
        await still_house.sql.execute(statement)


async def carry_out(house: House) -> None:
    async with house.context("messenger").db.work() as connection:
        await brakes.restored(connection, "messenger", None)
        await restored.carry_out(connection, house.context("messenger"))
    assert await house.sql.fetchval(KEPT) == MANY


async def sweep(house: House) -> None:
    await house.sql.execute(QUEUED)
    assert await sweeper.sweep(house.context("switchboard")) == MANY


async def list_actions(house: House) -> None:
    assert len([row["id"] async for row in pending_actions.list_actions(house.sql, "pending")]) == MANY


async def try_a_rule(house: House) -> None:
    assert await backtest.actions(house.sql) == []


async def start(house: House) -> None:
    assert (await start_page.start(house.sql)).waiting_total == MANY


async def decided_lately(house: House) -> None:
    await house.sql.execute(DECIDED)
    assert len(await decided(house.sql)) == 30


async def without_address(house: House) -> None:
    assert await contacts.groups(house.sql, await house.sql.fetchval(WHOM)) == ()


READERS: Final[Mapping[str, Callable[[House], Awaitable[None]]]] = {
    "a backup that was put back": carry_out,
    "the sweep": sweep,
    "approvals on the command line": list_actions,
    "a rule that is tried": try_a_rule,
    "the start page": start,
    "what was decided": decided_lately,
    "a contact without an address": without_address,
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
async def test_who_goes_through_many_large_rows_never_holds_them_all(large: House, reader: str) -> None:
    tracemalloc.start()
    try:
        await READERS[reader](large)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
