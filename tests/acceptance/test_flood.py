"""Ten questions, each of which reaches the owner's phone; and two hundred, with four messages for them.

Each of the two hundred can be decided in one of three ways: by its own card, by the button of the digest that shows its
card, and for what the digest does not list by the list of all that waits.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.outside import Entry
from tests.rig.waiting import LONGEST

# The same stands in rows in tests/integration/gate/test_flood.py.
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

MANY = 200
AT_ONCE = 10
BURST = 3


@pytest_asyncio.fixture(loop_scope="module")
async def flooded(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet of its own, with the burst that an installation has."""
    fleet = await Fleet.start(await bench.house(BUTLERS_CARD_BURST=str(BURST)))
    yield fleet
    await fleet.stop()


def asks(entry: Entry) -> bool:
    """Whether it is a message to the owner with buttons."""
    return entry.to == str(OWNER) and entry.method == "sendMessage" and "reply_markup" in entry.payload


def buttons(entry: Entry) -> dict[str, str]:
    markup = entry.payload["reply_markup"]
    assert isinstance(markup, dict)
    return {button["text"]: button["callback_data"] for row in markup["inline_keyboard"] for button in row}


async def ask(fleet: Fleet, said: str, contact: str, first: int) -> list[Answer]:
    """The answers to a few questions asked at once."""
    numbers = range(first, first + AT_ONCE)
    asked = (fleet.notify(channel="telegram", message=f"{said} n{n}.", contact_id=contact) for n in numbers)
    return await asyncio.gather(*asked)


TEN = 10


async def test_each_of_ten_questions_that_the_owner_answers_is_a_card_of_its_own(flooded: Fleet) -> None:
    said, chat = fresh.words("tour"), fresh.chat()
    contact = await flooded.contact("Anna", telegram=chat)
    for n in range(TEN):
        answer = await flooded.notify("greeter", channel="telegram", message=f"{said} n{n}.", contact_id=contact)
        card = await flooded.outside.card(str(answer["action_id"]))
        assert f"{said} n{n}." in card.text
        await flooded.outside.press(card, "Approve")
        await flooded.outside.arrived(f"{said} n{n}.", chat, LONGEST)


async def test_each_of_ten_questions_that_nobody_answers_shows_on_the_phone(flooded: Fleet) -> None:
    said, chat = fresh.words("silent"), fresh.chat()
    contact = await flooded.contact("Bob", telegram=chat)

    async def ask_one(n: int) -> None:
        await flooded.notify("greeter", channel="telegram", message=f"{said} n{n}.", contact_id=contact)

    async def lists(count: int, method: str) -> Entry:
        head = f"▣ Greeter needs your approval for {count} more message{'s' if count > 1 else ''}:"
        [found] = await flooded.outside.until(lambda e: e.method == method and e.text.startswith(head))
        return found

    for n in range(BURST):
        await ask_one(n)
        await flooded.outside.until(lambda e, n=n: asks(e) and f"{said} n{n}." in e.text)  # type: ignore[misc]
    await ask_one(BURST)
    first = await lists(1, "sendMessage")
    await ask_one(BURST + 1)
    await lists(2, "editMessageText")
    await asyncio.gather(*(ask_one(n) for n in range(BURST + 2, TEN)))
    last = await lists(TEN - BURST, "editMessageText")
    assert last.payload["message_id"] == int(first.provider_id)
    assert set(buttons(last)) == {f"Show {n}" for n in range(1, TEN - BURST + 1)}


async def test_a_flood_of_questions_is_three_cards_and_a_digest(flooded: Fleet) -> None:
    said, chat = fresh.words("flood"), fresh.chat()
    contact = await flooded.contact("Anna", telegram=chat)
    await flooded.client("health")
    told = [answer for n in range(0, MANY, AT_ONCE) for answer in await ask(flooded, said, contact, n)]
    assert {answer["status"] for answer in told} == {"pending_approval"}
    [digest] = await flooded.outside.until(lambda e: asks(e) and "more message" in e.text)
    listed = (
        r"▣ Health needs your approval for \d+ more messages?:\n\n1\. to Anna \(\d+\) on Telegram, \d+ characters\n"
    )
    assert re.match(listed, digest.text)
    assert said not in digest.text
    await flooded.outside.until(lambda e: asks(e) and said in e.text, BURST)
    assert len([entry for entry in await flooded.outside.journal() if asks(entry)]) == BURST + 1

    code, out, _ = await flooded.house.butlers("approvals", "list", "--status", "pending", "--json")
    assert code == 0
    assert {row["id"] for row in json.loads(out)["actions"]} == {answer["action_id"] for answer in told}

    [first, *_] = await flooded.outside.until(lambda e: asks(e) and said in e.text, BURST)
    await flooded.outside.press_data(int(digest.provider_id), buttons(digest)["Show 1"])
    [*_, shown] = await flooded.outside.until(lambda e: asks(e) and said in e.text, BURST + 1, LONGEST)
    for card in (first, shown):
        found = re.search(rf"({said} n\d+\.)", card.text)
        assert found is not None
        await flooded.outside.press_data(int(card.provider_id), buttons(card)["Approve"])
        await flooded.outside.arrived(found[1], chat, LONGEST)
    code, _, _ = await flooded.house.butlers("approvals", "approve", str(told[-1]["action_id"]))
    assert code == 0
    await flooded.outside.arrived(f"{said} n{MANY - 1}.", chat, LONGEST)
    assert len([entry for entry in await flooded.outside.journal() if asks(entry)]) == BURST + 2
