"""The owner is told how it ended: on the card of a yes, and by a message of its own where nothing was delivered."""

from collections.abc import Mapping

import pytest

from messenger.delivery import expire
from messenger.maintenance import reaper, rechecker
from messenger.storage import cards, transitions
from shared.config.timings import STANDARD
from shared.gate.delays import NOT_SENT_YET
from shared.storage import brakes, contacts
from shared.storage.brakes import Scope
from tests.integration.delivery.test_half_sent import in_two
from tests.integration.doubts import all_cards, cards_written, closed, say, shown
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import PAST, admitted, enqueue, friend, in_queue, new_chat, work
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES_OFF = "UPDATE shared.approval_rules SET active = false"
OUT_OF_TIME = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE notification_id = $1"


def told_of(house: House, message: str) -> list[str]:
    """What the owner was told about the end of a message with these words."""
    texts = [(line["to"], str(line["payload"].get("text"))) for line in house.box.sandbox.lines]  # type: ignore[attr-defined]
    return [text for to, text in texts if to == str(OWNER) and "Not delivered:" in text and message in text]


async def asked(house: House, message: str, chat: str) -> Mapping[str, object]:
    """The card of a message to Frank in this chat."""
    frank = await house.contact("Frank", telegram=chat)
    await house.notify(message=message, contact_id=frank)
    await until(lambda: house.cards(message))
    return house.cards(message)[-1]


async def shows(house: House, card: Mapping[str, object], words: str) -> None:
    """Wait until the card ends with these words."""

    def found() -> bool:
        try:
            return shown(house, card).rstrip().endswith(words)
        except IndexError:
            return False

    await until(found)


@pytest.mark.parametrize(
    ("fault", "because"), [("403", "Frank has blocked the bot."), ("400", "Frank has never started the bot")]
)
async def test_a_yes_whose_message_is_refused_ends_on_the_card_and_in_a_message(
    house: House, message: str, fault: str, because: str
) -> None:
    chat = new_chat()
    card = await asked(house, message, chat)
    await house.fault(message, fault, times=1)
    await house.press(card)
    await shows(house, card, "Approved. Not delivered.")
    await until(lambda: told_of(house, message))
    (text,) = told_of(house, message)
    for words in (
        "greeter's message to Frank by Telegram",
        chat,
        because,
        "The provider rejected it:",
        message,
        "/deliveries/",
    ):
        assert words in text, text


async def test_of_what_left_in_part_the_card_offers_no_retry(still_house: House, message: str) -> None:
    told = await in_queue(still_house, in_two(message))
    await still_house.fault(f"last {message}", "403", times=1)
    for _ in range(2):
        await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    await cards_written(still_house)
    await all_cards(still_house)
    texts = [str(line["payload"].get("text")) for line in still_house.box.sandbox.lines if line["to"] == str(OWNER)]  # type: ignore[attr-defined]
    (text,) = [one for one in texts if "Part of it may have arrived, so it is not tried again." in one]
    assert "Not delivered in full: greeter's message" in text
    assert "Try it again" not in text


async def test_a_yes_whose_message_arrives_ends_on_the_card_alone(house: House, message: str) -> None:
    card = await asked(house, message, new_chat())
    await house.press(card)
    await shows(house, card, "Approved. Sent.")
    assert told_of(house, message) == []


async def test_a_yes_shows_that_it_is_being_sent_and_then_the_end(still_house: House, message: str) -> None:
    frank = await still_house.contact("Frank", telegram=new_chat())
    answer = await still_house.notify(message=message, contact_id=frank)
    await cards_written(still_house)
    await all_cards(still_house)
    (card,) = still_house.cards(message)
    await still_house.decide(answer["action_id"])
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Sending.")
    await enqueue(still_house, str(answer["notification_id"]))
    await work(still_house.worker())
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Sent.")


async def test_a_yes_to_what_ran_out_of_time_before_counts(house: House, message: str) -> None:
    """As after `deliveries retry`: the time of a message begins when it is let out."""
    answer = await house.notify(message=message, contact_id=await house.contact("Frank", telegram=new_chat()))
    await house.sql.execute(PAST, answer["notification_id"])
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")


async def test_a_yes_under_a_brake_shows_that_nothing_is_sent_yet(still_house: House, message: str) -> None:
    frank = await still_house.contact("Frank", telegram=new_chat())
    scope, owner = Scope(contact_id=frank), await contacts.owner(still_house.sql)
    assert owner is not None
    await brakes.put_on(still_house.sql, scope, str(owner["id"]))
    answer = await still_house.notify(message=message, contact_id=frank)
    await cards_written(still_house)
    await all_cards(still_house)
    (card,) = still_house.cards(message)
    assert (await still_house.decide(answer["action_id"])).text == NOT_SENT_YET
    await closed(still_house)
    assert shown(still_house, card).endswith(NOT_SENT_YET)
    await brakes.lift(still_house.sql, scope, str(owner["id"]))
    await enqueue(still_house, str(answer["notification_id"]))
    await work(still_house.worker())
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Sent.")


async def test_what_a_rule_let_out_and_was_out_of_time_is_told(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(PAST, told)
    async with still_house.context("messenger").db.work() as connection:
        await expire.end_late(connection)
    await cards_written(still_house)
    await all_cards(still_house)
    (text,) = told_of(still_house, message)
    assert "Expired before" in text


async def test_what_the_owner_was_to_be_told_and_did_not_go_is_told_too(still_house: House, message: str) -> None:
    await still_house.fault(message, "403", times=1)
    await enqueue(still_house, await admitted(still_house, message))
    for _ in range(20):  # the owner's chat takes one at a time, those of other tests too
        await work(still_house.worker())
    await cards_written(still_house)
    await all_cards(still_house)
    (text,) = told_of(still_house, message)
    assert "Not delivered: greeter's message to Owner by Telegram" in text


CARDS = """
SELECT channel, status FROM messenger.deliveries
WHERE card_kind = 'not_delivered' AND about::text = $1 ORDER BY created_at
"""


async def test_where_telegram_refuses_that_card_too_it_is_mailed(still_house: House, message: str) -> None:
    await still_house.fault(message, "403", times=2)
    told = await admitted(still_house, message)
    await enqueue(still_house, told)
    for _ in range(20):  # the owner's chat takes one at a time, those of other tests too
        await work(still_house.worker())
    for _ in range(3):
        await cards_written(still_house)
        await all_cards(still_house)
    cards_of = await still_house.sql.fetch(CARDS, str((await still_house.delivery(told))["id"]))
    assert [tuple(one) for one in cards_of] == [("telegram", "failed"), ("email", "sent")]


async def test_what_nobody_answered_in_time_is_told_on_its_card_alone(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(RULES_OFF)
    await work(still_house.worker())
    await still_house.sql.execute(OUT_OF_TIME, told)
    async with still_house.context("messenger").db.work() as connection:
        assert await reaper.close_unanswered(connection) == 1
        await transitions.close_answered(connection)
    assert (await still_house.delivery(told))["status"] == "cancelled"
    await cards_written(still_house)
    await all_cards(still_house)
    assert told_of(still_house, message) == []


async def test_what_a_rule_let_out_once_there_was_an_address_and_is_refused_is_told(
    still_house: House, message: str
) -> None:
    bo = await still_house.contact("Bo", email=f"{new_chat()}@example.org")
    told = await admitted(still_house, message, contact_id=bo)
    assert await still_house.status(told) == "pending_missing_identifier"
    await still_house.rule({"contact_id": bo})
    await contacts.add_address(still_house.sql, bo, "telegram", new_chat())
    await rechecker.identified(still_house.context("messenger"))
    await enqueue(still_house, told)
    await still_house.fault(message, "403", times=1)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    await cards_written(still_house)
    await all_cards(still_house)
    assert len(told_of(still_house, message)) == 1


async def test_what_is_tried_again_and_runs_out_of_time_before_that_is_told_too(
    still_house: House, message: str
) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, "403", times=1)
    await work(still_house.worker())
    await cards_written(still_house)
    await all_cards(still_house)
    assert len(told_of(still_house, message)) == 1
    await say(still_house, told, "retry")
    await enqueue(still_house, told)
    await still_house.sql.execute(PAST, told)
    async with still_house.context("messenger").db.work() as connection:
        await expire.end_late(connection)
    assert (await still_house.delivery(told))["status"] == "dead"
    await cards_written(still_house)
    await all_cards(still_house)
    assert len(told_of(still_house, message)) == 2


async def test_a_butler_whose_messages_fail_in_numbers_does_not_flood_the_owner(
    still_house: House, message: str
) -> None:
    to = await friend(still_house)
    for n in range(5):
        await enqueue(still_house, await admitted(still_house, f"{message} {n}", "health", contact_id=to))
    await still_house.fault(message, "403", times=5)
    for _ in range(5):
        await work(still_house.worker())
    async with still_house.context("messenger").db.work() as connection:
        assert await cards.ask_not_delivered(connection, 3, STANDARD) == 3
        assert await cards.ask_not_delivered(connection, 3, STANDARD) == 0
