"""What may have arrived: the card about it, the owner's three answers, and the machine's one repeat to the owner."""

import asyncio
from collections.abc import Mapping
from functools import partial
from uuid import uuid4

import pytest

from messenger.channels.telegram import TelegramChannel
from messenger.inbound import updates as updates_inbound
from messenger.maintenance import resolver
from messenger.storage import updates
from shared.answers import EARLIER
from shared.channels.realms import SANDBOX_TOKEN
from shared.hashing import reference
from shared.storage import resolutions, withdrawals
from shared.storage.resolutions import Resolution, Word
from tests.integration.doubts import (
    ATTEMPTS,
    CARDS_ABOUT,
    RECEIPTS,
    all_cards,
    answer,
    card_of,
    cards_written,
    closed,
    error,
    newest_card,
    say,
    shown,
    uncertain,
)
from tests.integration.gate.test_threads import by_telegram, received, said
from tests.integration.house import House, button_data
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, DUE, admitted, due, enqueue, friend, in_queue, new_chat, work
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLDER = "UPDATE messenger.deliveries SET settled_at = settled_at - interval '11 seconds' WHERE notification_id = $1"
TOLD = "SELECT outcome FROM shared.resolutions WHERE delivery_id = $1 ORDER BY at"
PAST = "UPDATE shared.notifications SET not_after = clock_timestamp() - interval '1 second' WHERE id = $1"
USES = "SELECT count(*) FROM shared.rule_uses WHERE rule_id = $1"
LONG = "\n".join(f"line {n} of a text that is longer than one message may be" for n in range(160))


async def test_the_owner_is_shown_what_whom_when_and_why_with_three_answers(still_house: House, message: str) -> None:
    chat = new_chat()
    anna = await still_house.contact("Anna", telegram=chat)
    await still_house.rule({"contact_id": anna})
    told = await uncertain(still_house, message, contact_id=anna)
    card = await card_of(still_house, told)
    text = str(card["payload"]["text"])  # type: ignore[index]
    delivery = await still_house.delivery(told)
    for words in (
        f"(ref {reference(delivery['id'])})",
        f"From greeter to Anna ({chat}) on Telegram",
        "attempt 1 was sent at 20",
        "the connection was lost before the answer",
        message,
    ):
        assert words in text, text
    assert card["to"] == str(OWNER)
    assert [data.split(":")[2] for data in button_data(card)] == ["ar", "ag", "lv"]
    assert all(len(data.encode()) <= 64 for data in button_data(card))
    assert await cards_written(still_house) == 0


UNSENT = "UPDATE messenger.deliveries SET status = 'failed' WHERE card_kind = 'uncertain' AND about = $1"


async def test_a_mail_about_it_asks_what_became_of_it(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    await cards_written(still_house)
    delivery = await still_house.delivery(told)
    await still_house.sql.execute(UNSENT, delivery["id"])
    await cards_written(still_house)
    await all_cards(still_house)
    mails = [str(line) for line in still_house.box.sandbox.lines if message in str(line) and "Subject" in str(line)]
    assert ["Say what became of it: http" in mail and "Approve or deny" not in mail for mail in mails] == [True]


async def test_it_arrived_ends_it_as_sent_with_the_owners_word_for_a_receipt(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    assert await say(still_house, told, "arrived") == "done"
    assert (await still_house.delivery(told))["status"] == "sent"
    assert [tuple(row) for row in await still_house.sql.fetch(RECEIPTS, told)] == [("sent", resolver.CONFIRMED)]
    found = await answer(still_house, told)
    assert found["status"] == "ok"
    assert found["delivery"]["delivery_id"] == resolver.CONFIRMED  # type: ignore[index]
    assert "The owner confirmed that it arrived" in str(found["note"])
    assert len(still_house.sent(message)) == 1


async def test_leave_it_is_final_and_says_so(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    assert await say(still_house, told, "leave") == "done"
    assert (await still_house.delivery(told))["status"] == "abandoned"
    found = await answer(still_house, told)
    assert (found["status"], found["error"]["retryable"]) == ("uncertain", False)  # type: ignore[index]
    assert "the owner closed it" in str(found["message"])
    assert [await say(still_house, told, "again"), await say(still_house, told, "arrived")] == ["late", "late"]
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_send_again_makes_one_more_attempt_however_often_it_is_said(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    assert [await say(still_house, told, "again", 1), await say(still_house, told, "again", 1)] == ["done", "late"]
    assert await still_house.status(told) == "queued"
    await work(still_house.worker())
    assert await say(still_house, told, "again", 1) == "late"
    await work(still_house.worker())
    assert [row["outcome"] for row in await still_house.sql.fetch(ATTEMPTS, told)] == ["connection_lost", "sent"]
    assert len(still_house.sent(message)) == 2
    found = await answer(still_house, told)
    assert found["status"] == "ok"
    assert "may have arrived twice" in str(found["note"])


async def test_of_words_from_many_surfaces_the_first_counts(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    delivery = await still_house.delivery(told)
    by = await still_house.row("SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)")
    words: tuple[Word, ...] = ("again", "leave", "again", "arrived")
    for word in words:
        async with still_house.context("messenger").db.work() as connection:
            await resolutions.ask(connection, Resolution(delivery["id"], 1, word, by["id"], "test"))
    contexts = [still_house.context("messenger")] * 3
    await asyncio.gather(*(resolver.carry_out(context) for context in contexts))
    assert [row["outcome"] for row in await still_house.sql.fetch(TOLD, delivery["id"])] == ["done", *["late"] * 3]
    await work(still_house.worker())
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 2


async def test_what_no_rule_allows_any_more_is_asked_before_it_goes_again(still_house: House, message: str) -> None:
    anna = await still_house.contact("Anna", telegram=new_chat())
    rule = await still_house.rule({"contact_id": anna})
    told = await uncertain(still_house, message, contact_id=anna)
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == (
        "parked",
        "pending_approval",
    )
    assert len(still_house.sent(message)) == 1


async def test_an_approved_message_goes_again_under_the_same_yes(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Bea", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await still_house.decide(action["id"])
    await still_house.fault(message, "accept_reset", times=1)
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert (await still_house.row(ACTION, told))["status"] == "uncertain"
    await still_house.sql.execute(PAST, told)
    assert await say(still_house, told, "again") == "done"
    assert (await still_house.row(ACTION, told))["status"] == "executing"
    await work(still_house.worker())
    assert ((await still_house.row(ACTION, told))["status"], await still_house.status(told)) == ("executed", "ok")


@pytest.mark.parametrize(("word", "status"), [("arrived", "executed"), ("leave", "uncertain")])
async def test_the_action_ends_with_its_delivery(still_house: House, message: str, word: Word, status: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Cleo", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await still_house.decide(action["id"])
    await still_house.fault(message, "accept_reset", times=1)
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert await say(still_house, told, word) == "done"
    assert (await still_house.row(ACTION, told))["status"] == status


async def test_a_part_that_arrived_is_followed_by_the_parts_nobody_tried(still_house: House, message: str) -> None:
    told = await in_queue(still_house, f"first {message}\n{LONG}\nlast {message}")
    await still_house.fault(f"first {message}", "accept_reset", times=1)
    await work(still_house.worker())
    assert await still_house.status(told) == "uncertain"
    assert await say(still_house, told, "arrived") == "done"
    await work(still_house.worker())
    assert [row["status"] for row in await still_house.sql.fetch(RECEIPTS, told)] == ["sent"] * 3
    assert (len(still_house.sent(f"first {message}")), len(still_house.sent(f"last {message}"))) == (1, 1)
    assert await still_house.status(told) == "ok"


async def test_a_press_answers_and_its_card_shows_it(house: House, message: str) -> None:
    told = await pressed_about(house, message)
    card = await eventually(partial(newest_card, house, told))
    row = await house.press(card, "ag")
    assert row["outcome"] == "again_done"
    assert await house.settled(told, "ok") == "ok"
    await until(lambda: "You had it sent again" in last_shown(house, card))
    assert len(house.sent(message)) == 2
    assert (await house.press(card, "ag"))["outcome"] == "stale"
    assert len(house.sent(message)) == 2


async def test_a_stranger_in_the_owners_chat_answers_nothing(house: House, message: str) -> None:
    told = await pressed_about(house, message)
    card = await eventually(partial(newest_card, house, told))
    assert (await house.press(card, "ag", who=OWNER + 1))["outcome"] == "stranger"
    assert await house.status(told) == "uncertain"
    assert len(house.sent(message)) == 1


async def test_a_button_of_an_earlier_attempt_does_nothing(house: House, message: str) -> None:
    told = await pressed_about(house, message)
    first = await eventually(partial(newest_card, house, told))
    await house.fault(message, "accept_reset", times=1)
    await house.press(first, "ag")

    async def second_card() -> Mapping[str, object] | None:
        found = await newest_card(house, told)
        return found if found is not None and found is not first else None

    second = await eventually(second_card)
    assert (await house.press(first, "lv"))["outcome"] == "stale"
    assert await house.status(told) == "uncertain"
    assert (await house.press(second, "lv"))["outcome"] == "leave_done"


async def pressed_about(house: House, message: str) -> str:
    """A notification to somebody else that is uncertain, in a house at work."""
    await house.fault(message, "accept_reset", times=1)
    answer = await house.notify(message=message, contact_id=await friend(house))
    assert answer["status"] == "uncertain", answer
    return str(answer["notification_id"])


def last_shown(house: House, card: Mapping[str, object]) -> str:
    try:
        return shown(house, card)
    except IndexError:
        return ""


async def to_owner(house: House, message: str) -> str:
    """A notification to the owner of which nobody knows whether it arrived."""
    told = await admitted(house, message)
    await enqueue(house, told)
    await house.fault(message, "accept_reset", times=1)
    await work(house.worker())
    assert await house.status(told) == "uncertain"
    return told


async def repeated(house: House) -> int:
    """How many the machine puts in the queue once more."""
    return await resolver.repeat_to_owner(house.context("messenger"))


async def test_the_owner_is_sent_it_once_more_and_told_that_it_may_be_a_repeat(
    still_house: House, message: str
) -> None:
    told = await to_owner(still_house, message)
    assert await repeated(still_house) == 0, "late answers get their chance"
    await still_house.sql.execute(OLDER, told)
    assert await repeated(still_house) == 1
    assert await still_house.status(told) == "uncertain"
    await work(still_house.worker())
    texts = [str(line["payload"]["text"]) for line in still_house.sent(message)]  # type: ignore[index]
    ref = reference((await still_house.delivery(told))["id"])
    assert texts == [f"greeter:\n{message}", f"\u25a3 Possibly a repeat (ref {ref})\ngreeter:\n{message}"]
    found = await answer(still_house, told)
    assert found["status"] == "ok"
    assert "may have arrived twice" in str(found["note"])


async def test_what_is_uncertain_twice_is_asked_about_and_repeated_no_more(still_house: House, message: str) -> None:
    told = await to_owner(still_house, message)
    about = (await still_house.delivery(told))["id"]
    await cards_written(still_house)
    assert await still_house.sql.fetch(CARDS_ABOUT, about) == [], "it is repeated first"
    await all_cards(still_house)
    await still_house.sql.execute(OLDER, told)
    await repeated(still_house)
    await still_house.fault(message, "accept_reset", times=1)
    await work(still_house.worker())
    await still_house.sql.execute(OLDER, told)
    assert await repeated(still_house) == 0
    card = await card_of(still_house, told)
    assert message in str(card["payload"]["text"])  # type: ignore[index]
    assert (len(still_house.sent(message)), await still_house.status(told)) == (2, "uncertain")
    assert await cards_written(still_house) == 0, "there are no cards about cards"
    assert await say(still_house, told, "leave") == "done"
    assert (await still_house.delivery(told))["status"] == "abandoned"


async def test_a_long_text_to_the_owner_is_repeated_whole(still_house: House, message: str) -> None:
    text = f"first {message}\n{LONG}\nlast {message}"
    told = await admitted(still_house, text)
    await enqueue(still_house, told)
    await still_house.fault(f"last {message}", "accept_reset", times=1)
    await work(still_house.worker())
    before = len(still_house.box.sandbox.lines)
    await still_house.sql.execute(OLDER, told)
    await repeated(still_house)
    await work(still_house.worker())
    texts = [str(line["payload"]["text"]) for line in still_house.box.sandbox.lines[before:]]  # type: ignore[index]
    assert all(one.startswith("\u25a3 Possibly a repeat (ref ") for one in texts)
    assert "\n".join(one.partition("):\n")[2] for one in texts) == text
    assert await still_house.status(told) == "ok"


async def test_too_late_to_the_owner_is_not_repeated(still_house: House, message: str) -> None:
    told = await to_owner(still_house, message)
    await still_house.sql.execute(OLDER, told)
    past = "UPDATE messenger.deliveries SET not_after = clock_timestamp() WHERE notification_id = $1"
    await still_house.sql.execute(past, told)
    assert await repeated(still_house) == 0
    assert await card_of(still_house, told)


async def test_no_machine_sends_a_third_party_anything_again(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    await still_house.sql.execute(OLDER, told)
    assert await repeated(still_house) == 0
    await work(still_house.worker())
    assert (len(still_house.sent(message)), await still_house.status(told)) == (1, "uncertain")


async def test_what_was_sent_again_and_then_refused_never_begins_anew(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    await say(still_house, told, "again")
    await still_house.fault(message, "400", times=1)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    assert "An earlier attempt may have arrived" in str((await answer(still_house, told))["error"])
    assert await say(still_house, told, "retry") == "late"
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_what_was_refused_is_tried_again_by_the_owners_word(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, "400", times=1)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    assert await say(still_house, told, "retry") == "done"
    assert await still_house.status(told) == "queued"
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)
    assert await say(still_house, told, "retry") == "late"


async def test_what_was_refused_and_its_butler_wanted_back_is_not_tried_again(still_house: House, message: str) -> None:
    """The wish came after the marker, so that it could only be noted."""
    told = await in_queue(still_house, message)
    await still_house.fault(message, "400", times=1)
    await work(still_house.worker())
    async with still_house.context("greeter").db.work() as connection:
        await withdrawals.want_back(connection, told, "greeter")
    assert await say(still_house, told, "retry") == "late"
    assert (await still_house.delivery(told))["status"] == "failed"


async def test_what_ran_out_of_time_is_tried_again_by_the_owners_word(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(PAST, told)
    await work(still_house.worker())
    found = await answer(still_house, told)
    assert ((await still_house.delivery(told))["status"], found["status"]) == ("expired", "error")
    assert found["error"]["retryable"] is True  # type: ignore[index]
    assert await say(still_house, told, "retry") == "done"
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_what_nothing_allows_is_asked_before_it_is_tried_again(still_house: House, message: str) -> None:
    anna = await still_house.contact("Anna", telegram=new_chat())
    rule = await still_house.rule({"contact_id": anna})
    told = await in_queue(still_house, message, contact_id=anna)
    await still_house.fault(message, "400", times=1)
    await work(still_house.worker())
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    assert await say(still_house, told, "retry") == "done"
    assert await still_house.status(told) == "pending_approval"
    await work(still_house.worker())
    assert still_house.sent(message) == []


async def test_a_reaction_of_unknown_outcome_is_set_again(still_house: House) -> None:
    said = await still_house.box.api("say", as_=OWNER, text="hello")
    thread = f"{OWNER}:{said['message_id']}"
    await received(still_house, thread, str(OWNER))
    context = {
        "request_id": str(uuid4()),
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(OWNER),
        "source_thread_identity": thread,
    }
    told = await admitted(still_house, "", intent="react", emoji="\U0001f44d", request_context=context)
    await enqueue(still_house, told)
    await still_house.box.api("faults", channel="telegram", stage="setMessageReaction", fault="accept_reset", times=1)
    await work(still_house.worker())
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("queued", "queued")
    await still_house.sql.execute(DUE, told)
    await work(still_house.worker())
    assert await still_house.status(told) == "ok"


async def test_a_reaction_that_may_have_been_set_is_not_said_to_be_unsent(still_house: House) -> None:
    chat = new_chat()
    thread = await said(still_house, chat)
    await received(still_house, thread, chat)
    rule = await still_house.rule({"contact_id": await still_house.contact("Anna", telegram=chat)}, max_uses=1)
    told = await admitted(still_house, "", **by_telegram(thread, intent="react", emoji="\U0001f44d"))
    await enqueue(still_house, told)
    await still_house.box.api("faults", channel="telegram", stage="setMessageReaction", fault="accept_reset", times=1)
    await work(still_house.worker())
    await still_house.sql.execute(PAST, told)
    await due(still_house, told)
    await work(still_house.worker())
    found = await error(still_house, told)
    assert (EARLIER in str(found["message"]), found["retryable"]) == (True, False)
    assert await still_house.sql.fetchval(USES, rule) == 1
    assert await say(still_house, told, "retry") == "late"


async def test_a_press_proves_that_its_card_arrived(still_house: House, message: str) -> None:
    told = await uncertain(still_house, message)
    await cards_written(still_house)
    await still_house.fault(message, "accept_reset", times=1)
    ref = reference((await still_house.delivery(told))["id"])
    while not still_house.cards(f"ref {ref}"):
        await work(still_house.worker())
    [card] = still_house.cards(f"ref {ref}")
    await pressed(still_house, card, "lv")
    about = (await still_house.delivery(told))["id"]
    [row] = await still_house.sql.fetch(CARDS_ABOUT, about)
    assert row["status"] == "sent"
    await still_house.sql.execute("UPDATE messenger.deliveries SET send_at = now() WHERE about = $1", about)
    await all_cards(still_house)
    await closed(still_house)
    assert "You left it unconfirmed" in shown(still_house, card)
    assert len(still_house.cards(f"ref {ref}")) == 1


async def pressed(house: House, card: Mapping[str, object], verb: str) -> None:
    """Let a house that does nothing by itself handle one press of the owner."""
    data = next(data for data in button_data(card) if data.split(":")[2] == verb)
    message = {"message_id": int(str(card["provider_id"])), "chat": {"id": OWNER}, "text": "card"}
    query = {"id": "1", "from": {"id": OWNER}, "message": message, "data": data}
    stopping, telegram = asyncio.Event(), TelegramChannel(house.box.url, SANDBOX_TOKEN)
    async with house.context("messenger").db.work() as connection:
        await updates.store(connection, "bot", [{"update_id": 1, "callback_query": query}])
    handling = asyncio.ensure_future(updates_inbound.handle(house.worker(), telegram, "bot", stopping))
    await house.handled(1)
    stopping.set()
    await handling
    await telegram.close()
