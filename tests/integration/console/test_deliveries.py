"""The pages of deliveries: what became of each, and the owner's word on what may have arrived."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.hashing import reference
from tests.integration.console_runner import Running
from tests.integration.delivery.test_half_sent import in_two
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.integration.workers import friend, new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIVE = "UPDATE messenger.deliveries SET realm = '1' WHERE notification_id = $1"
CARD = "SELECT id FROM messenger.deliveries WHERE about = $1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(house: House) -> AsyncIterator[Running]:
    """The house's console with its owner signed in."""
    async with signed_in(house) as running:
        yield running


async def uncertain(house: House, message: str) -> tuple[str, str]:
    """The ids of a notification and its delivery, of which nobody knows whether it arrived."""
    await house.fault(message, "accept_reset", times=1)
    answer = await house.notify(message=message, contact_id=await friend(house))
    assert answer["status"] == "uncertain", answer
    told = str(answer["notification_id"])
    return told, str((await house.delivery(told))["id"])


async def test_what_is_uncertain_is_listed_and_needs_me(house: House, console: Running, message: str) -> None:
    told, delivery = await uncertain(house, message)
    start = plain(await page(console, "/"))
    assert "may or may not have arrived" in start
    assert message in start
    assert f'href="/deliveries/{delivery}"' in await page(console, "/deliveries?status=uncertain")
    assert message in plain(await page(console, "/deliveries"))
    assert message not in plain(await page(console, "/deliveries?status=sent"))
    assert f"ref {reference(delivery)}" in plain(await page(console, f"/deliveries/{told}"))
    assert "No such filter" in plain(await page(console, "/deliveries?status=any", 400))


@pytest.mark.parametrize(
    ("word", "status", "times"), [("arrived", "sent", 1), ("again", "sent", 2), ("leave", "abandoned", 1)]
)
async def test_a_button_carries_the_word_out(
    house: House, console: Running, message: str, word: str, status: str, times: int
) -> None:
    told, delivery = await uncertain(house, message)
    html = await page(console, f"/deliveries/{delivery}")
    assert "the connection was lost before the answer" in plain(html)
    answer = await console.post(f"/deliveries/{delivery}", word=word, **fields(html))
    assert (answer.status, answer.headers["location"]) == (303, f"/deliveries/{delivery}")
    await house.settled(told, "uncertain" if word == "leave" else "ok")
    assert (await house.delivery(told))["status"] == status
    assert len(house.sent(message)) == times
    assert 'name="word"' not in await page(console, f"/deliveries/{delivery}")


async def test_who_comes_second_is_told_so(house: House, console: Running, message: str) -> None:
    told, delivery = await uncertain(house, message)
    form = fields(await page(console, f"/deliveries/{delivery}"))
    assert (await console.post(f"/deliveries/{delivery}", word="leave", **form)).status == 303
    second = await console.post(f"/deliveries/{delivery}", word="again", **form)
    assert second.status == 409
    assert "it has already been answered" in plain(await second.text())
    assert ((await house.delivery(told))["status"], len(house.sent(message))) == ("abandoned", 1)


async def test_a_form_of_another_session_or_without_sense_says_nothing(
    house: House, console: Running, message: str
) -> None:
    told, delivery = await uncertain(house, message)
    form = fields(await page(console, f"/deliveries/{delivery}"))
    assert (await console.post(f"/deliveries/{delivery}", word="again", **{**form, "csrf": "other"})).status == 403
    assert (await console.post(f"/deliveries/{delivery}", word="shout", **form)).status == 400
    assert (await console.post(f"/deliveries/{delivery}", word="again", **{**form, "attempt": "x"})).status == 400
    assert (await console.post(f"/deliveries/{delivery}", word="again", **{**form, "attempt": "7"})).status == 409
    assert (await house.status(told), len(house.sent(message))) == ("uncertain", 1)


async def test_a_cards_page_is_that_of_what_it_asks_about(house: House, console: Running, message: str) -> None:
    _, delivery = await uncertain(house, message)
    await until(lambda: house.cards(f"ref {reference(delivery)}"))
    card = await house.row(CARD, delivery)
    answer = await console.get(f"/deliveries/{card['id']}")
    assert (answer.status, answer.headers["location"]) == (303, f"/deliveries/{delivery}")


async def test_hostile_words_are_shown_as_words(house: House, console: Running) -> None:
    hostile = f"<script>alert(1)</script> {uuid4()} \u202e"
    contact = await house.contact("<b>Zoe</b>", telegram=new_chat())
    await house.rule({"contact_id": contact})
    await house.notify(message=hostile, contact_id=contact)
    html = await page(console, "/deliveries")
    assert "<script>alert" not in html
    assert "<b>Zoe" not in html
    assert "\u202e" not in html


async def test_what_went_to_the_sandbox_is_told_from_what_went_out(
    house: House, console: Running, message: str
) -> None:
    answer = await house.notify(message=message)
    told = f"Sent {{}}ref {reference(str((await house.delivery(answer['notification_id']))['id']))}"
    assert told.format("sandbox ") in plain(await page(console, "/deliveries"))
    await house.sql.execute(LIVE, answer["notification_id"])
    assert told.format("") in plain(await page(console, "/deliveries"))


async def test_what_was_not_delivered_is_tried_again_by_a_button(house: House, console: Running, message: str) -> None:
    await house.fault(message, "403", times=1)
    answer = await house.notify(message=message, contact_id=await friend(house))
    assert answer["status"] == "error", answer
    told = str(answer["notification_id"])
    delivery = str((await house.delivery(told))["id"])
    html = await page(console, f"/deliveries/{delivery}")
    assert "Try again" in plain(html)
    for word in ("again", "retry"):  # the first says nothing of what is not uncertain
        answered = await console.post(f"/deliveries/{delivery}", word=word, **fields(html))
        assert answered.status == (303 if word == "retry" else 409)
    await house.settled(told, "ok")
    assert len(house.sent_to_others(message)) == 1
    html = await page(console, f"/deliveries/{delivery}")
    assert "Try again" not in plain(html)


async def test_what_left_in_part_has_no_button_to_try_it_again(house: House, console: Running, message: str) -> None:
    await house.fault(f"last {message}", "403", times=1)
    answer = await house.notify(message=in_two(message), contact_id=await friend(house))
    assert answer["status"] == "error", answer
    assert "Try again" not in plain(await page(console, f"/deliveries/{answer['notification_id']}"))
