"""Asking how a message stands, and taking it back: own messages only, decided by the Messenger alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final
from uuid import uuid4

import pytest

from messenger.maintenance import reaper, rechecker
from shared.rpc import Answer
from shared.storage import withdrawals
from tests.integration.database.test_privileges import refused
from tests.integration.house import House
from tests.integration.workers import ACTION, admitted, friend, in_queue, new_chat, reap, work, worker_where
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS = "SELECT event_type, actor FROM shared.approval_events WHERE notification_id = $1 ORDER BY seq"
OUTCOME = "SELECT outcome FROM shared.withdrawals WHERE notification_id = $1"
ASK = "INSERT INTO shared.withdrawals (notification_id, origin_butler) VALUES ($1, $2)"


async def ask(house: House, tool: str, butler: str = "greeter", /, **arguments: object) -> Answer:
    """Call one of the two tools as the butler's client does."""
    return await house.assembly.local[butler].call(house.tokens[butler], tool, arguments)


async def parked(house: House, message: str) -> Answer:
    answer = await house.notify(message=message, contact_id=await house.contact("Zoe", telegram=new_chat()))
    assert answer["status"] == "pending_approval", answer
    return answer


async def look_again(house: House) -> None:
    async with house.context("messenger").db.work() as connection:
        await rechecker.withdrawn(connection)


def error_of(answer: Answer) -> Mapping[str, object]:
    error = answer["error"]
    assert isinstance(error, Mapping), answer
    return error


async def test_the_status_is_the_stored_answer(house: House, message: str) -> None:
    sent = await house.notify(message=message)
    assert sent["status"] == "ok"
    assert await ask(house, "notification_status", notification_id=sent["notification_id"]) == sent


async def test_waiting_ends_with_the_outcome_and_not_with_the_yes(house: House, message: str) -> None:
    answer = await parked(house, message)
    asking = asyncio.ensure_future(
        ask(house, "notification_status", notification_id=answer["notification_id"], wait_seconds=20)
    )
    await asyncio.sleep(0.3)
    assert not asking.done()
    started = time.monotonic()
    assert (await house.decide(answer["action_id"])).code == "approved"
    assert (await asking)["status"] == "ok"
    assert time.monotonic() - started < 15  # of the twenty it may take in vain


async def test_waiting_ends_at_its_time(house: House, message: str) -> None:
    answer = await parked(house, message)
    started = time.monotonic()
    found = await ask(house, "notification_status", notification_id=answer["notification_id"], wait_seconds=0.4)
    assert found == answer
    assert 0.4 <= time.monotonic() - started < LONGEST


@pytest.mark.parametrize("tool", ["notification_status", "withdraw"])
async def test_nobody_asks_about_anothers_message(house: House, message: str, tool: str) -> None:
    answer = await parked(house, message)
    for butler in ("health", "switchboard", "messenger"):
        told = await ask(house, tool, butler, notification_id=answer["notification_id"])
        assert told == {
            "status": "error",
            "error": f"You have no notification '{answer['notification_id']}'. "
            "Use the notification_id that notify returned.",
        }
    assert await house.status(answer["notification_id"]) == "pending_approval"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "Missing required 'notification_id'"),
        ({"notification_id": 7}, "Missing required 'notification_id'"),
        ({"notification_id": "no such thing"}, "You have no notification 'no such thing'"),
        ({"notification_id": str(uuid4()), "wait_seconds": 51}, "must be a number from 0 to 50"),
        ({"notification_id": str(uuid4()), "wait_seconds": "soon"}, "must be a number from 0 to 50"),
        ({"notification_id": str(uuid4()), "hurry": True}, "Unknown parameter 'hurry'"),
    ],
)
async def test_what_cannot_be_asked_is_said(house: House, arguments: Mapping[str, object], says: str) -> None:
    answer = await ask(house, "notification_status", **arguments)
    assert answer["status"] == "error"
    assert says in str(answer["error"])


async def test_what_waits_for_the_owner_can_be_withdrawn(house: House, message: str) -> None:
    answer = await parked(house, message)
    [card] = await until(lambda: house.cards(message))
    gone = await ask(house, "withdraw", notification_id=answer["notification_id"])
    assert error_of(gone) == {
        "class": "forbidden",
        "message": "Cancelled by greeter. Not sent.",
        "retryable": False,
    }
    action = await house.row(ACTION, answer["notification_id"])
    assert (action["status"], await house.sql.fetchval(OUTCOME, answer["notification_id"])) == (
        "cancelled",
        "cancelled",
    )
    assert [tuple(row) for row in await house.sql.fetch(EVENTS, answer["notification_id"])][-1] == (
        "cancelled",
        "greeter",
    )
    edits = await until(lambda: house.sent("Cancelled by greeter", "editMessageText"))
    assert edits[-1]["provider_id"] == card["provider_id"]
    assert (await house.press(card))["outcome"] == "late"
    again = await house.notify(message=message, contact_id=action["tool_args"]["contact_id"])
    assert (error_of(again)["message"], again["duplicate"]) == ("Cancelled by greeter. Not sent.", True)
    assert house.sent(message) == []


async def test_what_is_settled_is_answered_as_it_stands(house: House, message: str) -> None:
    sent = await house.notify(message=message)
    assert await ask(house, "withdraw", notification_id=sent["notification_id"]) == sent
    assert await house.sql.fetchval(OUTCOME, sent["notification_id"]) is None


async def test_what_lacks_an_identifier_can_be_withdrawn_by_the_id_the_butler_was_given(
    house: House, message: str
) -> None:
    answer = await house.notify(message=message, contact_id=await house.contact("Bo", email=f"{uuid4().hex}@a.test"))
    assert answer["status"] == "pending_missing_identifier"
    found = await ask(house, "notification_status", notification_id=answer["action_id"])
    assert (found["status"], found["action_id"]) == ("pending_missing_identifier", answer["action_id"])
    gone = await ask(house, "withdraw", notification_id=answer["action_id"])
    assert error_of(gone)["message"] == "Cancelled by greeter. Not sent."


async def test_what_lies_in_the_queue_is_cancelled(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(ASK, told, "greeter")
    await look_again(still_house)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "cancelled"
    assert (await still_house.status(told), still_house.sent(message)) == ("error", [])


async def test_what_is_withdrawn_and_proved_not_sent_gives_its_rule_the_use_back(
    still_house: House, message: str
) -> None:
    anna = await friend(still_house, max_uses=1)
    told = await in_queue(still_house, message, contact_id=anna)
    await still_house.fault(message, "429", times=1)
    await work(still_house.worker())
    await still_house.sql.execute(ASK, told, "greeter")
    await look_again(still_house)
    assert await still_house.status(told) == "error"
    assert await still_house.status(await admitted(still_house, f"{message}, corrected", contact_id=anna)) == "queued"


async def test_what_is_withdrawn_before_the_marker_does_not_leave(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message, contact_id=await friend(still_house, max_uses=1))
    worker = worker_where(still_house, partial(still_house.sql.execute, ASK, told, "greeter"))
    await work(worker)
    assert still_house.sent(message) == []
    assert (await still_house.delivery(told))["status"] == "cancelled"
    used = await still_house.row("SELECT count(*) AS n FROM shared.rule_uses WHERE notification_id = $1", told)
    assert used["n"] == 0
    answer = (await still_house.row("SELECT answer FROM shared.notifications WHERE id = $1", told))["answer"]
    assert answer["error"]["message"] == "Cancelled by greeter. Not sent."
    await look_again(still_house)
    assert await still_house.sql.fetchval(OUTCOME, told) == "settled"


async def test_what_somebody_prepares_is_left_to_the_marker(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    seen = []

    async def withdrawn_while_prepared() -> None:
        await still_house.sql.execute(ASK, told, "greeter")
        await look_again(still_house)
        seen.append(await still_house.sql.fetchval(OUTCOME, told))
        seen.append((await still_house.delivery(told))["status"])

    await work(worker_where(still_house, withdrawn_while_prepared))
    assert seen == [None, "claimed"]
    assert still_house.sent(message) == []


async def test_past_the_marker_it_is_too_late(house: House, message: str) -> None:
    await house.fault(message, "slow", times=1, value=5)
    telling = asyncio.ensure_future(house.notify(message=message))
    found = "SELECT id FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
    told = await eventually(partial(house.sql.fetchval, found, message))
    sending = "SELECT id FROM messenger.deliveries WHERE notification_id = $1 AND status = 'sending'"
    await eventually(partial(house.sql.fetchval, sending, told))
    stands = await ask(house, "notification_status", notification_id=told)
    assert (stands["status"], stands["message"]) == (
        "queued",
        "Being sent; the outcome is not known yet. Do not send it again.",
    )
    late = await ask(house, "withdraw", notification_id=told)
    assert (late["status"], late["message"]) == (
        "queued",
        "It is already being sent and can no longer be withdrawn. Do not send it again.",
    )
    assert (await telling)["status"] in {"ok", "uncertain"}
    assert len(house.sent(message)) == 1


async def test_another_butlers_wish_counts_for_nothing(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(ASK, told, "health")
    await look_again(still_house)
    await work(still_house.worker())
    assert await still_house.status(told) == "ok"


LAST: Final = "UPDATE shared.notifications SET id = 'ffffffff-ffff-4fff-bfff-ffffffffffff' WHERE id = $1 RETURNING id"


async def test_butlers_take_turns_in_having_their_wishes_carried_out(still_house: House, message: str) -> None:
    first, second = [await admitted(still_house, f"{message} {n}", "health") for n in range(2)]
    last = str(await still_house.sql.fetchval(LAST, await admitted(still_house, message)))
    for told, butler in ((first, "health"), (second, "health"), (last, "greeter")):
        await still_house.sql.execute(ASK, told, butler)
    async with still_house.context("messenger").db.work() as connection:
        order = [row["notification_id"] for row in await withdrawals.unanswered(connection)]
    assert order.index(last) < max(order.index(first), order.index(second))
    await look_again(still_house)


@pytest.mark.parametrize("name", ["greeter", "switchboard", "messenger"])
async def test_nobody_withdraws_in_anothers_name_or_says_what_became_of_it(
    still_house: House, message: str, name: str
) -> None:
    told = await in_queue(still_house, message)
    await refused(still_house, name, ASK, told, "health")
    if name != "messenger":
        await refused(still_house, name, "UPDATE shared.withdrawals SET outcome = 'cancelled'")
        await refused(still_house, name, "DELETE FROM shared.withdrawals")


LONG_AGO = "UPDATE shared.notifications SET created_at = created_at - interval '1 minute' WHERE id = $1"
NOBODY = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE notification_id = $1"
# A Messenger wrote its marker, and was killed.
KILLED = """
WITH d AS (
    UPDATE messenger.deliveries SET status = 'sending', fence = 1, attempt = 1, claimed_by = 'gone',
        lease_until = clock_timestamp() WHERE notification_id = $1 RETURNING id),
p AS (
    INSERT INTO messenger.parts (delivery_id, n, wire_sha, status) SELECT id, 1, 'x', 'sending' FROM d)
INSERT INTO messenger.attempts (delivery_id, n, attempt, started_at, marked_at)
SELECT id, 1, 1, clock_timestamp(), clock_timestamp() FROM d
"""
TOLD = "SELECT kind, text FROM shared.notices WHERE key = $1"


async def unanswered(house: House, message: str) -> str:
    told = str((await parked(house, message))["notification_id"])
    await house.sql.execute(LONG_AGO, told)
    await house.sql.execute(NOBODY, told)
    async with house.context("messenger").db.work() as connection:
        await reaper.close_unanswered(connection)
    return told


async def killed(house: House, message: str) -> str:
    told = await in_queue(house, message)
    await house.sql.execute(LONG_AGO, told)
    await house.sql.execute(KILLED, told)
    await reap(house)
    return told


async def forbidden(house: House, message: str) -> str:
    contact = await friend(house)
    told = await in_queue(house, message, contact_id=contact)
    await house.sql.execute(LONG_AGO, told)
    await house.rule({"contact_id": contact}, effect="deny")
    await work(house.worker())
    return told


async def unheard(house: House, message: str) -> str:
    told = await in_queue(house, message)
    await house.sql.execute(LONG_AGO, told)
    await house.fault(message, "accept_reset", times=1)
    await work(house.worker())
    return told


@pytest.mark.parametrize(
    ("way", "kind", "said"),
    [
        (unanswered, "failed", "has ended as error: Expired without an answer. Not sent."),
        (killed, "uncertain", "has ended as uncertain: Delivery unconfirmed"),
        (forbidden, "failed", "has ended as error: Blocked by a rule."),
        (unheard, "uncertain", "may have arrived; nobody knows."),
    ],
)
async def test_whatever_ends_it_later_than_its_call_its_butler_is_told_once(
    still_house: House, message: str, way: Callable[[House, str], Awaitable[str]], kind: str, said: str
) -> None:
    told = await way(still_house, message)
    [notice] = await still_house.sql.fetch(TOLD, told)
    assert notice["kind"] == kind
    assert said in notice["text"]
