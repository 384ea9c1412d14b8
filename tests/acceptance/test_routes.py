"""Envelopes between daemons: what carries only the contract's fields is admitted, and nobody speaks for another."""

import uuid

import pytest

from shared.errors import HopFailed
from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet

ROUTED = {"schema_version", "request_context", "status", "timing"}


def envelope(origin: str, message: str, **more: object) -> dict[str, object]:
    """notify.v1 with the contract's fields only."""
    given = {key: value for key, value in more.items() if key in {"recipient", "subject", "intent", "channel"}}
    delivery = {"intent": "send", "channel": "telegram", "message": message, **given}
    rest = {key: value for key, value in more.items() if key not in given}
    return {"schema_version": "notify.v1", "origin_butler": origin, "delivery": delivery, **rest}


def route(request: object, caller: str = "health", butler: str = "messenger", tool: str = "route.execute") -> Answer:
    """route.v1 around it."""
    context = {
        "request_id": str(uuid.uuid4()),
        "source_channel": "mcp",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": caller,
    }
    return {
        "schema_version": "route.v1",
        "request_context": context,
        "target": {"butler": butler, "tool": tool},
        "input": {"context": {"notify_request": request}},
    }


async def carried(fleet: Fleet, caller: str, request: Answer) -> Answer:
    """The Switchboard's answer, checked to be a route_response.v1 of this request."""
    answer = await fleet.hop(caller, "switchboard", "route", request)
    assert answer.keys() >= ROUTED
    assert answer["schema_version"] == "route_response.v1"
    assert answer["request_context"] == request["request_context"]
    assert answer["timing"]["duration_ms"] > 0  # type: ignore[index]  # an object
    return answer


def response(answer: Answer) -> Answer:
    """The notify_response.v1 inside."""
    assert answer["status"] == "ok", answer
    found = answer["result"]["notify_response"]  # type: ignore[index]  # objects
    assert isinstance(found, dict)
    return found


@pytest.mark.every_mode
async def test_an_envelope_to_the_owner_is_admitted_by_the_switchboard_and_delivered(fleet: Fleet) -> None:
    said = fresh.words("bare")
    request = route(envelope("health", said))
    told = response(await carried(fleet, "health", request))
    entry = await fleet.outside.arrived(said, OWNER)
    assert told["status"] == "ok"
    assert told["delivery"] == {"channel": "telegram", "delivery_id": entry.provider_id, "sandbox": True}
    [row] = await fleet.sql("SELECT * FROM shared.notifications WHERE id = $1", uuid.UUID(str(told["notification_id"])))
    assert (row["origin_butler"], row["admitted_by"]) == ("health", "switchboard")
    again = response(await carried(fleet, "health", request))
    assert (again["delivery"], again["duplicate"]) == (told["delivery"], True)
    await fleet.outside.arrived(said, OWNER)


async def test_an_envelope_to_a_third_party_is_parked_even_where_a_rule_allows_it(fleet: Fleet) -> None:
    said, chat = fresh.words("bare to another"), fresh.chat()
    await fleet.sql(
        "INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', 'allow', $1)",
        {"recipient": str(chat)},
    )
    told = response(await carried(fleet, "health", route(envelope("health", said, recipient=str(chat)))))
    assert told["status"] == "pending_approval"
    card = await fleet.outside.card(str(told["action_id"]))
    assert "switchboard submitted it on behalf of health" in card.text
    await fleet.outside.press(card, "Approve")
    await fleet.outside.arrived(said, chat)


async def test_nobody_speaks_in_anothers_name(fleet: Fleet) -> None:
    said = fresh.words("forged")
    answer = await carried(fleet, "health", route(envelope("greeter", said)))
    assert answer["status"] == "error"
    assert answer["error"]["class"] == "forbidden"  # type: ignore[index]  # the error object
    [event] = await fleet.sql(
        "SELECT * FROM shared.approval_events WHERE event_type = 'refused' AND reason LIKE '%health cannot send as%'"
        " ORDER BY seq DESC LIMIT 1"
    )
    assert event["detail"]["caller"] == "health"
    assert not await fleet.outside.having(said)


async def test_an_admitted_notification_cannot_be_given_other_words_or_another_origin(fleet: Fleet) -> None:
    said = fresh.words("mine")
    mine = await fleet.notify("health", channel="telegram", message=said)
    number = str(mine["notification_id"])
    for caller, request in (
        ("health", envelope("health", f"not {said}", notification_id=number)),
        ("greeter", envelope("greeter", said, notification_id=number)),
        ("health", envelope("health", said, notification_id=str(uuid.uuid4()))),
    ):
        answer = await carried(fleet, caller, route(request, caller))
        assert answer["status"] == "error", answer
        assert answer["error"]["class"] == "forbidden", answer  # type: ignore[index]  # the error object
        assert answer["error"]["retryable"] is False  # type: ignore[index]
    assert len(await fleet.outside.having(said)) == 1


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"schema_version": "route.v2"},
        route(None),
        route({"schema_version": "notify.v1"}),
        route(envelope("health", "")),
        route(envelope("health", "Hello", channel="sms")),
        route({**envelope("health", "Hello"), "surprise": 1}),
        route(envelope("health", "Hello", recipient="a@x.test, b@x.test", channel="email")),
        route(envelope("health", "Hello"), butler="console"),
        route(envelope("health", "Hello"), tool="telegram.send"),
        route(envelope("health", "Hello", notification_id="no-uuid")),
    ],
)
async def test_a_malformed_route_is_an_error_that_names_what_is_wrong(fleet: Fleet, request_: Answer) -> None:
    answer = await fleet.hop("health", "switchboard", "route", request_)
    assert answer["status"] == "error"
    assert answer["error"]["class"] == "validation_error"  # type: ignore[index]  # the error object
    assert len(str(answer["error"]["message"])) > 10  # type: ignore[index]
    assert "result" not in answer


async def test_a_butlers_token_does_not_open_the_messenger(fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="401"):
        await fleet.hop("health", "messenger", "route.execute", route(envelope("health", "Hello")))


async def test_a_heartbeat_is_for_the_name_of_its_token(fleet: Fleet) -> None:
    told = {"url": "http://127.0.0.1:9", "kind": "butler", "tools": [], "status": "gone", "name": "messenger"}
    await fleet.hop("greeter", "switchboard", "heartbeat", told)
    rows = await fleet.sql("SELECT name FROM switchboard.butlers WHERE url = 'http://127.0.0.1:9'")
    assert [row["name"] for row in rows] == ["greeter"]


async def test_only_the_messenger_brings_in_what_was_received(fleet: Fleet) -> None:
    said = fresh.words("planted")
    event = {
        "schema_version": "ingest.v1",
        "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "1"},
        "event": {"external_event_id": said, "observed_at": "2026-01-01T00:00:00+00:00"},
        "sender": {"identity": str(OWNER)},
        "payload": {"text": said},
    }
    with pytest.raises(HopFailed):
        await fleet.hop("health", "switchboard", "ingest", event)
    assert await fleet.value("SELECT count(*) FROM switchboard.inbox WHERE text = $1", said) == 0
