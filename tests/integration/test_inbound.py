"""What comes in from Telegram is handled in turn, and no press of the owner's waits for what strangers write."""

import asyncio
from functools import partial, reduce

import pytest

from messenger import inbound
from messenger.channels.telegram import TelegramChannel
from shared.realms import SANDBOX_TOKEN
from tests.integration.house import House
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOT = "4242"
MESSAGES = """
INSERT INTO messenger.updates (bot, update_id, body)
SELECT $1, n, jsonb_build_object('update_id', n, 'message', jsonb_build_object('message_id', n, 'date', 1790000000,
    'text', $2 || n, 'from', jsonb_build_object('id', 77, 'first_name', 'Sam'),
    'chat', jsonb_build_object('id', 77, 'type', 'private')))
FROM generate_series(1, 300) n
"""
PRESS = """
INSERT INTO messenger.updates (bot, update_id, body)
VALUES ($1, 301, '{"update_id": 301, "callback_query": {"id": "1", "data": "x", "from": {"id": 77}}}')
"""
HANDLED = "SELECT handled_at FROM messenger.updates WHERE bot = $1 AND update_id = $2 AND handled_at IS NOT NULL"
OTHER_BOT = "4243"
UPDATE = "INSERT INTO messenger.updates (bot, update_id, body) VALUES ($1, $2, $3)"
A_MINUTE_AGO = "UPDATE messenger.updates SET received_at = received_at - interval '1 minute' WHERE bot = $1"
OUTCOMES = "SELECT outcome FROM messenger.updates WHERE bot = $1 ORDER BY update_id"
# Deeper than anything is read.
DEEP = reduce(lambda inside, _: [inside], range(200), list[object]())
WRITTEN = {"message_id": 1, "text": "hi", "date": 1790000000, "from": {"id": 77}, "chat": {"id": 77, "type": "private"}}
UPDATES = (
    {"callback_query": {"id": "1", "data": "x", "from": {"id": 77}, "deep": DEEP}},
    {"message": {**WRITTEN, "deep": DEEP}},
    {"callback_query": {"id": "1", "data": "x", "from": {"id": 77}}},
    {"message": WRITTEN},
)
AFTER_THE_PRESS = """
SELECT count(*) FROM messenger.updates m JOIN messenger.updates p ON p.bot = m.bot AND p.update_id = 301
WHERE m.bot = $1 AND m.update_id <= 300 AND m.handled_at > p.handled_at
"""


async def test_a_press_does_not_wait_for_all_that_strangers_wrote_before_it(still_house: House, message: str) -> None:
    desk = still_house.desk()
    telegram, stopping = desk.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    assert not SANDBOX_TOKEN.startswith(BOT)
    await still_house.sql.execute(MESSAGES, BOT, message)
    handling = asyncio.ensure_future(inbound.handle(desk, telegram, BOT, stopping))
    try:
        await eventually(partial(still_house.sql.fetchrow, HANDLED, BOT, 1))
        await still_house.sql.execute(PRESS, BOT)
        await eventually(partial(still_house.sql.fetchrow, HANDLED, BOT, 301))
        await eventually(partial(still_house.sql.fetchrow, HANDLED, BOT, 300))
    finally:
        stopping.set()
        await handling
    assert await still_house.sql.fetchval(AFTER_THE_PRESS, BOT) > 0


async def test_what_fails_stops_nothing_after_it_and_is_over_after_a_minute(still_house: House) -> None:
    desk = still_house.desk()
    telegram, stopping = desk.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    for number, body in enumerate(UPDATES, 1):
        await still_house.sql.execute(UPDATE, OTHER_BOT, number, body)
    handling = asyncio.ensure_future(inbound.handle(desk, telegram, OTHER_BOT, stopping))
    try:
        for number in (3, 4):
            await eventually(partial(still_house.sql.fetchrow, HANDLED, OTHER_BOT, number))
        for number in (1, 2):
            assert await still_house.sql.fetchrow(HANDLED, OTHER_BOT, number) is None, "another try may mend it"
        await still_house.sql.execute(A_MINUTE_AGO, OTHER_BOT)
        for number in (1, 2):
            await eventually(partial(still_house.sql.fetchrow, HANDLED, OTHER_BOT, number))
    finally:
        stopping.set()
        await handling
    rows = await still_house.sql.fetch(OUTCOMES, OTHER_BOT)
    assert [row["outcome"] for row in rows] == ["failed", "failed", "not_ours", "ingested"]
