"""Of one butler a thousand messages and calls wait for a yes at most, whoever writes them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from shared.errors import InvalidInput
from shared.storage.pending_actions import MOST_WAITING, park_call
from shared.storage.tool_calls import NewCall
from tests.integration.database.test_privileges import logged_in
from tests.integration.house import House
from tests.integration.workers import admitted, enqueue, friend, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAITS: Final = "SELECT count(*) FROM shared.pending_actions WHERE origin_butler = $1 AND status = 'pending'"
CALLS: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, expires_at)
SELECT gen_random_uuid(), 'health', 'water', '{}', gen_random_uuid()::text, clock_timestamp() + interval '1 day'
FROM generate_series(1, $1::int)
"""
OF_THEM: Final = """
INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable)
SELECT a.id, 'health', 'water', '{}', 'Water.', 'low', false FROM shared.pending_actions a
WHERE a.tool_name = 'water' AND NOT EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = a.id)
"""
IN_ITS_NAME: Final = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, status, answer)
SELECT gen_random_uuid(), 'greeter', 'switchboard', 'sandbox', 'forged ' || n, 'forged ' || n, 's',
    '{"origin_butler": "greeter", "delivery": {}}', 'w', true, 'pending_approval', '{}' FROM generate_series(1, $1) n
"""
ASKED_IN_ITS_NAME: Final = """
INSERT INTO shared.pending_actions (origin_butler, tool_args, agent_summary, notification_id, expires_at)
SELECT origin_butler, '{}', '', id, clock_timestamp() + interval '3650 days' FROM shared.notifications
WHERE admitted_by = 'switchboard' AND key LIKE 'forged %'
"""
FORGOTTEN: Final = """
WITH forged AS (DELETE FROM shared.pending_actions a USING shared.notifications n
    WHERE n.id = a.notification_id AND n.key LIKE 'forged %')
DELETE FROM shared.notifications WHERE key LIKE 'forged %'
"""
NOTIFIED: Final = "SELECT count(*) FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def full(still_house: House) -> AsyncIterator[House]:
    """A house in which a thousand of one butler's wait."""
    async with still_house.context("health").db.work() as connection:
        await connection.execute(CALLS, MOST_WAITING - await still_house.sql.fetchval(WAITS, "health"))
        await connection.execute(OF_THEM)
    yield still_house
    await still_house.sql.execute("DELETE FROM shared.pending_actions WHERE tool_name = 'water'")


async def test_one_more_message_is_refused_and_leaves_no_row(full: House, message: str) -> None:
    answer = await full.notify("health", channel="telegram", message=message, recipient=new_chat())
    assert answer["status"] == "error"
    assert str(answer["error"]).startswith("1,000 of your messages and calls wait for the owner already.")
    assert await full.sql.fetchval(NOTIFIED, message) == 0


async def test_one_more_call_is_refused(full: House) -> None:
    new = NewCall(str(uuid4()), "health", "water", "{}", "Water.", "low", repeatable=False)
    with pytest.raises(InvalidInput, match="wait for the owner already"):
        async with full.context("health").db.work() as connection:
            await park_call(connection, new, timedelta(days=1), None)


@pytest.mark.parametrize("name", ["health", "switchboard"])
async def test_no_login_of_a_caller_writes_more(full: House, name: str) -> None:
    async with logged_in(full, name) as connection:
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await connection.execute(CALLS, 1)


async def test_a_hundred_that_the_switchboard_asked_in_its_name_keep_no_butler_from_asking(
    still_house: House, message: str
) -> None:
    async with logged_in(still_house, "switchboard") as connection:
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await connection.execute(IN_ITS_NAME, 101)
    async with still_house.context("switchboard").db.work() as connection:
        await connection.execute(IN_ITS_NAME, 100)
        await connection.execute(ASKED_IN_ITS_NAME)
    async with still_house.context("greeter").db.work() as connection:
        await connection.execute(CALLS.replace("health", "greeter"), MOST_WAITING - 10)
        await connection.execute(OF_THEM.replace("health", "greeter"))
    asked = await still_house.notify("greeter", channel="telegram", message=message, recipient=new_chat())
    await still_house.sql.execute(FORGOTTEN)
    await still_house.sql.execute("DELETE FROM shared.pending_actions WHERE tool_name = 'water'")
    assert asked["status"] == "pending_approval"


async def test_what_is_queued_without_authority_is_no_further_question(full: House, message: str) -> None:
    told = await admitted(full, message, "health", contact_id=await friend(full))
    await full.sql.execute("UPDATE shared.approval_rules SET active = false")
    await enqueue(full, told)
    await work(full.worker())
    row = await full.row("SELECT status, answer FROM shared.notifications WHERE id = $1", told)
    assert (row["status"], row["answer"]["error"]["class"]) == ("error", "forbidden")
    assert await full.sql.fetchval(WAITS, "health") == MOST_WAITING


async def test_nobody_asks_about_neither_a_message_nor_a_call(still_house: House) -> None:
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute(CALLS.replace("health", "greeter"), 1)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="about neither a message nor a call"):
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.slow
async def test_other_butlers_the_owner_and_the_messenger_are_not_held_up(full: House, message: str) -> None:
    told = await full.notify("health", channel="telegram", message=message)
    asked = await full.notify("greeter", channel="telegram", message=message, recipient=new_chat())
    assert (told["status"], asked["status"]) == ("queued", "pending_approval")
    async with full.context("messenger").db.work() as connection:
        await connection.execute(CALLS, 1)


async def test_no_older_snapshot_gets_past_the_bound(still_house: House) -> None:
    async with logged_in(still_house, "health") as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await connection.execute(CALLS, 1)
