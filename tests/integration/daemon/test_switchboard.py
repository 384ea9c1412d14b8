"""Stage 6: the origin is the token's, a tampered envelope is refused and audited, and nothing admitted is forgotten."""

import asyncio
from collections.abc import Mapping
from functools import partial
from uuid import UUID, uuid4

import pytest

from shared.contracts import route_request
from shared.errors import HopFailed
from shared.rpc import Answer
from switchboard import sweeper
from switchboard.storage import registry
from tests.integration.house import House
from tests.integration.workers import ACTION, OLDER, admitted, enqueue, friend, new_chat, work
from tests.rig.waiting import LONGEST, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSALS = "SELECT * FROM shared.approval_events WHERE event_type = 'refused' AND reason LIKE '%' || $1 || '%'"
IS_YOUNG = "SELECT clock_timestamp() < created_at + interval '3 seconds' FROM shared.notifications WHERE id = $1"
ROUTES = "SELECT * FROM switchboard.routes WHERE notification_id = $1"


def envelope(origin: str, message: str, *, notification_id: str | None = None, **delivery: object) -> Answer:
    """notify.v1 as a butler sends it."""
    made: dict[str, object] = {
        "schema_version": "notify.v1",
        "origin_butler": origin,
        "delivery": {"intent": "send", "channel": "telegram", "message": message, **delivery},
    }
    return made if notification_id is None else {**made, "notification_id": notification_id}


async def route(house: House, caller: str, request: Answer, target: str = "switchboard") -> Answer:
    """Bring an envelope as that daemon; the route_response.v1."""
    tool = "route" if target == "switchboard" else "route.execute"
    return await house.hop(caller, target, tool, route_request(request, caller, "r1"))


def inner(answer: Answer) -> Mapping[str, object]:
    result = answer["result"]
    assert isinstance(result, Mapping)
    told = result["notify_response"]
    assert isinstance(told, Mapping)
    return told


def error_of(answer: Answer) -> Mapping[str, object]:
    assert answer["status"] == "error", answer
    error = answer["error"]
    assert isinstance(error, Mapping)
    return error


async def test_an_envelope_of_the_contracts_fields_is_admitted_and_delivered(house: House, message: str) -> None:
    answer = await route(house, "greeter", envelope("greeter", message))
    assert answer["schema_version"] == "route_response.v1"
    told = inner(answer)
    assert (answer["status"], told["status"], len(house.sent(message))) == ("ok", "ok", 1)
    text = "SELECT origin_butler, admitted_by FROM shared.notifications WHERE id = $1"
    row = await house.row(text, told["notification_id"])
    assert tuple(row) == ("greeter", "switchboard")


async def test_the_messenger_admits_nothing(house: House, message: str) -> None:
    answer = await route(house, "switchboard", envelope("greeter", message), "messenger")
    assert error_of(answer)["class"] == "forbidden"
    stored = "SELECT count(*) FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
    assert await house.sql.fetchval(stored, message) == 0


async def test_numbers_that_the_database_writes_in_another_way_are_no_other_envelope(
    house: House, message: str
) -> None:
    context = {"request_id": message, "numbers": [1e16, 1e23, 1.5e300, -0.0, 1e-7, 100.0, 2**64]}
    answer = await house.notify(message=message, request_context=context)
    assert (answer["status"], len(house.sent(message))) == ("ok", 1), answer


async def test_the_same_envelope_twice_is_delivered_once(house: House, message: str) -> None:
    request = {**envelope("greeter", message), "request_context": {"request_id": str(uuid4())}}
    first, again = [inner(await route(house, "greeter", request)) for _ in range(2)]
    assert again == {**first, "duplicate": True}
    assert len(house.sent(message)) == 1


async def test_no_standing_rule_lets_out_what_the_switchboard_admitted(house: House, message: str) -> None:
    chat = new_chat()
    contact = await house.contact("Ida", telegram=chat)
    await house.rule({"contact_id": contact})
    told = inner(await route(house, "greeter", envelope("greeter", message, recipient=chat)))
    assert (told["status"], house.sent(message)) == ("pending_approval", [])


async def test_who_locks_a_row_of_its_own_keeps_nobody_waiting(house: House, message: str) -> None:
    assert (await house.notify("health", message=message))["status"] == "ok"
    assert inner(await route(house, "health", envelope("health", message)))["status"] == "ok"
    async with house.sql.transaction():
        assert await house.sql.fetch("SELECT FROM shared.request_windows WHERE origin_butler = 'health' FOR UPDATE")
        told = await asyncio.wait_for(route(house, "health", envelope("health", message)), LONGEST)
    assert inner(told)["status"] == "ok"


async def test_the_origin_is_the_tokens_and_a_mismatch_is_refused_and_audited(house: House, message: str) -> None:
    error = error_of(await route(house, "health", envelope("greeter", message)))
    assert (error["class"], error["retryable"]) == ("forbidden", False)
    event = await house.row(REFUSALS, "health cannot send as greeter")
    assert (event["actor"], event["detail"]["caller"]) == ("switchboard", "health")
    assert house.sent(message) == []
    count = await house.row(
        "SELECT count(*) AS n FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1", message
    )
    assert count["n"] == 0


@pytest.mark.parametrize(("caller", "target"), [("greeter", "switchboard"), ("switchboard", "messenger")])
async def test_a_made_up_notification_id_is_refused_and_its_words_are_kept_nowhere(
    house: House, message: str, caller: str, target: str
) -> None:
    for forged in (str(uuid4()), f"1{message}"):
        answer = await route(house, caller, envelope("greeter", message, notification_id=forged), target)
        assert answer["status"] == "error"
        assert "has no notification" in str(answer) or "should be a UUID" in str(answer)
    assert house.sent(message) == []
    assert not await house.sql.fetch(REFUSALS, message[:30])


async def test_another_butlers_notification_id_is_refused_and_audited(house: House, message: str) -> None:
    told = await admitted(house, message, "health")
    answer = await route(house, "greeter", envelope("greeter", message, notification_id=told))
    assert answer["status"] == "error"
    assert (await house.row(REFUSALS, f"greeter has no notification {told}"))["actor"] == "messenger"
    await house.sql.execute(OLDER, told)
    assert await house.settled(told, "ok") == "ok", "its own butler's message still goes"


@pytest.mark.parametrize(
    "changes",
    [
        {"message": "other words"},
        {"recipient": "4242"},
        {"channel": "email"},
        {"subject": "another"},
    ],
)
async def test_a_tampered_envelope_is_refused_and_audited(
    house: House, message: str, changes: Mapping[str, str]
) -> None:
    told = await admitted(house, message)
    request = envelope("greeter", message, notification_id=told)
    assert isinstance(request["delivery"], dict)
    tampered = {**request, "delivery": {**request["delivery"], **changes}}
    answer = await route(house, "greeter", tampered)
    assert answer["status"] == "error"
    assert "differs from the one that was submitted" in str(answer)
    assert await house.row(REFUSALS, "differs from the one that was submitted")
    assert all(line["payload"]["text"] == message for line in house.sent(message))  # type: ignore[index]
    assert house.sent("other words") == []


async def test_the_messenger_takes_the_switchboard_only(house: House, message: str) -> None:
    with pytest.raises(HopFailed, match="refused"):
        await route(house, "greeter", envelope("greeter", message), target="messenger")
    assert house.sent(message) == []


@pytest.mark.parametrize(
    ("target", "tool"), [("greeter", "notify"), ("messenger", "deliveries.retry"), ("switchboard", "route")]
)
async def test_nothing_but_the_messengers_tool_can_be_reached(
    house: House, message: str, target: str, tool: str
) -> None:
    request = {**route_request(envelope("greeter", message), "greeter", "r1")}
    request["target"] = {"butler": target, "tool": tool}
    error = error_of(await house.hop("greeter", "switchboard", "route", request))
    assert error["class"] == "validation_error"


@pytest.mark.parametrize("request_", [{}, {"schema_version": "route.v1"}, {"target": {"butler": "messenger"}}])
async def test_what_is_no_route_is_a_validation_error(house: House, request_: Mapping[str, object]) -> None:
    assert error_of(await house.hop("greeter", "switchboard", "route", request_))["class"] == "validation_error"


async def test_a_route_without_a_notify_request_is_a_validation_error(house: House) -> None:
    request = {**route_request({}, "greeter", "r1"), "input": {"context": {}}}
    assert error_of(await house.hop("greeter", "switchboard", "route", request))["class"] == "validation_error"


async def test_each_route_is_noted(house: House, message: str) -> None:
    told = await house.notify(message=message)
    row = await eventually(lambda: house.sql.fetchrow(ROUTES, UUID(str(told["notification_id"]))))
    kept = (row["origin_butler"], row["target_butler"], row["tool"], row["status"], row["error_class"])
    assert kept == ("greeter", "messenger", "route.execute", "ok", None)


async def swept_while_young(house: House) -> tuple[str, str, int]:
    """A message of which only the admission is done, its words, and how many the sweep took up in its three seconds."""
    message = f"words {uuid4()}"
    told = await admitted(house, message, contact_id=await friend(house))
    swept = await sweeper.sweep(house.context("switchboard"))
    if await house.sql.fetchval(IS_YOUNG, told):
        return told, message, swept
    # The machine was so slow that this may have been its turn.
    await sweeper.sweep(house.context("switchboard"))
    return await swept_while_young(house)


async def test_the_sweep_takes_up_what_was_admitted_and_forgotten(still_house: House) -> None:
    told, message, swept = await swept_while_young(still_house)
    assert swept == 0, "the live call has three seconds"
    switchboard = still_house.context("switchboard")
    await still_house.sql.execute(OLDER, told)
    assert await sweeper.sweep(switchboard) == 1
    assert await sweeper.sweep(switchboard) == 0
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_the_sweep_takes_up_at_once_what_was_approved(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Jo", telegram=new_chat()))
    switchboard = still_house.context("switchboard")
    assert await sweeper.sweep(switchboard) == 0
    action = await still_house.row(ACTION, told)
    await still_house.decide(action["id"])
    assert await sweeper.sweep(switchboard) == 1
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_the_sweep_leaves_alone_what_waits_for_the_owner(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Jill", telegram=new_chat()))
    await still_house.sql.execute(OLDER, told)
    assert await sweeper.sweep(still_house.context("switchboard")) == 0


async def test_the_sweep_and_the_live_route_meet_and_it_goes_once(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    await still_house.sql.execute(OLDER, told)
    await enqueue(still_house, told)
    assert await sweeper.sweep(still_house.context("switchboard")) == 0
    await enqueue(still_house, told)
    await work(still_house.worker())
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_what_parked_at_the_messenger_goes_out_after_the_yes(still_house: House, message: str) -> None:
    contact = await still_house.contact("Kim", telegram=new_chat())
    rule = await still_house.rule({"contact_id": contact})
    told = await admitted(still_house, message, contact_id=contact)
    await enqueue(still_house, told)
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    await work(still_house.worker())
    action = await still_house.row(ACTION, told)
    assert (action["status"], (await still_house.delivery(told))["status"]) == ("pending", "parked")
    assert (await still_house.decide(action["id"])).code == "approved"
    assert await sweeper.sweep(still_house.context("switchboard")) == 1
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_a_message_from_outside_is_stored_once_with_its_context(house: House, message: str) -> None:
    chat = int(new_chat())
    contact = await house.contact("Lea", telegram=str(chat))
    told = await house.box.api("say", as_=chat, text=message)
    find = "SELECT * FROM switchboard.inbox WHERE text = $1"
    row = await eventually(partial(house.sql.fetchrow, find, message))
    assert (row["contact_id"], row["sender"]) == (contact, str(chat))
    assert row["request_context"]["source_thread_identity"] == f"{chat}:{told['message_id']}"
    event = {
        "schema_version": "ingest.v1",
        "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "1"},
        "event": {"external_event_id": row["external_event_id"], "observed_at": "2026-01-01T00:00:00+00:00"},
        "sender": {"identity": str(chat)},
        "payload": {"text": message},
    }
    again = await house.hop("messenger", "switchboard", "ingest", event)
    assert again == {"status": "ok", "duplicate": True}
    with pytest.raises(HopFailed, match="may not take in messages"):
        await house.hop("greeter", "switchboard", "ingest", event)


async def test_one_name_has_at_most_so_many_instances_and_the_latest_is_among_them(still_house: House) -> None:
    for n in range(registry.MOST_INSTANCES + 5):
        async with still_house.context("switchboard").db.work() as connection:
            beat = ("health", f"http://127.0.0.1:{20_000 + n}", "butler", list[str](), "ready", False)
            await registry.all_seen(connection, [beat])
    rows = await still_house.sql.fetch("SELECT url FROM switchboard.butlers WHERE name = 'health'")
    assert len(rows) == registry.MOST_INSTANCES
    kept = {row["url"] for row in rows}
    assert {f"http://127.0.0.1:{20_000 + n}" for n in range(5, registry.MOST_INSTANCES + 5)} == kept
