"""A question that Telegram does not take reaches the owner by mail as well."""

from uuid import uuid4

import pytest

from messenger.cards import kinds
from shared.config.timings import STANDARD
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANNELS = "SELECT channel FROM messenger.deliveries WHERE action_id = $1 ORDER BY created_at"
ENDED = "UPDATE messenger.deliveries SET status = $2 WHERE action_id = $1"
OLDER = "UPDATE messenger.deliveries SET created_at = created_at - make_interval(secs => $2) WHERE action_id = $1"


async def asked(house: House) -> object:
    answer = await house.notify(message=f"words {uuid4()}", contact_id=await house.contact("Zoe", telegram=new_chat()))
    return answer["action_id"]


async def channels(house: House, action_id: object) -> list[str]:
    """Bys it is asked, once what is missing is written."""
    async with house.context("messenger").db.work() as connection:
        await kinds.write_missing(connection, 1000, STANDARD)
    return [row["channel"] for row in await house.sql.fetch(CHANNELS, action_id)]


async def test_a_card_that_telegram_refused_is_mailed(still_house: House) -> None:
    action = await asked(still_house)
    assert await channels(still_house, action) == ["telegram"]
    await still_house.sql.execute(ENDED, action, "failed")
    assert await channels(still_house, action) == ["telegram", "email"]
    assert await channels(still_house, action) == ["telegram", "email"]


@pytest.mark.parametrize(
    ("seconds", "status", "expected"),
    [
        (61, "queued", ["telegram", "email"]),
        (50, "queued", ["telegram"]),
        (61, "sent", ["telegram"]),
    ],
)
async def test_a_card_that_telegram_does_not_take_for_a_minute_is_mailed(
    still_house: House, seconds: int, status: str, expected: list[str]
) -> None:
    action = await asked(still_house)
    await channels(still_house, action)
    await still_house.sql.execute(ENDED, action, status)
    await still_house.sql.execute(OLDER, action, seconds)
    assert await channels(still_house, action) == expected
