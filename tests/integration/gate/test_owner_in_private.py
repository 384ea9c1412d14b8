"""The owner's Telegram entry is a private chat: on every surface, and whoever writes the row."""

import asyncio
from importlib import import_module
from typing import Final

import asyncpg
import pytest

from shared.errors import InvalidInput
from shared.storage import contacts
from tests.integration.commands import call
from tests.integration.house import House
from tests.integration.workers import forced_on_the_owner, new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")
ENTRIES: Final = """
SELECT array_agg(i.value ORDER BY i.created_at) FROM shared.contact_info i JOIN shared.contacts o ON o.id = i.contact_id
WHERE 'owner' = ANY (o.roles) AND i.type = 'telegram'
"""
ADD: Final = """
INSERT INTO shared.contact_info (contact_id, type, value)
SELECT id, 'telegram', $1 FROM shared.contacts WHERE 'owner' = ANY (roles)
"""
MOVE_ENTRY: Final = (
    "UPDATE shared.contact_info SET contact_id = $2::text::uuid, is_primary = false WHERE contact_id = $1::text::uuid"
)
NOT_PRIVATE: Final = ("-100777", "@the_owner", "telegram: -100777", "0")


@pytest.mark.parametrize("value", NOT_PRIVATE)
async def test_no_row_says_that_the_owner_is_in_a_group(house: House, value: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="not a private chat"):
        await house.sql.execute(ADD, value)


async def test_no_entry_moves_to_the_owner_and_nobody_becomes_the_owner_with_one(house: House) -> None:
    group = await house.contact("Family", telegram=f"-{new_chat()}")
    owner = await contacts.owner(house.sql)
    assert owner is not None
    with pytest.raises(asyncpg.CheckViolationError, match="not a private chat"):
        await house.sql.execute(MOVE_ENTRY, group, owner["id"])
    swap = house.sql.transaction()
    await swap.start()
    try:
        await house.sql.execute("UPDATE shared.contacts SET roles = '{}' WHERE 'owner' = ANY (roles)")
        with pytest.raises(asyncpg.CheckViolationError, match="not a private chat"):
            await house.sql.execute("UPDATE shared.contacts SET roles = '{owner}' WHERE id = $1::text::uuid", group)
    finally:
        await swap.rollback()


async def test_an_upgrade_keeps_the_owners_group_as_a_contact_of_its_own(house: House) -> None:
    chat = f"-{new_chat()}"
    await forced_on_the_owner(house, chat)
    await house.sql.execute(import_module("migrations.versions.0040_owner_in_private").MOVE)
    target = await contacts.target_of(house.sql, contacts.Recipient("recipient", chat), "telegram")
    assert isinstance(target, contacts.Target)
    assert (target.contact_name, target.is_owner, target.address) == ("Owner (group)", False, chat)


async def test_each_surface_says_so_in_a_sentence_and_writes_nothing(house: House) -> None:
    owner, before = await contacts.owner(house.sql), await house.sql.fetchval(ENTRIES)
    assert owner is not None
    with pytest.raises(InvalidInput, match="-100777 cannot be the owner's: it is not the number of"):
        await contacts.add_address(house.sql, owner["id"], "telegram", "-100777")
    ended = await asyncio.to_thread(call, house, "contacts", "set", owner["id"], "--telegram", "-100777")
    assert (ended.exit_code, ended.exception is not None) == (1, True)
    assert await house.sql.fetchval(ENTRIES) == before
