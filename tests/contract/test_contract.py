"""The notify contract, scenario by scenario: the tool, its envelope, intents, channels and request contexts.

Each test bears the heading of its scenario (scenarios.txt) and asserts its lines over MCP, by an unmodified client.
"""

# ruff: noqa: D400  a test's docstring is the contract's own heading, to the letter

import asyncio
import signal
from datetime import timedelta

from fastmcp import Client

from butlers.cli.client import mint
from tests.contract.asking import REQUIRED, asked_by_the_owner, context, envelope, notification, part, refused, without
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL, Bench
from tests.rig.cluster import BUTLERS
from tests.rig.fleet import OFFSETS, Era, Fleet
from tests.rig.waiting import LONGEST, eventually

STRINGS = ("channel", "message", "contact_id", "recipient", "subject", "intent", "emoji")
ERAS: tuple[Era, ...] = ("auto", "legacy")
NO_MESSAGE = "Missing required 'message' parameter"
HEART = "\u2764"


async def test_tool_available_to_runtime_instance(fleet: Fleet) -> None:
    """Tool available to runtime instance"""
    for name in ("switchboard", "messenger", *BUTLERS):
        for era in ERAS:
            tools = {tool.name: tool for tool in await (await fleet.client(name, era)).list_tools()}
            schema = tools["notify"].input_schema
            kinds = {parameter: given["type"] for parameter, given in schema["properties"].items()}
            assert kinds == {**dict.fromkeys(STRINGS, "string"), "request_context": "object"}
            assert sorted(schema["required"]) == ["channel", "message"]
            assert schema["properties"]["contact_id"]["format"] == "uuid"


async def test_tool_registered_at_startup(fleet: Fleet, bench: Bench) -> None:
    """Tool registered at startup"""
    house = await bench.house()
    token = await mint(house.settings, "health", timedelta(hours=1))
    url = f"http://127.0.0.1:{house.base + OFFSETS['health']}"
    process = house.spawn(["up"] if fleet.mode == "one" else ["run", "health"], "starting")
    try:
        async with asyncio.timeout(LONGEST):
            # Before the door is open nothing is accepted, and whoever is first through it finds the tool.
            while await fleet.status(f"{url}/healthz") == 0:
                assert process.alive, process.err.read_text()
                await asyncio.sleep(0.002)
            async with Client(f"{url}/mcp", auth=token) as client:
                assert "notify" in {tool.name for tool in await client.list_tools()}
    finally:
        process.send(signal.SIGTERM)
        ended = await process.wait()
        house.close()
    assert ended == 0, process.err.read_text()


async def test_send_intent_envelope(fleet: Fleet) -> None:
    """Send intent envelope"""
    answer = await fleet.notify("health", channel="telegram", message="Hello", intent="send")
    assert await envelope(fleet, answer) == {
        "schema_version": "notify.v1",
        "origin_butler": "health",
        "delivery": {"intent": "send", "channel": "telegram", "message": "Hello"},
    }
    row = await notification(fleet, answer)
    assert (row["origin_butler"], row["admitted_by"]) == ("health", "health")


async def test_send_intent(fleet: Fleet) -> None:
    """Send intent"""
    await refused(fleet, NO_MESSAGE, channel="telegram", intent="send")
    await refused(fleet, NO_MESSAGE, channel="telegram", intent="send", message="")
    said, request = fresh.words("without a context"), fresh.words("request")
    answer = await fleet.notify(channel="telegram", intent="send", message=said)
    assert answer["status"] == "ok"
    assert "request_context" not in await envelope(fleet, answer)
    await fleet.outside.arrived(said, OWNER)
    answer = await fleet.notify(
        channel="telegram", intent="send", message=request, request_context={"request_id": request}
    )
    assert answer["status"] == "ok"
    assert (await envelope(fleet, answer))["request_context"] == {"request_id": request}


async def test_reply_intent_requires_request_context(fleet: Fleet) -> None:
    """Reply intent requires request_context"""
    said, number = fresh.words("reply"), await asked_by_the_owner(fleet)
    whole = context(said, number)
    asked: dict[str, object] = {"channel": "telegram", "intent": "reply", "message": said}
    await refused(fleet, NO_MESSAGE, **without(asked, "message"), request_context=whole)
    await refused(fleet, "Intent 'reply' needs request_context.request_id", **asked)
    for name in (*REQUIRED, "source_thread_identity"):
        expected = f"Intent 'reply' {'needs' if name in REQUIRED else 'on telegram needs'} request_context.{name}"
        await refused(fleet, expected, **asked, request_context=without(whole, name))
    assert (await fleet.notify(**asked, request_context=whole))["status"] == "ok"
    entry = await fleet.outside.arrived(said, OWNER)
    parameters = entry.payload["reply_parameters"]
    assert isinstance(parameters, dict)
    assert parameters["message_id"] == number


async def test_react_intent_requires_emoji_and_thread_identity(fleet: Fleet) -> None:
    """React intent requires emoji and thread identity"""
    number = await asked_by_the_owner(fleet)
    whole = context(fresh.words("request"), number)
    asked: dict[str, object] = {"channel": "telegram", "intent": "react"}
    await refused(fleet, "Missing required 'emoji' parameter", **asked, request_context=whole)
    no_thread = without(whole, "source_thread_identity")
    needs = "Intent 'react' on telegram needs request_context.source_thread_identity"
    await refused(fleet, needs, **asked, emoji=HEART, request_context=no_thread)
    answer = await fleet.notify(**asked, emoji=HEART, request_context=whole)
    assert answer["status"] == "ok", answer
    [entry] = await fleet.outside.until(
        lambda e: e.method == "setMessageReaction" and e.payload["message_id"] == number
    )
    assert (entry.to, [one["emoji"] for one in entry.payload["reaction"]]) == (str(OWNER), [HEART])  # type: ignore[attr-defined]  # a list


async def test_missing_message_for_send_reply(fleet: Fleet) -> None:
    """Missing message for send/reply"""
    replying = context(fresh.words("request"), 1)
    for message in ({}, {"message": None}, {"message": ""}):
        await refused(fleet, NO_MESSAGE, channel="telegram", intent="send", **message)
        await refused(fleet, NO_MESSAGE, channel="telegram", intent="reply", request_context=replying, **message)


async def test_unsupported_intent(fleet: Fleet) -> None:
    """Unsupported intent"""
    for intent in ("shout", "SEND", "forward"):
        await refused(fleet, f"Unsupported intent '{intent}'", channel="telegram", message="Hello", intent=intent)


async def test_supported_channel(fleet: Fleet) -> None:
    """Supported channel"""
    for channel, address in (("telegram", str(OWNER)), ("email", OWNER_EMAIL)):
        said = fresh.words("supported")
        answer = await fleet.notify(channel=channel, message=said)
        delivery = part(await envelope(fleet, answer), "delivery")
        assert delivery == {"intent": "send", "channel": channel, "message": said}
        await fleet.outside.arrived(said, address)


async def test_unsupported_channel(fleet: Fleet) -> None:
    """Unsupported channel"""
    await refused(fleet, "Unsupported channel 'sms'", channel="sms", message="Hello")


async def test_request_context_forwarded_to_envelope(fleet: Fleet) -> None:
    """Request context forwarded to envelope"""
    said, number = fresh.words("forwarded"), await fleet.outside.say(OWNER, fresh.words("question"))
    given = {**context(said, number), "lineage": {"of": ["the", "caller"]}, "priority": 3}
    answer = await fleet.notify(channel="telegram", intent="reply", message=said, request_context=given)
    assert answer["status"] == "ok", answer
    assert (await envelope(fleet, answer))["request_context"] == given
    assert (await notification(fleet, answer))["lineage"] == f"request:{said}"


async def test_request_context_from_runtime_session(fleet: Fleet) -> None:
    """Request context from runtime session"""
    question, said = fresh.words("from outside"), fresh.words("answer")
    number = await fleet.outside.say(OWNER, question)
    text = "SELECT request_context FROM switchboard.inbox WHERE text = $1"
    routed = dict((await eventually(lambda: fleet.sql(text, question)))[0]["request_context"])
    assert routed.keys() >= set(REQUIRED)
    _, token = await fleet.session("health", routed)
    answer = await fleet.notify_by(token, channel="telegram", intent="reply", message=said)
    assert answer["status"] == "ok", answer
    assert (await envelope(fleet, answer))["request_context"] == routed
    parameters = (await fleet.outside.arrived(said, OWNER)).payload["reply_parameters"]
    assert isinstance(parameters, dict)
    assert parameters["message_id"] == number


async def test_valid_request_context(fleet: Fleet) -> None:
    """Valid request context"""
    said = fresh.words("valid")
    required = {name: value for name, value in context(said, 1).items() if name in REQUIRED}
    by_mail = {**required, "source_channel": "email", "source_sender_identity": OWNER_EMAIL}
    answer = await fleet.notify(channel="email", intent="reply", message=said, request_context=by_mail)
    assert answer["status"] == "ok", answer
    assert (await envelope(fleet, answer))["request_context"] == by_mail
    whole = context(fresh.words("whole"), await fleet.outside.say(OWNER, fresh.words("question")))
    answer = await fleet.notify(channel="telegram", intent="reply", message=said, request_context=whole)
    assert answer["status"] == "ok", answer
    assert (await envelope(fleet, answer))["request_context"] == whole


async def test_missing_required_context_field_for_reply(fleet: Fleet) -> None:
    """Missing required context field for reply"""
    given = without(context("unused", 1), "request_id")
    needs = "Intent 'reply' needs request_context.request_id"
    await refused(fleet, needs, channel="telegram", intent="reply", message="Hello", request_context=given)
