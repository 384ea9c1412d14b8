"""A receipt that comes when nobody waits for it any more: it is the truth about its part, whatever was said since."""

import asyncio
from dataclasses import dataclass

import pytest

from messenger.delivery import loop
from messenger.delivery.lease import Worker
from tests.integration.delivery.test_long_outage import Ending
from tests.integration.doubts import (
    ATTEMPTS,
    CARDS_ABOUT,
    RECEIPTS,
    all_cards,
    answer,
    card_of,
    cards_written,
    closed,
    say,
    shown,
)
from tests.integration.house import House
from tests.integration.workers import ACTION, admitted, enqueue, in_queue, lose_lease, new_chat, reap, work
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(slots=True)
class Late:
    """A worker that hears of no answer before it is let through, however long all else takes."""

    worker: Worker
    through: asyncio.Event

    async def answered(self) -> None:
        """Let the answers through, until what they change is written."""
        self.through.set()
        await asyncio.gather(*self.worker.tasks)


def late_desk(house: House) -> Late:
    through = asyncio.Event()
    way = Ending(house.worker().channels["telegram"], through.wait)
    return Late(house.worker(telegram=way), through)


async def slow_and_lost(house: House, message: str) -> tuple[str, Late]:
    """A notification whose answer is on its way when its lease is lost."""
    told, late = await in_queue(house, message), late_desk(house)
    await loop.claim_some(late.worker)
    await until(lambda: house.sent(message))
    await lose_lease(house, told)
    assert await reap(house) == 1
    return told, late


async def test_a_receipt_before_the_repeat_begins_makes_it_needless(still_house: House, message: str) -> None:
    told, late = await slow_and_lost(still_house, message)
    assert await say(still_house, told, "again") == "done"
    await late.answered()
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("sent", "ok")
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_a_receipt_after_the_repeat_is_shown_and_harms_no_later_attempt(still_house: House, message: str) -> None:
    told, late = await slow_and_lost(still_house, message)
    card = await card_of(still_house, told)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    receipts = [row["provider_id"] for row in await still_house.sql.fetch(RECEIPTS, told)]
    await late.answered()
    rows = await still_house.sql.fetch(ATTEMPTS, told)
    assert [row["outcome"] for row in rows] == ["late_receipt", "sent"]
    assert [row["provider_id"] for row in await still_house.sql.fetch(RECEIPTS, told)] == receipts
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("sent", "ok")
    await closed(still_house)
    assert "may have arrived twice" in shown(still_house, card)


async def test_a_receipt_while_the_repeat_is_on_its_way_leaves_that_alone(still_house: House, message: str) -> None:
    told, first = await slow_and_lost(still_house, message)
    assert await say(still_house, told, "again") == "done"
    second = late_desk(still_house)
    await loop.claim_some(second.worker)
    await until(lambda: len(still_house.sent(message)) == 2)
    await first.answered()
    assert [row["status"] for row in await still_house.sql.fetch(RECEIPTS, told)] == ["sending"]
    await second.answered()
    last = still_house.sent(message)[-1]["provider_id"]
    assert [tuple(row) for row in await still_house.sql.fetch(RECEIPTS, told)] == [("sent", last)]
    assert [row["outcome"] for row in await still_house.sql.fetch(ATTEMPTS, told)] == ["late_receipt", "sent"]
    assert await still_house.status(told) == "ok"


async def test_a_receipt_ends_the_doubt_about_a_later_attempt(still_house: House, message: str) -> None:
    told, first = await slow_and_lost(still_house, message)
    assert await say(still_house, told, "again") == "done"
    await still_house.fault(message, "accept_reset", times=1)
    await work(still_house.worker())
    assert await still_house.status(told) == "uncertain"
    await first.answered()
    assert (await still_house.delivery(told))["status"] == "sent"
    found = await answer(still_house, told)
    assert (found["status"], "may have arrived twice" in str(found["note"])) == ("ok", True)


async def test_a_receipt_after_it_was_left_says_that_it_arrived(still_house: House, message: str) -> None:
    told, late = await slow_and_lost(still_house, message)
    card = await card_of(still_house, told)
    assert await say(still_house, told, "leave") == "done"
    await closed(still_house)
    assert "You left it unconfirmed" in shown(still_house, card)
    await late.answered()
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("sent", "ok")
    await closed(still_house)
    assert "The receipt arrived late" in shown(still_house, card)


async def approved_and_lost(house: House, message: str, told: str) -> Late:
    """Say yes to a message to somebody else, whose answer is on its way when its lease is lost."""
    await house.decide((await house.row(ACTION, told))["id"])
    await enqueue(house, told)
    late = late_desk(house)
    await loop.claim_some(late.worker)
    await until(lambda: house.sent_to_others(message))
    await lose_lease(house, told)
    await reap(house)
    return late


async def test_an_approval_of_what_was_left_is_in_doubt_until_a_receipt_says_that_it_arrived(
    still_house: House, message: str
) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Cleo", telegram=new_chat()))
    late = await approved_and_lost(still_house, message, told)
    assert await say(still_house, told, "leave") == "done"
    assert (await still_house.row(ACTION, told))["status"] == "uncertain"
    await late.answered()
    assert (await still_house.row(ACTION, told))["status"] == "executed"


async def test_a_card_of_a_yes_in_doubt_shows_what_is_known_by_now(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Cleo", telegram=new_chat()))
    await cards_written(still_house)
    await all_cards(still_house)
    [card] = still_house.cards(message)
    late = await approved_and_lost(still_house, message, told)
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Delivery unconfirmed.")
    assert await say(still_house, told, "again") == "done"
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Sending.")
    await late.answered()
    await closed(still_house)
    assert shown(still_house, card).endswith("Approved. Sent.")


async def test_a_card_of_what_is_known_by_now_is_not_sent(still_house: House, message: str) -> None:
    told, late = await slow_and_lost(still_house, message)
    await cards_written(still_house)
    await late.answered()
    await all_cards(still_house)
    delivery = await still_house.delivery(told)
    assert [row["status"] for row in await still_house.sql.fetch(CARDS_ABOUT, delivery["id"])] == ["cancelled"]
