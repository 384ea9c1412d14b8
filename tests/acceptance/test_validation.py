"""What notify refuses at once: each error of the contract, as an ordinary result, with nothing written or sent."""

import json
import uuid
from collections.abc import Mapping

import pytest

from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Era, Fleet

# What becomes of a card after a press, at any time after the test that pressed it.
SHOWING = ("answerCallbackQuery", "editMessageText", "editMessageReplyMarkup")
HELLO = {"channel": "telegram", "message": "Hello"}
CONTEXT = {
    "request_id": "r-1",
    "source_channel": "telegram",
    "source_endpoint_identity": "1",
    "source_sender_identity": str(OWNER),
    "source_thread_identity": f"{OWNER}:1",
}
MAIL_CONTEXT = {**CONTEXT, "source_channel": "email", "source_sender_identity": "owner@sandbox.test"}


def without(name: str) -> dict[str, str]:
    """The context, but for one field."""
    return {key: value for key, value in CONTEXT.items() if key != name}


Case = tuple[Mapping[str, object], str]
CASES: dict[str, Case] = {
    "nothing": ({}, "Missing required 'channel' parameter."),
    "no message": ({"channel": "telegram"}, "Missing required 'message' parameter."),
    "empty message": ({"channel": "telegram", "message": ""}, "Missing required 'message' parameter."),
    "blank message": ({"channel": "email", "message": " \n\t "}, "Missing required 'message' parameter."),
    "no message to send": ({"channel": "telegram", "intent": "send"}, "Missing required 'message' parameter."),
    "no message to reply": (
        {"channel": "telegram", "intent": "reply", "request_context": CONTEXT},
        "Missing required 'message' parameter.",
    ),
    "null message": ({"channel": "telegram", "message": None}, "Missing required 'message' parameter."),
    "sms": ({**HELLO, "channel": "sms"}, "Unsupported channel 'sms'."),
    "Telegram": ({**HELLO, "channel": "Telegram"}, "Unsupported channel 'Telegram'."),
    "a number as channel": ({**HELLO, "channel": 7}, "Unsupported channel '7'."),
    "shout": ({**HELLO, "intent": "shout"}, "Unsupported intent 'shout'."),
    "reply without context": ({**HELLO, "intent": "reply"}, "Intent 'reply' needs request_context.request_id."),
    "react without context": (
        {"channel": "telegram", "intent": "react", "emoji": "x"},
        "Intent 'react' needs request_context.request_id.",
    ),
    **{
        f"reply without {name}": (
            {**HELLO, "intent": "reply", "request_context": without(name)},
            f"Intent 'reply' needs request_context.{name}.",
        )
        for name in ("request_id", "source_channel", "source_endpoint_identity", "source_sender_identity")
    },
    "reply without thread": (
        {**HELLO, "intent": "reply", "request_context": without("source_thread_identity")},
        "Intent 'reply' on telegram needs request_context.source_thread_identity.",
    ),
    "react without thread": (
        {"channel": "telegram", "intent": "react", "emoji": "x", "request_context": without("source_thread_identity")},
        "Intent 'react' on telegram needs request_context.source_thread_identity.",
    ),
    "react without emoji": (
        {"channel": "telegram", "intent": "react", "request_context": CONTEXT},
        "Missing required 'emoji' parameter.",
    ),
    "react by mail": (
        {"channel": "email", "intent": "react", "emoji": "x", "request_context": MAIL_CONTEXT},
        "E-mail has no reactions.",
    ),
    "reply by another channel": (
        {"channel": "email", "message": "Hello", "intent": "reply", "request_context": CONTEXT},
        "The request came by 'telegram' and cannot be answered by email.",
    ),
    "contact_id no uuid": ({**HELLO, "contact_id": "abc-123"}, "Parameter 'contact_id' must be a UUID, not 'abc-123'."),
    "contact_id unknown": ({**HELLO, "contact_id": str(uuid.UUID(int=7))}, "No contact has the id '00000000-"),
    "message a number": ({**HELLO, "message": 42}, "Parameter 'message' must be a string."),
    "recipient a list": ({**HELLO, "recipient": ["a@x.test"]}, "Parameter 'recipient' must be a string."),
    "message too long": ({**HELLO, "message": "x" * 10_001}, "Parameter 'message' has 10001 characters; at most 10000"),
    "NUL in message": ({**HELLO, "message": "a\0b"}, "Parameter 'message' contains a NUL character"),
    **{
        f"{what} in {name}": (
            {"channel": "email", "message": "Hello", name: f"someone@people.test{character}Bcc: x@y.test"},
            f"Parameter '{name}' contains a line break or a NUL character.",
        )
        for name in ("recipient", "subject")
        for what, character in (("CR", "\r"), ("LF", "\n"), ("NUL", "\0"))
    },
    "line break at the end": (
        {"channel": "email", "message": "Hello", "recipient": "someone@people.test\n"},
        "Parameter 'recipient' contains a line break or a NUL character.",
    ),
    "two recipients": ({"channel": "email", "message": "Hello", "recipient": "a@x.test,b@x.test"}, ""),
    "display name": ({"channel": "email", "message": "Hello", "recipient": "Anna <a@x.test>"}, ""),
    "recipient too long": ({"channel": "email", "message": "Hello", "recipient": f"{'a' * 320}@x.test"}, "Parameter"),
    "near miss": ({**HELLO, "mesage": "Hello"}, "Unknown parameter 'mesage'. Did you mean 'message'?"),
    "another near miss": ({**HELLO, "recipent": "x"}, "Unknown parameter 'recipent'. Did you mean 'recipient'?"),
    "no near miss": ({**HELLO, "zzzzqqq": 1}, "Unknown parameter 'zzzzqqq'. Choose from: channel, message,"),
    "context broken": (
        {**HELLO, "request_context": '{"request_id": '},
        "Parameter 'request_context' is not valid JSON.",
    ),
    "context a list": ({**HELLO, "request_context": [1]}, "Parameter 'request_context' must be an object."),
    "context a list as text": ({**HELLO, "request_context": "[1]"}, "Parameter 'request_context' must be an object."),
    "request_id too long": (
        {**HELLO, "request_context": {"request_id": "r" * 201}},
        "request_context.request_id has more than 200 characters.",
    ),
    "received_at no time": (
        {**HELLO, "intent": "reply", "request_context": {**CONTEXT, "received_at": "yesterday"}},
        "request_context.received_at must be an ISO 8601 time with a time zone.",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_it_is_refused_in_one_sentence_and_nothing_is_changed(fleet: Fleet, case: Case) -> None:
    arguments, begins = case
    before = await traces(fleet)
    answer = await fleet.call("health", "notify", arguments)
    assert set(answer) == {"status", "error"}
    assert answer["status"] == "error"
    assert str(answer["error"]).startswith(begins)
    assert len(str(answer["error"])) > len("Unsupported")
    assert await traces(fleet) == before


async def traces(fleet: Fleet) -> list[object]:
    """How much has been written down and sent so far; what shows the end of an earlier question is no part of it."""
    rows = await fleet.sql(
        "SELECT (SELECT count(*) FROM shared.notifications), (SELECT count(*) FROM shared.pending_actions)"
    )
    return [*rows[0], len([e for e in await fleet.outside.journal() if e.method not in SHOWING])]


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_refusal_is_no_tool_error_in_either_era(fleet: Fleet, era: Era) -> None:
    result = await (await fleet.client("health", era)).call_tool("notify", {"channel": "sms", "message": "Hello"})
    assert not result.is_error
    assert result.structured_content is not None
    assert str(result.structured_content["error"]).startswith("Unsupported channel 'sms'")
    [block] = result.content
    assert json.loads(block.text) == result.structured_content  # type: ignore[union-attr]  # a text block


async def test_a_context_as_json_text_is_taken_as_the_object(fleet: Fleet) -> None:
    said = fresh.words("as text")
    context = json.dumps({"request_id": said, "more": {"kept": [1]}})
    answer = await fleet.notify(channel="telegram", message=said, request_context=context)
    assert answer["status"] == "ok"
    envelope = await fleet.value("SELECT envelope FROM shared.notifications WHERE id = $1", answer["notification_id"])
    assert isinstance(envelope, dict)
    assert envelope["request_context"] == {"request_id": said, "more": {"kept": [1]}}


async def test_what_is_allowed_to_the_last_character_arrives(fleet: Fleet) -> None:
    said = fresh.words("longest")
    answer = await fleet.notify(channel="email", message=said + "x" * (10_000 - len(said)))
    assert answer["status"] == "ok"


async def test_empty_optional_arguments_count_as_absent(fleet: Fleet) -> None:
    said = fresh.words("empty")
    absent = dict.fromkeys(("contact_id", "recipient", "subject", "intent", "emoji", "request_context"), "")
    assert (await fleet.notify(channel="telegram", message=said, **absent))["status"] == "ok"
    await fleet.outside.arrived(said, OWNER)
