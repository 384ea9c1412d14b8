"""Stage 1: every refusal of the contract names its field, and nothing of a valid call is lost."""

import json
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telegram.constants import ReactionEmoji

from shared.channels.telegram import REACTIONS
from shared.contracts import NotifyEnvelope, wire
from shared.errors import InvalidInput
from shared.gate.accept import accept, accept_envelope, thread_of

ANNA = "11111111-1111-4111-8111-111111111111"
CONTEXT: Mapping[str, object] = {
    "request_id": "r1",
    "source_channel": "telegram_bot",
    "source_endpoint_identity": "bot",
    "source_sender_identity": "4242",
    "source_thread_identity": "4242:7",
    "received_at": "2026-01-01T00:00:00+00:00",
}
MAIL_CONTEXT = {**CONTEXT, "source_channel": "email", "source_sender_identity": "anna@example.org"}
SEND: Mapping[str, object] = {"channel": "telegram", "message": "Hello"}
REPLY: Mapping[str, object] = {**SEND, "intent": "reply", "request_context": CONTEXT}
REACT: Mapping[str, object] = {"channel": "telegram", "intent": "react", "emoji": "👍", "request_context": CONTEXT}


def without(given: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in given.items() if key != name}


def with_context(given: Mapping[str, object], **changes: object) -> dict[str, object]:
    kept = given["request_context"]
    assert isinstance(kept, Mapping)
    return {**given, "request_context": {k: v for k, v in {**kept, **changes}.items() if v is not None}}


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        pytest.param(without(SEND, "channel"), "Missing required 'channel' parameter", id="no channel"),
        pytest.param({**SEND, "channel": "sms"}, "Unsupported channel 'sms'", id="another channel"),
        pytest.param({**SEND, "channel": ["telegram"]}, "Unsupported channel", id="a list of channels"),
        pytest.param(without(SEND, "message"), "Missing required 'message' parameter", id="no message"),
        pytest.param({**SEND, "message": None}, "Missing required 'message' parameter", id="message null"),
        pytest.param({**SEND, "message": ""}, "Missing required 'message' parameter", id="message empty"),
        pytest.param({**SEND, "message": " \n\t"}, "Missing required 'message' parameter", id="message blank"),
        pytest.param({**SEND, "message": 7}, "Parameter 'message' must be a string", id="message a number"),
        pytest.param({**SEND, "message": "x" * 10_001}, "Parameter 'message' has 10001 characters", id="too long"),
        pytest.param({**SEND, "message": "a\0b"}, "Parameter 'message' contains a NUL", id="NUL in message"),
        pytest.param({**SEND, "message": "\ud83d"}, "Parameter 'message' contains", id="half a character"),
        pytest.param({**SEND, "intent": "shout"}, "Unsupported intent 'shout'", id="another intent"),
        pytest.param({**SEND, "recipient": "a@b.org\n"}, "Parameter 'recipient' contains a line break", id="LF"),
        pytest.param({**SEND, "subject": "a\r\nBcc: x"}, "Parameter 'subject' contains a line break", id="CRLF"),
        pytest.param({**SEND, "subject": "a\0"}, "Parameter 'subject' contains a line break or a NUL", id="NUL"),
        pytest.param({**SEND, "subject": "x" * 501}, "Parameter 'subject' has 501 characters", id="long subject"),
        pytest.param({**SEND, "recipient": "Anna"}, "The recipient is neither", id="a name is no recipient"),
        pytest.param({**SEND, "recipient": "a@b.org,c@d.org"}, "The recipient contains a comma", id="two recipients"),
        pytest.param({**SEND, "contact_id": "abc-123"}, "Parameter 'contact_id' must be a UUID", id="no UUID"),
        pytest.param({**SEND, "contact_id": 5}, "Parameter 'contact_id' must be a string", id="a number as id"),
        pytest.param({**SEND, "recipent": "1"}, "Unknown parameter 'recipent'. Did you mean 'recipient'?", id="near"),
        pytest.param({**SEND, "zzz": "1"}, "Unknown parameter 'zzz'. Choose from: channel", id="unknown name"),
        pytest.param({**SEND, "request_context": "{"}, "Parameter 'request_context' is not valid JSON", id="no JSON"),
        pytest.param({**SEND, "request_context": []}, "Parameter 'request_context' must be an object", id="a list"),
        pytest.param({**SEND, "request_context": "[]"}, "Parameter 'request_context' must be an object", id="its text"),
        pytest.param({**SEND, "request_context": {"a": "x" * 20_001}}, "Parameter 'request_context' is too long"),
        pytest.param(
            {**SEND, "request_context": {"a": [10**400]}}, "Parameter 'request_context' contains an infinite number"
        ),
        pytest.param(
            {**SEND, "request_context": {"a": float("-inf")}}, "Parameter 'request_context' contains an infinite number"
        ),
        pytest.param(
            {**SEND, "request_context": '{"a": NaN}'}, "Parameter 'request_context' contains an infinite number"
        ),
        pytest.param({**SEND, "request_context": {"request_id": 7}}, "request_context.request_id must be one line"),
        pytest.param({**SEND, "request_context": {"request_id": "a\nb"}}, "request_context.request_id must be one"),
        pytest.param(
            {**SEND, "request_context": {"idempotency_key": "k" * 201}},
            "request_context.idempotency_key has more than 200",
        ),
        pytest.param(with_context(REPLY, received_at="yesterday"), "request_context.received_at must be"),
        pytest.param(with_context(REPLY, received_at="2026-01-01T00:00:00"), "request_context.received_at must be"),
        pytest.param({**REACT, "emoji": "🍕"}, "Telegram has no reaction '🍕'. Choose from: 👍 👎 ❤"),
        pytest.param(without(REPLY, "message"), "Missing required 'message' parameter", id="a reply says something"),
        pytest.param(without(REPLY, "request_context"), "Intent 'reply' needs request_context", id="reply to what"),
        pytest.param(without(REACT, "request_context"), "Intent 'react' needs request_context", id="react to what"),
        pytest.param(without(REACT, "emoji"), "Missing required 'emoji' parameter", id="react with what"),
        pytest.param({**REACT, "emoji": ""}, "Missing required 'emoji' parameter", id="an empty emoji"),
        pytest.param(
            with_context(REACT, source_thread_identity=None),
            "Intent 'react' on telegram needs request_context.source_thread_identity",
        ),
        pytest.param(
            with_context(REPLY, source_thread_identity=None),
            "Intent 'reply' on telegram needs request_context.source_thread_identity",
        ),
        pytest.param(with_context(REPLY, source_thread_identity="7"), "The thread identity is not", id="half a thread"),
        pytest.param(with_context(REPLY, source_channel="email"), "The request came by 'email'", id="other channel"),
        pytest.param(with_context(REPLY, source_channel="fax"), "The request came by 'fax'", id="unknown channel"),
        pytest.param(
            {"channel": "email", "intent": "react", "emoji": "x", "request_context": MAIL_CONTEXT},
            "E-mail has no reactions",
            id="mail has no reactions",
        ),
    ],
)
def test_a_call_that_does_not_fit_is_told_why(arguments: Mapping[str, object], begins: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        accept("health", arguments)
    assert str(refused.value).startswith(begins), str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["request_id", "source_channel", "source_endpoint_identity", "source_sender_identity"])
@pytest.mark.parametrize("call", [REPLY, REACT])
def test_a_reply_and_a_reaction_need_every_required_field_of_the_context(name: str, call: Mapping[str, object]) -> None:
    for missing in (None, ""):
        with pytest.raises(InvalidInput, match=rf"request_context\.{name}"):
            accept("health", with_context(call, **{name: missing}))


@pytest.mark.parametrize("channel", ["telegram", "email"])
def test_a_send_becomes_an_envelope_in_the_butlers_own_name(channel: str) -> None:
    call = accept("health", {"channel": channel, "message": "Hello", "intent": "send"})
    assert wire(call.envelope) == {
        "schema_version": "notify.v1",
        "origin_butler": "health",
        "delivery": {"intent": "send", "channel": channel, "message": "Hello"},
    }
    assert (str(call.whom), call.lineage, call.note) == ("owner", None, None)


def test_a_send_needs_no_context_and_no_intent() -> None:
    assert accept("health", SEND).envelope.delivery.intent == "send"
    assert thread_of(accept("health", {**SEND, "request_context": CONTEXT}).envelope) is None


def test_the_context_is_forwarded_as_it_is() -> None:
    odd = {**CONTEXT, "a_key_of_tomorrow": [1, {"deep": None}]}
    assert accept("health", {**REPLY, "request_context": odd}).envelope.request_context == odd


def test_the_context_may_be_json_text() -> None:
    as_text = {**REPLY, "request_context": json.dumps(CONTEXT)}
    assert accept("health", as_text) == accept("health", REPLY)


def test_a_message_of_its_own_may_carry_a_context_of_any_time() -> None:
    call = accept("health", {**SEND, "request_context": {"received_at": "yesterday"}})
    assert call.envelope.request_context == {"received_at": "yesterday"}


def test_every_reaction_of_telegram_can_be_set_in_either_style_and_no_other() -> None:
    assert {one.value.replace("\ufe0f", "") for one in ReactionEmoji} == set(REACTIONS)
    for one in ReactionEmoji:
        assert accept("health", {**REACT, "emoji": one.value}).envelope.delivery.emoji == one.value


def test_a_reaction_needs_no_message() -> None:
    call = accept("health", REACT)
    assert (call.envelope.delivery.message, call.envelope.delivery.emoji) == ("", "👍")
    assert str(call.whom) == "thread:4242:7"


@pytest.mark.parametrize(
    ("given", "unused", "left"),
    [
        pytest.param({**SEND, "subject": "Only a joke:"}, "no subject", {"message": "Hello"}, id="subject on telegram"),
        pytest.param({**SEND, "emoji": "😂 (just kidding)"}, "no emoji", {"message": "Hello"}, id="emoji of a text"),
        pytest.param({**REACT, "message": "only if she asks"}, "no message", {"emoji": "👍"}, id="text of a reaction"),
    ],
)
def test_words_that_would_not_go_out_are_not_taken_and_the_caller_is_told(
    given: Mapping[str, object], unused: str, left: Mapping[str, str]
) -> None:
    call = accept("health", given)
    delivery = wire(call.envelope.delivery)
    assert {name: delivery.get(name) for name in ("message", "subject", "emoji") if delivery.get(name)} == left
    assert f"takes {unused}; it was ignored." in str(call.note)
    plain = {name: one for name, one in given.items() if name not in {"message", "subject", "emoji"}}
    assert call.request_sha == accept("health", {**plain, **left}).request_sha


def test_a_mail_keeps_its_subject() -> None:
    call = accept("health", {"channel": "email", "message": "Hello", "subject": "Dinner"})
    assert (call.envelope.delivery.subject, call.note) == ("Dinner", None)


def test_contact_id_comes_before_recipient_and_recipient_before_the_owner() -> None:
    both = accept("health", {**SEND, "contact_id": ANNA, "recipient": "4242"})
    assert (str(both.whom), both.note) == (f"contact:{ANNA}", "contact_id was used; recipient was ignored.")
    assert str(accept("health", {**SEND, "recipient": " 4242 "}).whom) == "recipient:4242"
    assert str(accept("health", {**SEND, "recipient": "", "contact_id": None}).whom) == "owner"


def test_a_reply_goes_to_its_thread_and_says_so() -> None:
    call = accept("health", {**REPLY, "recipient": "999"})
    assert str(call.whom) == "thread:4242:7"
    assert call.note == "A reply goes to its conversation; contact_id and recipient were ignored."
    mail = accept("health", {"channel": "email", "message": "Hi", "intent": "reply", "request_context": MAIL_CONTEXT})
    assert str(mail.whom) == "thread:anna@example.org"


@pytest.mark.parametrize("limit", [("message", 10_000), ("subject", 500)])
def test_the_longest_text_is_taken(limit: tuple[str, int]) -> None:
    name, most = limit
    accept("health", {**SEND, name: "x" * most})


def test_what_is_asked_makes_the_request_and_not_how_it_is_spelt() -> None:
    one, same = accept("health", SEND), accept("health", {**SEND, "intent": "send", "subject": None, "recipient": ""})
    assert one.request_sha == same.request_sha
    others: list[Mapping[str, object]] = [
        {**SEND, "message": "Hello!"},
        {**SEND, "channel": "email"},
        {**SEND, "channel": "email", "subject": "s"},
        {**SEND, "recipient": "4242"},
        {**SEND, "contact_id": ANNA},
        REPLY,
        with_context(REPLY, source_thread_identity="4242:8"),
        REACT,
        {**REACT, "emoji": "❤"},
    ]
    shas = {accept("health", other).request_sha for other in others} | {accept("greeter", SEND).request_sha}
    assert one.request_sha not in shas
    assert len(shas) == len(others) + 1


def test_an_envelope_is_read_by_the_rules_of_the_tool() -> None:
    call = accept("health", REPLY)
    assert accept_envelope(call.envelope) == call
    blank = NotifyEnvelope.model_validate(
        {"origin_butler": "health", "delivery": {"channel": "telegram", "message": " "}}
    )
    with pytest.raises(InvalidInput, match="Missing required 'message'"):
        accept_envelope(blank)


ANYTHING = st.one_of(st.none(), st.text(max_size=12), st.integers(), st.lists(st.integers(), max_size=2), st.booleans())


@given(
    st.dictionaries(
        st.sampled_from(["channel", "message", "contact_id", "recipient", "subject", "intent", "emoji"])
        | st.text(max_size=5),
        ANYTHING | st.sampled_from(["telegram", "email", "send", "reply", "react", ANNA]),
    ),
    st.none() | st.text(max_size=10) | st.dictionaries(st.sampled_from(list(CONTEXT)), ANYTHING),
)
def test_whatever_comes_is_a_call_or_an_error_of_the_contract(given: dict[str, object], context: object) -> None:
    with suppress(InvalidInput):
        assert accept("health", {**given, "request_context": context}).envelope.origin_butler == "health"
