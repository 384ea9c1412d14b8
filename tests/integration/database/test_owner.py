"""Who the owner is, as the environment says it at each start."""

from dataclasses import replace

import pytest

from butlers.setup import owner
from shared.storage import contacts
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")
ADDRESSES = """
SELECT array_agg(i.value) FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
WHERE 'owner' = ANY (c.roles) AND i.type = 'telegram'
"""


async def test_a_variable_gives_the_owner_back_no_address_that_was_taken_off(still_house: House) -> None:
    sql, first, second = still_house.sql, new_chat(), new_chat()
    settings = replace(still_house.settings, owner_telegram=first)
    change = sql.transaction()
    await change.start()
    try:
        found = await contacts.owner(sql)
        assert found is not None
        assert await owner.ensure(sql, settings) == []
        assert await sql.fetchval(ADDRESSES) == [first], "in the place of the invented one"
        await contacts.add_address(sql, found["id"], "telegram", second, primary=True)
        await contacts.remove_address(sql, found["id"], "telegram", first)
        [unused] = await owner.ensure(sql, settings)
        assert await sql.fetchval(ADDRESSES) == [second]
        assert unused.startswith("BUTLERS_OWNER_TELEGRAM is set to an address that is none of yours")
    finally:
        await change.rollback()
