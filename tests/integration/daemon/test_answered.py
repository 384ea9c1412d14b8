"""What a session is told of the message that the one before it answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from messenger.cards import kinds
from messenger.cards.strangers import stranger
from messenger.storage.kinds import stranger_cards
from shared.config.timings import STANDARD
from shared.gate.tool_call import Declared, admit_call
from shared.storage import turns
from shared.storage.tool_calls import NewCall
from switchboard import incoming
from tests.integration.daemon.test_conversations import ROW, asked
from tests.integration.daemon.test_routing import begun, bring, event
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import admitted, enqueue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")
ITS_QUESTION = """
INSERT INTO shared.sessions (id, butler, cause, prompt, asked_by, chain, depth)
VALUES (gen_random_uuid(), 'health', 'butler', 'x', 'greeter', $1, 1) RETURNING id
"""
BY_MAIL = """
UPDATE switchboard.inbox SET channel = 'email', request_context = request_context || '{"source_channel": "email"}'
WHERE text = $1
"""


async def test_what_the_owner_answers_of_what_was_said_before_is_marked(still_house: House, message: str) -> None:
    for said in ("Cancel the dinner?", "Pay the invoice?"):
        await enqueue(still_house, await admitted(still_house, f"{message} {said}"))
        await work(still_house.worker())
    number = int(str(still_house.sent(f"{message} Cancel the dinner?")[0]["provider_id"]))
    [own] = await begun(still_house, event(f"{message} hello", OWNER, event={"reply_to": f"{OWNER}:{number}"}))
    place = str((await still_house.row(ROW, f"{message} hello"))["thread"])
    [other] = await begun(still_house, event(f"/greeter {message} anew", OWNER, event={"reply_to": place}))
    for session, answered in ((own, "Cancel the dinner?"), (other, "hello")):
        blocks = (await asked(still_house, session)).prompt.split("\n\n")
        assert [f"{message} {answered}" in block for block in blocks if ' answered="yes" ' in block] == [True]


async def test_what_another_butler_said_is_not_shown_as_what_is_answered(still_house: House, message: str) -> None:
    told = await admitted(still_house, f"{message} from the greeter")
    await enqueue(still_house, told)
    await work(still_house.worker())
    [session] = await begun(still_house, event(f"/health {message} hello", OWNER))
    # By a login that sees all butlers' words, as where one serves them all.
    found = await turns.received(still_house.sql, str(session["id"]))
    assert found is not None
    for butler, is_shown in (("greeter", True), ("health", False)):
        asks = replace(found, answers=told, place=replace(found.place, butler=butler))
        assert (await turns.answered_by(still_house.sql, asks) is not None) == is_shown


async def test_what_the_owner_marked_of_a_message_stands_below_the_answer(still_house: House, message: str) -> None:
    marked = {"payload": {"quoted": "2. the hairdresser"}}
    [session] = await begun(still_house, event(f"/health {message} cancel this one", OWNER, **marked))
    *_, own, quoted = (await asked(still_house, session)).prompt.split("\n\n")
    assert own.endswith(f"{message} cancel this one\n</message>")
    assert quoted.startswith('<message from="unverified" forwarded_by="owner" ')
    assert ' kind="quoted" ' in quoted
    assert quoted.endswith("\n2. the hairdresser\n</message>")
    [later] = await begun(still_house, event(f"/health {message} and the next one", OWNER))
    assert quoted in (await asked(still_house, later)).prompt


async def test_what_somebody_else_marked_stands_on_the_card(still_house: House, message: str) -> None:
    row = await bring(still_house, event(f"{message} this one", new_chat(), payload={"quoted": "Tuesday"}))
    await incoming.route_waiting(still_house.context("switchboard"))
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    quotes = stranger.words(found, has_buttons=True)[1].quotes
    assert [(one.text, one.label) for one in quotes][1:] == [("Tuesday", stranger.MARKED)]


async def test_a_reply_to_the_card_of_what_the_owner_was_to_be_told_says_what_it_was(
    still_house: House, message: str
) -> None:
    told = await admitted(still_house, message)
    [session] = await begun(still_house, event(f"/greeter {message} again", OWNER))
    found = await turns.received(still_house.sql, str(session["id"]))
    assert found is not None
    answered = await turns.answered_by(still_house.sql, replace(found, answers=told))
    assert answered is not None
    assert (answered.kind, answered.text.split(": ")[-1]) == ("request", message)


async def card_about(house: House, words: str) -> str:
    """The thread of the card that says these words, once it is sent."""
    worker, numbers = house.worker(), list[object]()
    while not numbers:  # the owner's chat takes one at a time, those of other tests too
        async with house.context("messenger").db.work() as connection:
            await kinds.write_missing(connection, 1000, STANDARD)
        await work(worker)
        numbers = [card["provider_id"] for card in house.cards(words)]
    return f"{OWNER}:{numbers[0]}"


@asynccontextmanager
async def mail_is_live(house: House) -> AsyncIterator[None]:
    await house.sql.execute("UPDATE shared.channels SET realm = 'live' WHERE channel = 'email'")
    try:
        yield
    finally:
        await house.sql.execute("UPDATE shared.channels SET realm = 'sandbox' WHERE channel = 'email'")


async def test_what_is_written_in_the_sandbox_begins_nothing_by_what_it_answers(
    still_house: House, message: str
) -> None:
    await bring(still_house, event(f"{message} by mail", new_chat()))
    await incoming.route_waiting(still_house.context("switchboard"))
    card = await card_about(still_house, f"{message} by mail")
    await still_house.sql.execute(BY_MAIL, f"{message} by mail")
    orders = event(f"{message} orders", OWNER, event={"reply_to": card})
    async with mail_is_live(still_house):
        assert await begun(still_house, orders) == []
    assert (await still_house.row(ROW, f"{message} orders"))["concerns"] is not None


async def test_what_was_begun_in_the_sandbox_ends_when_a_channel_reaches_people(
    still_house: House, message: str
) -> None:
    [session] = await begun(still_house, event(message, OWNER))
    assert session["status"] == "waiting"
    asked = await still_house.sql.fetchval(ITS_QUESTION, session["id"])
    async with mail_is_live(still_house):
        row = await still_house.row("SELECT status, untold FROM shared.sessions WHERE id = $1", session["id"])
        also = await still_house.row("SELECT status FROM shared.sessions WHERE id = $1", asked)
    assert (row["status"], also["status"]) == ("stopped", "stopped"), "also what it has asked of another butler"
    assert f"It was asked: “{message}”" in row["untold"]


async def test_what_is_written_in_the_sandbox_proves_nobody_while_a_channel_reaches_people(
    still_house: House, message: str
) -> None:
    chat = new_chat()
    anna = await still_house.contact("Anna", telegram=chat)
    row = await bring(still_house, event(message, chat))
    await incoming.route_waiting(still_house.context("switchboard"))

    async def how() -> tuple[str, bool]:
        found = await stranger_cards.one(still_house.sql, str(row["id"]))
        assert found is not None
        said = stranger.words(found, has_buttons=True)[1].head.split("\n")
        [turn] = await turns.of_contact(still_house.sql, anna)
        return f"{said[0]} {stranger.PLAYED in said}", turn.is_verified

    assert await how() == ("Your contact wrote to your butlers by Telegram. False", True)
    async with mail_is_live(still_house):
        assert await how() == ("Somebody unverified wrote to your butlers by Telegram. True", False)


async def message_to(house: House, message: str, what: str) -> str:
    chat = new_chat()
    await admitted(house, f"{message} {what}", recipient=chat)
    return f"To {chat}: {message} {what}\n"


async def call_of(house: House, message: str, what: str) -> str:
    new = NewCall(str(uuid4()), "greeter", "water", f'{{"bed":"{what}"}}', f"{message} {what}", "low", repeatable=False)
    async with house.context("greeter").db.work() as connection:
        await admit_call(connection, new, Declared("ask", "low"), timedelta(hours=1))
    return f"water: {message} {what}\n"


@pytest.mark.parametrize("asks", [message_to, call_of])
async def test_a_reply_to_a_card_says_which_request_it_answers(
    still_house: House, message: str, asks: Callable[[House, str, str], Awaitable[str]]
) -> None:
    first, _ = [await asks(still_house, message, what) for what in ("at two?", "at eight?")]
    answers = {"reply_to": await card_about(still_house, f"{message} at two?")}
    [session] = await begun(still_house, event(f"{message} no, at three", OWNER, event=answers))
    blocks = (await asked(still_house, session)).prompt.split("\n\n")
    [block] = [one for one in blocks if ' kind="request" answered="yes" ' in one]
    assert session["butler"] == "greeter"
    assert first in block
