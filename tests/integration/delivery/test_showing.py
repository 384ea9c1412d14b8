"""What Telegram shows of what is over: it stops where Telegram wants rest, and no word of the owner's waits for it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from messenger.cards import updater
from messenger.channels.telegram import TelegramChannel
from messenger.delivery import loop
from messenger.maintenance import rechecker
from shared.channels.realms import SANDBOX_TOKEN
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.delivery.test_late_receipts import late_desk
from tests.integration.delivery.test_uncertain import pressed
from tests.integration.doubts import cards_written
from tests.integration.house import House
from tests.integration.workers import FREE, new_chat, reap, work
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSED = """
INSERT INTO messenger.circuit_breakers (channel, reason, detail, since, next_probe_at)
VALUES ('telegram', 'unauthorized', '', clock_timestamp(), clock_timestamp() + interval '1 hour')
"""
NO_PAUSE = "DELETE FROM messenger.circuit_breakers"
LEASE_IS_OVER = "UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL"
CARD = """
SELECT d.status FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
WHERE a.tool_args ->> 'message' = $1
"""
# A card's change is waited for ten seconds.
LESS_THAN_THE_WAIT = timedelta(seconds=9)
MOVED = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1 AND type = 'telegram'"
ASKED_AT = "SELECT max(at) FROM shared.approval_events WHERE action_id = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def quiet(still_house: House) -> AsyncIterator[House]:
    """The still house where nothing goes wrong and nothing is paused."""
    await still_house.sql.execute(FREE)
    await clear(still_house)
    yield still_house
    await clear(still_house)


async def clear(house: House) -> None:
    await house.box.http.delete(f"{house.box.url}/api/faults")
    await house.sql.execute(NO_PAUSE)


async def over(house: House, *messages: str) -> None:
    """A card in Telegram about each of these, which is over by now."""
    for message in messages:
        contact = await house.contact("Zoe", telegram=new_chat())
        answer = await house.notify(message=message, contact_id=contact)
        await cards_written(house)
        await work(house.worker())
        await house.decide(answer["action_id"], approve=False)


ANEW = "Changed. A new approval request replaces this one."


async def trouble(house: House, fault: str, **more: object) -> None:
    await house.box.api("faults", channel="telegram", stage="editMessageText", fault=fault, **more)


async def shown(house: House) -> float:
    channel = TelegramChannel(house.box.url, SANDBOX_TOKEN)
    try:
        return await updater.show(house.context("messenger"), channel)
    finally:
        await channel.close()


def changed(house: House, *messages: str) -> list[int]:
    return [len(house.sent(message, "editMessageText")) for message in messages]


async def test_where_telegram_wants_rest_nothing_more_is_shown_for_so_long(quiet: House, message: str) -> None:
    first, second = f"{message} first", f"{message} second"
    await over(quiet, first, second)
    await trouble(quiet, "429", value=7, times=1)
    assert await shown(quiet) == 7
    assert changed(quiet, first, second) == [0, 0]
    assert await shown(quiet) == 0
    assert changed(quiet, first, second) == [1, 1]


async def test_a_card_that_telegram_cannot_change_now_keeps_none_of_the_others(quiet: House, message: str) -> None:
    first, second = f"{message} first", f"{message} second"
    await over(quiet, first, second)
    await trouble(quiet, "500", match=first, times=1)
    assert await shown(quiet) == 0
    assert changed(quiet, first, second) == [0, 1]
    await shown(quiet)
    assert changed(quiet, first, second) == [1, 1]


@pytest.mark.parametrize(
    ("approve", "anew", "said"),
    [(True, False, ANEW), (True, True, ANEW), (False, False, "Denied.")],
)
async def test_a_closed_card_keeps_the_words_and_the_address_it_asked_about(
    quiet: House, message: str, *, approve: bool, anew: bool, said: str
) -> None:
    contact = await quiet.contact("Zoe", telegram=new_chat())
    answer = await quiet.notify(message=message, contact_id=contact)
    await cards_written(quiet)
    await work(quiet.worker())
    if approve:
        await quiet.sql.execute(MOVED, contact, new_chat())
    await quiet.decide(answer["action_id"], approve=approve)
    if anew:
        await quiet.decide(answer["action_id"])
    await quiet.sql.execute(MOVED, contact, new_chat())
    await shown(quiet)
    if approve and not anew:
        await quiet.decide(answer["action_id"], approve=False)  # else its new card comes into the next test
    [asked] = [one["payload"] for one in quiet.cards(message)]
    [closed] = [one["payload"] for one in quiet.sent(message, "editMessageText")]
    assert isinstance(asked, dict)
    assert isinstance(closed, dict)
    assert closed["text"] == f"{asked['text']}\n\n\u25a3 {said}"
    assert closed["entities"] == asked["entities"]


async def test_a_channel_that_is_paused_is_left_alone(quiet: House, message: str) -> None:
    await over(quiet, message)
    await quiet.sql.execute(PAUSED)
    assert await shown(quiet) == 0
    assert changed(quiet, message) == [0]
    await quiet.sql.execute(NO_PAUSE)
    await shown(quiet)
    assert changed(quiet, message) == [1]


async def test_a_bot_that_is_refused_gives_up_no_card(quiet: House, message: str) -> None:
    await over(quiet, message)
    await trouble(quiet, "401", times=1)
    await shown(quiet)
    assert changed(quiet, message) == [0]
    await shown(quiet)
    assert changed(quiet, message) == [1]


async def test_a_press_on_a_card_that_somebody_sends_still_is_shown_on_it(quiet: House, message: str) -> None:
    contact = await quiet.contact("Zoe", telegram=new_chat())
    await quiet.notify(message=message, contact_id=contact)
    await cards_written(quiet)
    late = late_desk(quiet)
    await loop.claim_some(late.worker)
    [card] = await until(lambda: quiet.cards(message))
    await pressed(quiet, card, "no")
    await quiet.sql.execute(LEASE_IS_OVER)
    await reap(quiet)
    await shown(quiet)
    assert changed(quiet, message) == [1]
    await late.answered()
    assert await quiet.sql.fetchval(CARD, message) == "sent"


async def test_what_no_hint_told_of_is_found_by_the_next_look(quiet: House, message: str) -> None:
    await over(quiet, message)
    context = quiet.context("messenger")
    ticket = context.wakes["edits"].ticket()
    await rechecker.look_again(context)
    assert ticket.is_set()
    await shown(quiet)
    assert changed(quiet, message) == [1]
    ticket = context.wakes["edits"].ticket()
    await rechecker.look_again(context)
    assert not ticket.is_set()


async def test_who_is_told_to_wait_looks_no_sooner(quiet: House, message: str) -> None:
    await over(quiet, message)
    await trouble(quiet, "429", value=1, times=1)
    stopping, context, now = asyncio.Event(), quiet.context("messenger"), asyncio.get_running_loop().time
    channel = TelegramChannel(quiet.box.url, SANDBOX_TOKEN)
    began = now()
    going = asyncio.create_task(updater.run(context, channel, stopping))

    def hinted() -> bool:
        context.wakes["cards"]()
        return changed(quiet, message) == [1]

    assert await until(hinted)
    assert now() - began >= 1
    stopping.set()
    await going
    await channel.close()


async def test_no_word_of_the_owners_waits_for_what_is_shown(house: House, message: str) -> None:
    closing, asking = f"{message} closing", f"{message} asking"
    contact = await house.contact("Zoe", telegram=new_chat())
    answer = await house.notify(message=closing, contact_id=contact)
    await until(lambda: house.cards(closing))
    await trouble(house, "accept_hang", match=closing, times=1)
    await house.decide(answer["action_id"], approve=False)
    [edit] = await until(lambda: house.sent(closing, "editMessageText"))  # its answer never comes
    bo = await house.contact("Bo", email=f"{new_chat()}@example.org")
    told = await house.notify(message=asking, contact_id=bo)
    assert told["status"] == "pending_missing_identifier", told
    await contacts.add_address(house.sql, bo, "telegram", new_chat())
    await eventually(lambda: asked(house, told))
    asked_at = await house.sql.fetchval(ASKED_AT, told["action_id"])
    assert asked_at - datetime.fromisoformat(str(edit["at"])) < LESS_THAN_THE_WAIT


async def asked(house: House, told: Answer) -> bool:
    return await house.status(told["action_id"]) == "pending_approval"
