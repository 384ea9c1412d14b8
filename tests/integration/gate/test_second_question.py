"""A second question about one message, which no policy lets in, moves nothing if it is there all the same."""

from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest

from messenger.inbound.updates import FAILED
from messenger.maintenance import reaper
from shared.storage import contacts, pending_actions
from shared.storage.pending_actions import Parked
from tests.integration.doubts import newest_card
from tests.integration.house import House
from tests.integration.workers import ACTION, admitted, friend, new_chat
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

STANDS = "UPDATE shared.notifications SET status = $2 WHERE id = $1"
HOW = "SELECT status, answer, owner_text, updated_at FROM shared.notifications WHERE id = $1"
OVER = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1"
OF = "SELECT status, revision, content_sha FROM shared.pending_actions WHERE id = $1"


async def asked_again(house: House, told: str) -> str:
    """The id of one more question about it, put there by whoever owns the database."""
    row = await house.row("SELECT origin_butler, content_sha FROM shared.notifications WHERE id = $1", told)
    parked = Parked(str(uuid4()), told, row["origin_butler"], {}, row["content_sha"], "One more.")
    await pending_actions.park(house.sql, parked, timedelta(hours=1), row["origin_butler"])
    return parked.action_id


@pytest.mark.parametrize("stands", ["ok", "error", "queued", "uncertain"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_word_on_what_waits_for_nobody_changes_nothing(
    still_house: House, message: str, stands: str, *, approve: bool
) -> None:
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    await still_house.sql.execute(STANDS, told, stands)
    action = await asked_again(still_house, told)
    before = [await still_house.row(HOW, told), await still_house.row(OF, action)]
    assert (await still_house.decide(action, approve=approve)).code == "impossible"
    assert [await still_house.row(HOW, told), await still_house.row(OF, action)] == before


@pytest.mark.parametrize("stands", ["ok", "queued", "uncertain"])
async def test_a_question_that_nobody_answers_changes_no_message_that_does_not_wait(
    still_house: House, message: str, stands: str
) -> None:
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    await still_house.sql.execute(STANDS, told, stands)
    action = await asked_again(still_house, told)
    await still_house.sql.execute(OVER, action)
    before = await still_house.row(HOW, told)
    async with still_house.context("messenger").db.work() as connection:
        assert await reaper.close_unanswered(connection) >= 1
    assert (await still_house.row(OF, action))["status"] == "expired"
    assert await still_house.row(HOW, told) == before


@pytest.mark.parametrize("approve", [True, False])
async def test_a_word_on_what_is_short_of_an_identifier_or_waits_counts(
    still_house: House, message: str, *, approve: bool
) -> None:
    zoe = await still_house.contact("Zoe", email=f"{uuid4().hex}@example.org")
    told = await admitted(still_house, message, contact_id=zoe)
    assert await still_house.status(told) == "pending_missing_identifier"
    await contacts.add_address(still_house.sql, zoe, "telegram", new_chat())
    action = (await still_house.row(ACTION, told))["id"]
    codes = [(await still_house.decide(action, approve=approve)).code for _ in range(2)]
    assert codes == (["changed", "approved"] if approve else ["denied", "late"])


async def test_a_press_that_cannot_be_carried_out_keeps_no_other_waiting(house: House, message: str) -> None:
    answer = await house.notify(message=message, contact_id=await house.contact("Zoe"))
    [asked] = await until(lambda: house.cards(message))
    await house.fault(message, "accept_reset", times=1)
    await house.press(asked)
    told = str(answer["notification_id"])
    await house.settled(told, "uncertain")
    card = await eventually(partial(newest_card, house, told))
    await asked_again(house, told)
    first = await house.tap(card, "ag")
    assert await until(lambda: house.sent(FAILED, "answerCallbackQuery"))
    assert await house.status(told) == "uncertain"
    assert (await house.press(card, "lv"))["outcome"] == "leave_done"
    assert (await house.handled(first))["outcome"] == "again_late", "it is tried again, and comes too late"
