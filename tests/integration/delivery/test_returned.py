"""What a report of a mail that came back changes: one delivery, its answer, one word to the owner, and no more."""

from collections.abc import Mapping
from uuid import uuid4

import pytest

from messenger.cards import kinds
from messenger.inbound import bounces
from messenger.inbound.mail.dsn import Bounce
from messenger.storage import cards
from shared.config.timings import STANDARD
from shared.hashing import reference
from shared.storage import history
from tests.integration.doubts import answer
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, admitted, enqueue, in_queue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECEIPT = """
SELECT p.provider_id FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
WHERE d.notification_id = $1
"""
BOUNCES = "SELECT reason FROM shared.approval_events WHERE notification_id = $1 AND event_type = 'bounced'"
CARDS_ARRIVED = "UPDATE messenger.deliveries SET status = 'sent' WHERE card_kind = 'bounced'"
CARDS_LONG_AGO = "UPDATE messenger.deliveries SET created_at = '2026-01-01Z' WHERE card_kind = 'bounced'"
SAID = "550 5.1.1 nobody of that name"


def new_address() -> str:
    return f"Anna.{uuid4().hex}@Example.org"


async def anna(house: House, address: str) -> str:
    """A contact who may be written to by e-mail."""
    contact = await house.contact("Anna", email=address, telegram=new_chat())
    await house.rule({"contact_id": contact})
    return contact


async def mailed(house: House, message: str, address: str) -> str:
    """A notification that was sent by e-mail."""
    told = await in_queue(house, message, channel="email", contact_id=await anna(house, address))
    await work(house.worker())
    assert await house.status(told) == "ok"
    return told


async def report_of(house: House, told: str, *recipients: str) -> Bounce:
    """What a mail server says of it; of its own recipient unless told of whom."""
    message_id = (await house.row(RECEIPT, told))["provider_id"]
    named = recipients or ((await house.delivery(told))["address"],)
    return Bounce(message_id, frozenset(one.lower() for one in named), "5.1.1", SAID)


async def read(house: House, bounce: Bounce) -> str:
    async with house.context("messenger").db.work() as connection:
        return await bounces.came_back(connection, bounce)


async def word_to_owner(house: House, told: str) -> list[Mapping[str, object]]:
    """What the owner was told of it."""
    async with house.context("messenger").db.work() as connection:
        await kinds.write_missing(connection, 1000, STANDARD)
    while await house.sql.fetch("SELECT FROM messenger.deliveries WHERE class = 'card' AND status = 'queued'"):
        await work(house.worker())
    ref = reference((await house.delivery(told))["id"])
    return [line for line in house.box.sandbox.lines if f"bounced (ref {ref})" in str(line["payload"])]


async def test_it_is_called_bounced_and_its_butler_gets_an_error_that_says_why(
    still_house: House, message: str
) -> None:
    told = await mailed(still_house, message, new_address())
    assert await read(still_house, await report_of(still_house, told)) == "bounced"
    delivery = await still_house.delivery(told)
    assert (delivery["status"], delivery["reason"]) == ("bounced", "5.1.1")
    found = await answer(still_house, told)
    assert found["status"] == "error"
    assert found["error"] == {
        "class": "provider_rejected",
        "message": f'Bounced: 5.1.1. The other mail server wrote: "{SAID}"',
        "retryable": False,
    }


async def test_the_owner_is_told_once_and_reading_it_again_changes_nothing(still_house: House, message: str) -> None:
    told = await mailed(still_house, message, new_address())
    report = await report_of(still_house, told)
    await read(still_house, report)
    settled = (await still_house.delivery(told))["settled_at"]
    (line,) = await word_to_owner(still_house, told)
    text = str(line["payload"]["text"])  # type: ignore[index]
    assert line["to"] == str(OWNER)
    for words in (
        "Greeter's e-mail to Anna bounced",
        (await still_house.delivery(told))["address"],
        f'Bounced: 5.1.1. The other mail server wrote: "{SAID}"',
        message,
        "/deliveries/",
    ):
        assert words in text, text
    assert "reply_markup" not in str(line["payload"])
    assert await read(still_house, report) == "ignored"
    assert await word_to_owner(still_house, told) == [line]
    assert (await still_house.delivery(told))["settled_at"] == settled
    assert len(await still_house.sql.fetch(BOUNCES, told)) == 1


async def test_of_many_that_come_back_a_few_are_told_of_by_cards(still_house: House, message: str) -> None:
    async def asked(burst: int) -> int:
        async with still_house.context("messenger").db.work() as connection:
            return await cards.ask_bounced(connection, burst, STANDARD)

    await asked(1000)
    await still_house.sql.execute(CARDS_LONG_AGO)
    for n in range(5):
        told = await mailed(still_house, f"{message} {n}", new_address())
        await read(still_house, await report_of(still_house, told))
    assert [await asked(3), await asked(3)] == [3, 0]
    await still_house.sql.execute(CARDS_ARRIVED)
    await still_house.sql.execute(CARDS_LONG_AGO)
    assert await asked(3) == 2, "the rest as soon as there is room"


async def test_its_life_tells_that_it_came_back(still_house: House, message: str) -> None:
    told = await mailed(still_house, message, new_address())
    await read(still_house, await report_of(still_house, told))
    found = await history.life(still_house.sql, told)
    assert found.steps[-1].what == "bounced"
    assert found.steps[-1].text == "messenger found the bounce in the mailbox. 5.1.1"


async def test_a_report_of_another_recipient_changes_nothing(still_house: House, message: str) -> None:
    told = await mailed(still_house, message, new_address())
    assert await read(still_house, await report_of(still_house, told, new_address())) == "ignored"
    assert await read(still_house, await report_of(still_house, told, "")) == "ignored"
    assert await still_house.status(told) == "ok"
    assert (await still_house.delivery(told))["status"] == "sent"


async def test_a_report_of_another_mail_changes_nothing(still_house: House, message: str) -> None:
    told = await mailed(still_house, message, new_address())
    report = await report_of(still_house, told)
    local, domain = report.message_id.strip("<>").split("@")
    for message_id in (f"<{local}@elsewhere.example>", f"<n.{uuid4()}@{domain}>", f"<x@{domain}>", f"<n.{'a' * 36}@x>"):
        forged = Bounce(message_id, report.recipients, report.status, report.said)
        assert await read(still_house, forged) == "ignored"
    assert await still_house.status(told) == "ok"


async def test_what_went_by_telegram_does_not_come_back_by_mail(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await work(still_house.worker())
    chat = (await still_house.delivery(told))["address"]
    forged = Bounce(f"<n.{told}@sandbox.test>", frozenset({chat}), "5.1.1", SAID)
    assert await read(still_house, forged) == "ignored"
    assert await still_house.status(told) == "ok"


async def test_asking_again_after_it_came_back_gets_that_answer_and_sends_nothing(
    still_house: House, message: str
) -> None:
    contact = await anna(still_house, new_address())
    context = {"request_id": uuid4().hex, "source_channel": "mcp", "source_endpoint_identity": "test"}
    asked = {"channel": "email", "contact_id": contact}
    told = await admitted(still_house, message, **asked, request_context={**context, "source_sender_identity": "me"})
    await enqueue(still_house, told)
    await work(still_house.worker())
    await read(still_house, await report_of(still_house, told))
    call = {**asked, "message": message, "request_context": {**context, "source_sender_identity": "me"}}
    again = await still_house.notify(**call)
    assert again["notification_id"] == told
    assert again["duplicate"] is True
    assert again["error"] == (await answer(still_house, told))["error"]
    await work(still_house.worker())
    assert len(still_house.sent(message, "mail")) == 1
    assert (await still_house.delivery(told))["status"] == "bounced"


async def test_a_yes_that_was_carried_out_stays_so(still_house: House, message: str) -> None:
    contact = await still_house.contact("Bea", email=new_address())
    told = await admitted(still_house, message, channel="email", contact_id=contact)
    await still_house.decide((await still_house.row(ACTION, told))["id"])
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert await read(still_house, await report_of(still_house, told)) == "bounced"
    assert (await still_house.row(ACTION, told))["status"] == "executed"
    assert await still_house.status(told) == "error"


async def test_a_report_ends_what_nobody_answered_for(still_house: House, message: str) -> None:
    address = new_address()
    told = await in_queue(still_house, message, channel="email", contact_id=await anna(still_house, address))
    await still_house.fault(message, "accept_reset", stage="dot", times=1)
    await work(still_house.worker())
    assert await still_house.status(told) == "uncertain"
    report = Bounce(f"<n.{told}@sandbox.test>", frozenset({address.lower()}), "5.1.1", SAID)
    assert await read(still_house, report) == "bounced"
    assert (await still_house.row(RECEIPT, told))["provider_id"] == report.message_id
    assert await still_house.status(told) == "error"
    assert len(await word_to_owner(still_house, told)) == 1


async def test_a_report_that_comes_before_the_receipt_waits_for_it(still_house: House, message: str) -> None:
    told = await mailed(still_house, message, new_address())
    report = await report_of(still_house, told)
    text = "UPDATE messenger.deliveries SET status = $2, lease_until = clock_timestamp() + interval '7 seconds' "
    await still_house.sql.execute(f"{text} WHERE notification_id = $1", told, "sending")
    assert await read(still_house, report) == "early"
    await still_house.sql.execute(f"{text} WHERE notification_id = $1", told, "sent")
    assert await read(still_house, report) == "bounced"
