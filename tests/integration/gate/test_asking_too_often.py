"""The same request that waits already is one question; and after three noes in a row a butler asks no more there."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from shared import answers
from shared.auth import keystore
from shared.rpc import Answer
from tests.integration.database.test_privileges import logged_in
from tests.integration.doubts import say
from tests.integration.gate.test_reopening import ask_again, expire
from tests.integration.house import House
from tests.integration.workers import ACTION, CHATS, enqueue, in_queue, new_chat, reap, work
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAST_NO = "UPDATE shared.pending_actions SET decided_at = decided_at - interval '24 hours' WHERE decided_at IS NOT NULL"
EXPIRE = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1"
# As soon as the Messenger has it.
LIES_THERE = """
SELECT n.status FROM shared.notifications n JOIN messenger.deliveries d ON d.notification_id = n.id
WHERE n.envelope #>> '{delivery,message}' = $1
"""
WAITING = "SELECT count(*) FROM shared.pending_actions WHERE status = 'pending' AND tool_args ->> 'message' = $1"


async def ask(house: House, butler: str = "greeter", **arguments: object) -> Answer:
    """One more question in other words."""
    return await house.notify(butler, **{"message": f"words {uuid4()}", **arguments})


async def refuse(house: House, times: int, butler: str = "greeter", **arguments: object) -> None:
    for _ in range(times):
        answer = await ask(house, butler, **arguments)
        assert answer["status"] == "pending_approval", answer
        await house.decide(answer["action_id"], approve=False)


def is_cool(answer: Answer) -> bool:
    """Whether it was refused because of earlier noes, finally and with the reason."""
    if answer["status"] != "error":
        assert answer["status"] == "pending_approval", answer
        return False
    error = answer["error"]
    assert isinstance(error, dict)
    assert (error["class"], error["retryable"]) == ("forbidden", False)
    assert "three times in a row" in error["message"]
    assert "do not ask again" in error["message"]
    return True


async def test_the_same_request_asked_again_is_one_question(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    told = [
        await still_house.notify(message=message, contact_id=contact, request_context={"request_id": f"{uuid4()}"})
        for _ in range(5)
    ]
    assert {answer["action_id"] for answer in told} == {told[0]["action_id"]}
    assert [answer.get("duplicate") for answer in told] == [None, True, True, True, True]
    assert {answer.get("note") for answer in told[1:]} == {answers.WAITS_ALREADY}
    assert await still_house.sql.fetchval(WAITING, message) == 1


async def test_a_stated_key_asks_again_on_purpose(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    await still_house.notify(message=message, contact_id=contact)
    context = {"request_id": "r", "idempotency_key": f"{uuid4()}"}
    again = await still_house.notify(message=message, contact_id=contact, request_context=context)
    assert "duplicate" not in again
    assert await still_house.sql.fetchval(WAITING, message) == 2
    assert (await still_house.notify(message=message, contact_id=contact, request_context=context))["duplicate"]


async def test_another_butlers_question_is_another(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    for butler in ("greeter", "health"):
        answer = await still_house.notify(butler, message=message, contact_id=contact)
        assert "duplicate" not in answer
    assert await still_house.sql.fetchval(WAITING, message) == 2


async def test_what_is_answered_can_be_asked_again(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    first = await still_house.notify(message=message, contact_id=contact, request_context={"request_id": f"{uuid4()}"})
    await still_house.decide(first["action_id"], approve=False)
    again = await still_house.notify(message=message, contact_id=contact, request_context={"request_id": f"{uuid4()}"})
    assert again["status"] == "pending_approval"
    assert again["action_id"] != first["action_id"]


async def test_what_waits_for_an_identifier_is_one_question(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", email=f"{uuid4().hex}@example.org")
    told = [
        await still_house.notify(message=message, contact_id=contact, request_context={"request_id": f"{uuid4()}"})
        for _ in range(2)
    ]
    assert [answer["status"] for answer in told] == ["pending_missing_identifier"] * 2
    assert told[0]["action_id"] == told[1]["action_id"]
    assert told[1]["duplicate"]


async def test_after_three_noes_the_fourth_question_is_refused(still_house: House, message: str) -> None:
    chat = new_chat()
    contact = await still_house.contact("Zoe", telegram=chat)
    await refuse(still_house, 3, contact_id=contact)
    answer = await still_house.notify(message=message, contact_id=contact)
    assert is_cool(answer)
    assert is_cool(await ask(still_house, recipient=chat))
    text = "SELECT event_type FROM shared.approval_events WHERE notification_id = $1"
    assert await still_house.sql.fetchval(text, answer["notification_id"]) == "cooled_down"
    assert await still_house.sql.fetchval(WAITING, message) == 0


async def test_others_are_not_affected(still_house: House) -> None:
    chat = new_chat()
    contact = await still_house.contact("Zoe", telegram=chat)
    await refuse(still_house, 3, contact_id=contact)
    assert not is_cool(await ask(still_house, "health", contact_id=contact))
    assert not is_cool(await ask(still_house, contact_id=await still_house.contact("Yan", telegram=new_chat())))
    assert is_cool(await ask(still_house, contact_id=contact))


async def test_a_rule_lets_it_out_and_the_owner_is_always_told(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    await refuse(still_house, 3, contact_id=contact)
    rule = await still_house.rule({"contact_id": contact})
    task = asyncio.ensure_future(ask(still_house, contact_id=contact, message=message))
    told = None
    async with asyncio.timeout(LONGEST):
        while told is None:
            await asyncio.sleep(0.01)
            told = await still_house.sql.fetchrow(LIES_THERE, message)
    assert told["status"] == "queued"
    # Without it the Messenger decides the same, and asks nobody.
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    await work(still_house.worker())
    assert is_cool(await task)
    assert await still_house.sql.fetchval(WAITING, message) == 0


@pytest.mark.parametrize("there", ["zoe{n}@Example.org", "{n}"])
async def test_an_address_without_a_contact_cools_too(still_house: House, there: str) -> None:
    address = there.format(n=next(CHATS))
    channel = "email" if "@" in address else "telegram"
    await refuse(still_house, 3, channel=channel, recipient=address)
    assert is_cool(await ask(still_house, channel=channel, recipient=f" {address.upper()}"))


async def test_a_contact_without_an_identifier_cools_too(still_house: House) -> None:
    contact = await still_house.contact("Zoe", email=f"{uuid4().hex}@example.org")
    await refuse(still_house, 3, channel="email", contact_id=contact)
    assert is_cool(await ask(still_house, contact_id=contact))


async def a_yes(house: House, contact: str) -> None:
    answer = await ask(house, contact_id=contact)
    await house.decide(answer["action_id"])


async def no_answer(house: House, contact: str) -> None:
    answer = await ask(house, contact_id=contact)
    await house.sql.execute(EXPIRE, answer["action_id"])
    await house.sql.execute("UPDATE shared.pending_actions SET status = 'expired' WHERE id = $1", answer["action_id"])


@pytest.mark.parametrize(
    ("between", "cools"), [pytest.param(a_yes, False, id="a yes"), pytest.param(no_answer, True, id="no answer")]
)
async def test_only_noes_in_a_row_count(
    still_house: House, between: Callable[[House, str], Awaitable[None]], *, cools: bool
) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    await refuse(still_house, 2, contact_id=contact)
    await between(still_house, contact)
    await refuse(still_house, 1, contact_id=contact)
    assert is_cool(await ask(still_house, contact_id=contact)) is cools


async def test_it_ends_a_day_after_the_last_no(still_house: House) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    await refuse(still_house, 3, contact_id=contact)
    await still_house.sql.execute(LAST_NO)
    await refuse(still_house, 1, contact_id=contact)
    assert is_cool(await ask(still_house, contact_id=contact))


async def test_what_waited_before_waits_on_and_goes_out_after_a_yes(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    waiting = await still_house.notify(message=message, contact_id=contact)
    await refuse(still_house, 3, contact_id=contact)
    assert (await still_house.decide(waiting["action_id"])).code == "approved"
    await enqueue(still_house, str(waiting["notification_id"]))
    await work(still_house.worker())
    assert await still_house.status(waiting["notification_id"]) == "ok"
    assert await reap(still_house) == 0
    assert not is_cool(await ask(still_house, contact_id=contact))


@pytest.mark.parametrize("name", ["greeter", "health"])
async def test_a_butler_sees_what_was_said_to_itself_only(still_house: House, name: str) -> None:
    for butler in ("greeter", "health"):
        contact = await still_house.contact("Zoe", telegram=new_chat())
        await refuse(still_house, 1, butler, contact_id=contact)
    async with logged_in(still_house, name) as connection:
        rows = await connection.fetch("SELECT * FROM shared.owner_decisions")
    assert {row["origin_butler"] for row in rows} == {name}
    assert {tuple(row.keys()) for row in rows} == {("origin_butler", "contact_id", "address", "denied", "at", "realm")}
    async with logged_in(still_house, keystore.OWNER) as connection:
        assert await connection.fetchval("SELECT count(DISTINCT origin_butler) FROM shared.owner_decisions") == 2


async def test_the_action_of_a_refused_question_is_not_made(still_house: House) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    await refuse(still_house, 3, contact_id=contact)
    answer = await ask(still_house, contact_id=contact)
    assert await still_house.sql.fetch(ACTION, answer["notification_id"]) == []


async def test_what_expired_comes_up_once_after_the_noes_are_over(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    answer = await still_house.notify(message=message, contact_id=contact)
    await expire(still_house, answer)
    await refuse(still_house, 3, contact_id=contact)
    assert (await ask_again(still_house, answer))["status"] == "error"
    await still_house.sql.execute(LAST_NO)
    again = await ask_again(still_house, answer)
    assert again["status"] == "pending_approval"
    await expire(still_house, again)
    assert (await ask_again(still_house, answer))["status"] == "error"


async def test_the_owners_own_word_to_try_again_is_asked_about(still_house: House, message: str) -> None:
    contact = await still_house.contact("Zoe", telegram=new_chat())
    rule = await still_house.rule({"contact_id": contact})
    told = await in_queue(still_house, message, contact_id=contact)
    await still_house.fault(message, "400", times=1)
    await work(still_house.worker())
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    await refuse(still_house, 3, contact_id=contact)
    assert await say(still_house, told, "retry") == "done"
    action = await still_house.row(ACTION, told)
    assert (await still_house.decide(action["id"])).code == "approved"
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)
