"""What a crash, a lost lease or a late answer leaves behind, and who takes it up."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.channels.telegram import TelegramChannel
from messenger.delivery import loop
from messenger.delivery.lease import Worker
from messenger.storage import deliveries
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.timings import STANDARD
from shared.storage import contacts
from tests.integration.delivery.test_long_outage import Ending
from tests.integration.doubts import cards_written
from tests.integration.house import House
from tests.integration.workers import (
    ACTION,
    DUE,
    admitted,
    enqueue,
    in_queue,
    lose_lease,
    new_chat,
    reap,
    work,
    worker_where,
)
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE '%_up' AND datname = current_database()
"""
PARTS = """
SELECT p.n, p.status FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
WHERE d.notification_id = $1 ORDER BY p.n
"""
CARD = "SELECT * FROM messenger.deliveries WHERE action_id = $1 AND revision = 1 AND channel = 'telegram'"
CARD_DUE = "UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE action_id = $1"
END_CARDS_LEASE = "UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE action_id = $1"
LONG = "\n".join(f"line {n} of a text that is longer than one message may be" for n in range(160))


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def nothing_in_doubt(still_house: House) -> None:
    """What an earlier test left uncertain asks the owner nothing here."""
    await still_house.sql.execute("UPDATE messenger.deliveries SET status = 'abandoned' WHERE status = 'uncertain'")


async def parts(house: House, notification_id: str) -> list[str]:
    return [row["status"] for row in await house.sql.fetch(PARTS, notification_id)]


def desk_where_part(house: House, n: int, happens: asyncio.Event) -> Worker:
    """A worker that for ever prepares its n-th part, and says when it does."""
    prepared = 0

    async def stop_at() -> None:
        nonlocal prepared
        prepared += 1
        if prepared == n:
            happens.set()
            await asyncio.Event().wait()

    return worker_where(house, stop_at)


def desk_where_answers_wait(house: House, happens: Callable[[], Awaitable[object]]) -> Worker:
    """A worker that hears of an answer of Telegram's only after this has happened."""
    return house.worker(telegram=Ending(TelegramChannel(house.box.url, SANDBOX_TOKEN), happens))


async def test_a_lease_lost_while_claimed_puts_it_back_in_the_queue(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    async with still_house.context("messenger").db.work() as connection:
        await deliveries.claim(connection, "silent", {"telegram": 16, "email": 16}, STANDARD)
    assert await reap(still_house) == 0, "a lease that lasts is respected"
    await lose_lease(still_house, told)
    assert await reap(still_house) == 1
    row = await still_house.delivery(told)
    assert (row["status"], row["claimed_by"]) == ("queued", None)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_a_lease_lost_while_sending_is_uncertain_and_never_queued(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, "accept_hang", times=1)
    worker = still_house.worker()
    await loop.claim_some(worker)
    await until(lambda: still_house.sent(message))
    for task in worker.tasks:
        task.cancel()
    await lose_lease(still_house, told)
    assert await reap(still_house) == 1
    row = await still_house.delivery(told)
    assert (row["status"], row["reason"], await parts(still_house, told)) == ("uncertain", "lease_lost", ["uncertain"])
    assert await still_house.status(told) == "uncertain"
    await still_house.sql.execute(DUE, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_a_late_answer_turns_uncertain_into_sent(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    seen = []

    async def given_up() -> None:
        await lose_lease(still_house, told)
        seen.append((await reap(still_house), await still_house.status(told)))

    await work(desk_where_answers_wait(still_house, given_up))
    assert seen == [(1, "uncertain")]
    assert ((await still_house.delivery(told))["status"], await parts(still_house, told)) == ("sent", ["sent"])
    assert await still_house.status(told) == "ok"


async def test_an_approved_action_follows_its_delivery(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Ann", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await still_house.decide(action["id"])
    await enqueue(still_house, told)
    seen = []

    async def look() -> None:
        seen.append((await still_house.row(ACTION, told))["status"])

    await work(worker_where(still_house, look))
    assert seen == ["approved"]
    assert (await still_house.row(ACTION, told))["status"] == "executed"
    assert len(still_house.sent(message)) == 1


async def test_a_card_may_come_twice_and_is_queued_again(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Bea", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    assert await cards_written(still_house) == 1
    assert await cards_written(still_house) == 0
    await still_house.fault(message, "accept_hang", times=1)
    worker = still_house.worker()
    await loop.claim_some(worker)
    await until(lambda: still_house.cards(message))
    for task in worker.tasks:
        task.cancel()
    await still_house.sql.execute(END_CARDS_LEASE, action["id"])
    assert await reap(still_house) == 1
    assert (await still_house.row(CARD, action["id"]))["status"] == "queued"
    await work(still_house.worker())
    assert (await still_house.row(CARD, action["id"]))["status"] == "sent"
    assert len(still_house.cards(message)) == 2


async def test_a_card_whose_answer_is_lost_is_sent_again(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Cleo", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await cards_written(still_house)
    await still_house.fault(message, "accept_reset", times=1)
    await work(still_house.worker())
    assert (await still_house.row(CARD, action["id"]))["status"] == "queued"
    await still_house.sql.execute(CARD_DUE, action["id"])
    await work(still_house.worker())
    assert ((await still_house.row(CARD, action["id"]))["status"], len(still_house.cards(message))) == ("sent", 2)


async def test_a_card_of_an_answered_question_is_not_sent(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Dan", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await cards_written(still_house)
    await still_house.decide(action["id"], approve=False)
    await work(still_house.worker())
    assert ((await still_house.row(CARD, action["id"]))["status"], still_house.cards(message)) == ("cancelled", [])


async def test_the_parts_of_a_long_text_come_in_order_and_whole(still_house: House, message: str) -> None:
    told = await in_queue(still_house, f"{message}\n{LONG}\n{message}")
    before = len(still_house.box.sandbox.lines)
    await work(still_house.worker())
    lines = still_house.box.sandbox.lines[before:]
    texts = [str(line["payload"]["text"]) for line in lines]  # type: ignore[index]
    assert len(texts) == 3
    assert "\n".join(texts) == f"{message}\n{LONG}\n{message}"
    answer = (await still_house.row("SELECT answer FROM shared.notifications WHERE id = $1", told))["answer"]
    assert (answer["delivery"]["delivery_id"], answer["delivery"]["parts"]) == (lines[0]["provider_id"], 3)


async def test_a_crash_between_parts_is_taken_up_at_the_next_part(still_house: House, message: str) -> None:
    told = await in_queue(still_house, f"{message}\n{LONG}")
    before, stopped = len(still_house.box.sandbox.lines), asyncio.Event()
    worker = desk_where_part(still_house, 2, stopped)
    await loop.claim_some(worker)
    await stopped.wait()
    for task in worker.tasks:
        task.cancel()
    assert await parts(still_house, told) == ["sent", "queued", "queued"]
    await lose_lease(still_house, told)
    assert await reap(still_house) == 1
    await work(still_house.worker())
    texts = [str(line["payload"]["text"]) for line in still_house.box.sandbox.lines[before:]]  # type: ignore[index]
    assert "\n".join(texts) == f"{message}\n{LONG}"
    assert await still_house.status(told) == "ok"


async def test_a_part_of_unknown_outcome_holds_back_the_rest(still_house: House, message: str) -> None:
    text = f"first {message}\n{LONG}\nlast {message}"
    told = await in_queue(still_house, text)
    await still_house.fault(f"last {message}", "accept_reset", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(DUE, told)
    await work(worker)
    assert await parts(still_house, told) == ["sent", "sent", "uncertain"]
    assert len(still_house.sent(f"last {message}")) == 1


async def test_the_outcome_is_written_once_the_database_is_back(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    seen = []

    async def cut_off() -> None:
        seen.extend(await still_house.sql.fetch(CUT_OFF))

    await work(desk_where_answers_wait(still_house, cut_off))
    assert seen
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_words_that_became_the_same_by_a_new_identifier_leave_once(still_house: House, message: str) -> None:
    chat, of = new_chat(), {"request_id": str(uuid4())}
    eve = await still_house.contact("Eve", email=f"{uuid4().hex}@example.org")
    first = await admitted(still_house, message, contact_id=eve, request_context=of)
    await contacts.add_address(still_house.sql, eve, "telegram", chat)
    await still_house.rule({"contact_id": eve})
    second = await in_queue(still_house, message, recipient=chat, request_context=of)
    await work(still_house.worker())
    assert await still_house.status(second) == "ok"
    action = await still_house.row(ACTION, first)
    assert (await still_house.decide(action["id"])).code == "changed"
    assert (await still_house.decide(action["id"])).code == "approved"
    await enqueue(still_house, first)
    await work(still_house.worker())
    assert (await still_house.delivery(first))["status"] == "cancelled"
    answer = (await still_house.row("SELECT answer FROM shared.notifications WHERE id = $1", first))["answer"]
    assert (answer["status"], answer["notification_id"], answer["duplicate"]) == ("ok", first, True)
    assert "idempotency_key" in answer["note"]
    assert (await still_house.row(ACTION, first))["status"] == "cancelled"
    assert len(still_house.sent(message)) == 1
