"""Asking again for what ended unsent: decided afresh, only where nothing left, never against a word of the owner."""

from uuid import uuid4

import pytest

from messenger.maintenance import reaper
from shared.contracts import route_request
from shared.rpc import Answer
from tests.integration.house import House
from tests.integration.workers import ACTION, friend, new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_LATE = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1"
REVOKE = "UPDATE shared.approval_rules SET active = false WHERE id = $1"
ACTIONS = "SELECT status FROM shared.pending_actions WHERE notification_id = $1 ORDER BY requested_at"


async def ask_again(house: House, answer: Answer) -> Answer:
    """What the Messenger says when the Switchboard brings it anew."""
    row = await house.row("SELECT envelope FROM shared.notifications WHERE id = $1", answer["notification_id"])
    envelope = {**row["envelope"], "notification_id": answer["notification_id"]}
    request = route_request(envelope, "greeter", "r", again=True)
    told = await house.hop("switchboard", "messenger", "route.execute", request)
    result = told["result"]
    assert isinstance(result, dict), told
    return result["notify_response"]  # type: ignore[no-any-return]  # an object


async def expire(house: House, answer: Answer) -> None:
    await house.sql.execute(TOO_LATE, answer["action_id"])
    async with house.context("messenger").db.work() as connection:
        await reaper.close_unanswered(connection)
    assert await house.status(answer["notification_id"]) == "error"


async def test_what_the_provider_refused_goes_out_when_it_is_asked_again(house: House, message: str) -> None:
    await house.fault(message, "400", times=1)
    asked = {"message": message, "contact_id": await friend(house)}
    first = await house.notify(**asked)
    assert first["status"] == "error"
    second = await house.notify(**asked)
    assert (second["status"], second["duplicate"]) == ("ok", True)
    assert second["notification_id"] == first["notification_id"]
    assert len(house.sent_to_others(message)) == 1
    third = await house.notify(**asked)
    assert third == second
    assert len(house.sent_to_others(message)) == 1


async def test_a_route_that_comes_late_begins_nothing_anew(house: House, message: str) -> None:
    await house.fault(message, "400", times=1)
    first = await house.notify(message=message)
    row = await house.row("SELECT envelope FROM shared.notifications WHERE id = $1", first["notification_id"])
    envelope = {**row["envelope"], "notification_id": first["notification_id"]}
    told = await house.hop("switchboard", "messenger", "route.execute", route_request(envelope, "greeter", "r"))
    assert told["result"]["notify_response"]["status"] == "error"  # type: ignore[index]  # an object
    assert house.sent_to_others(message) == []


async def test_an_earlier_yes_is_no_yes_to_another_try(house: House, message: str) -> None:
    asked = {"message": message, "contact_id": await house.contact("Zoe", telegram=new_chat())}
    answer = await house.notify(**asked)
    await until(lambda: house.cards(message))  # the card holds these words too, and must not meet the fault
    await house.fault(message, "400", times=1)
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "error")
    again = await house.notify(**asked)
    assert (again["status"], again["duplicate"]) == ("pending_approval", True)
    assert again["action_id"] != answer["action_id"]
    assert house.sent_to_others(message) == []
    assert (await house.decide(again["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    assert [row["status"] for row in await house.sql.fetch(ACTIONS, answer["notification_id"])] == [
        "failed",
        "executed",
    ]


async def test_what_nobody_answered_is_asked_once_more_and_not_twice(house: House, message: str) -> None:
    asked = {"message": message, "contact_id": await house.contact("Zoe", telegram=new_chat())}
    first = await house.notify(**asked)
    assert await until(lambda: house.cards(message))
    await expire(house, first)
    second = await house.notify(**asked)
    assert (second["status"], second["duplicate"]) == ("pending_approval", True)
    await until(lambda: len(house.cards(message)) == 2)
    await expire(house, second)
    third = await house.notify(**asked)
    assert (third["status"], third["duplicate"]) == ("error", True)
    assert house.sent_to_others(message) == []


async def test_what_cannot_begin_anew_now_may_later(house: House, message: str) -> None:
    zoe = await house.contact("Zoe", telegram=new_chat())
    asked = {"message": message, "contact_id": zoe}
    first = await house.notify(**asked)
    await expire(house, first)
    block = await house.rule({"contact_id": zoe}, effect="deny")
    assert (await ask_again(house, first))["status"] == "error"
    await house.sql.execute(REVOKE, block)
    assert (await house.notify(**asked))["status"] == "pending_approval"


async def test_what_was_denied_stays_denied(house: House, message: str) -> None:
    asked = {"message": message, "contact_id": await house.contact("Zoe", telegram=new_chat())}
    answer = await house.notify(**asked)
    assert (await house.decide(answer["action_id"], approve=False)).code == "denied"
    assert (await ask_again(house, answer))["status"] == "error"
    again = await house.notify(**asked)
    assert again["error"] == {"class": "forbidden", "message": "Denied by the owner.", "retryable": False}
    assert [row["status"] for row in await house.sql.fetch(ACTIONS, answer["notification_id"])] == ["denied"]


async def test_what_is_uncertain_is_never_asked_again(house: House, message: str) -> None:
    await house.fault(message, "500", times=1)
    answer = await house.notify(message=message, contact_id=await friend(house))
    assert answer["status"] == "uncertain"
    assert (await ask_again(house, answer))["status"] == "uncertain"
    assert (await house.delivery(answer["notification_id"]))["status"] == "uncertain"


async def test_what_was_withdrawn_stays_withdrawn(house: House, message: str) -> None:
    asked = {"message": message, "contact_id": await house.contact("Zoe", telegram=new_chat())}
    answer = await house.notify(**asked)
    door, token = house.assembly.local["greeter"], house.tokens["greeter"]
    await door.call(token, "withdraw", {"notification_id": answer["notification_id"]})
    assert (await ask_again(house, answer))["status"] == "error"
    assert (await house.row(ACTION, answer["notification_id"]))["status"] == "cancelled"


async def test_what_left_in_part_is_never_begun_anew(house: House, message: str) -> None:
    first, second = f"first {uuid4()}", f"second {uuid4()}"
    await house.fault(second, "400", times=1)
    long = f"{first} {'word ' * 900}{second}"
    answer = await house.notify(message=long, contact_id=await friend(house))
    assert answer["status"] == "error", answer
    assert len(house.sent(first)) == 1
    assert (await ask_again(house, answer))["status"] == "error"
    assert len(house.sent(first)) == 1
    assert house.sent(second) == []
