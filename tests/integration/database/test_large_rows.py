"""Rows as large as a butler's login may make them: whoever goes through many of them has one at a time."""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import pytest
import pytest_asyncio

from butlers.console.queries import start_page
from butlers.console.queries.decided import decided
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
DECIDED: Final = "UPDATE shared.pending_actions SET status = 'denied'"
CLEAR: Final = ("DELETE FROM shared.pending_actions", "DELETE FROM shared.notifications")
# Of all of them it is 50 MB and more.
MOST: Final = 45_000_000


@pytest_asyncio.fixture(loop_scope="module")
async def large(still_house: House) -> AsyncIterator[House]:
    """A house with such rows, which are gone afterwards."""
    await still_house.sql.execute(LARGE, await still_house.contact("Quinn", telegram=new_chat()), MANY)
    yield still_house
    for statement in CLEAR:
        await still_house.sql.execute(statement)


async def start(house: House) -> None:
    assert (await start_page.start(house.sql)).waiting_total == MANY


async def decided_lately(house: House) -> None:
    await house.sql.execute(DECIDED)
    assert len(await decided(house.sql)) == 30


READERS: Final[Mapping[str, Callable[[House], Awaitable[None]]]] = {
    "the start page": start,
    "what was decided": decided_lately,
}


@pytest.mark.parametrize("reader", READERS)
async def test_who_goes_through_many_large_rows_never_holds_them_all(large: House, reader: str) -> None:
    tracemalloc.start()
    try:
        await READERS[reader](large)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
