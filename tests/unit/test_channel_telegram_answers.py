"""What each answer of the Bot API proves, as a table."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messenger.channels.base import Receipt, SendFailed
from messenger.channels.held_request import Answer
from messenger.channels.telegram import judge
from shared.channels.base import Message
from shared.channels.telegram import render

SEND = Message(notification_id="n1", channel="telegram", intent="send", address="42", text="Hello")
(WIRE,) = render(SEND)
(REACTION,) = render(replace(SEND, intent="react", thread="42:7", emoji="👍"))
OK = {"ok": True, "result": {"message_id": 1001, "chat": {"id": 42}}}
UNKNOWN = {"timeout", "connection_lost", "server_error", "unreadable"}


@pytest.mark.parametrize(
    ("status", "body", "reason", "message", "retry_after"),
    [
        (200, {"ok": True, "result": {"message_id": 0}}, "unreadable", "The answer names no message.", None),
        (200, {"ok": True, "result": {"message_id": True}}, "unreadable", "The answer names no message.", None),
        (200, {"ok": True, "result": {"message_id": "7"}}, "unreadable", "The answer names no message.", None),
        (200, {"ok": True}, "unreadable", "The answer names no message.", None),
        (200, {"ok": True, "result": True}, "unreadable", "The answer names no message.", None),
        (200, {}, "unreadable", "The answer is not the Bot API's.", None),
        (200, [1], "unreadable", "The answer is not the Bot API's.", None),
        (200, "[" * 100_000, "unreadable", "The answer is not the Bot API's.", None),
        (200, '{"ok":true,"result":{"message', "unreadable", "The answer is not the Bot API's.", None),
        (200, "<html>Log in to the hotel</html>", "unreadable", "The answer is not the Bot API's.", None),
        (200, b"\xff\xfe", "unreadable", "The answer is not the Bot API's.", None),
        (200, {"ok": False, "error_code": 400, "description": "Bad"}, "provider_rejected", "Bad", None),
        (302, "", "unreadable", "The answer is not the Bot API's.", None),
        (400, {"ok": True, "result": {"message_id": 7}}, "unreadable", "HTTP 400 without a result.", None),
        (
            400,
            {"ok": False, "description": "Bad Request: chat not found"},
            "provider_rejected",
            "Bad Request: chat not found",
            None,
        ),
        (
            403,
            {"ok": False, "description": "Forbidden: bot was blocked"},
            "provider_rejected",
            "Forbidden: bot was blocked",
            None,
        ),
        (
            400,
            {"ok": False, "description": "Bad Request: upgraded", "parameters": {"migrate_to_chat_id": -1002}},
            "provider_rejected",
            "Bad Request: upgraded Its number is -1002 now.",
            None,
        ),
        (404, {"ok": False, "description": "Gone away"}, "provider_rejected", "Gone away", None),
        (409, "", "provider_rejected", "HTTP 409.", None),
        (413, "<html>", "provider_rejected", "HTTP 413.", None),
        (401, {"ok": False, "description": "Unauthorized"}, "unauthorized", "Unauthorized", None),
        (404, {"ok": False, "description": "Not Found"}, "unauthorized", "Not Found", None),
        (404, "<html>", "unauthorized", "HTTP 404.", None),
        (408, "", "timeout", "HTTP 408.", None),
        (429, {"ok": False, "description": "Slow", "parameters": {"retry_after": 17}}, "rate_limited", "Slow", 17.0),
        (429, {"ok": False, "parameters": {"retry_after": 1e9}}, "rate_limited", "HTTP 429.", 1e9),
        (429, {"ok": False, "parameters": {"retry_after": "17"}}, "rate_limited", "HTTP 429.", None),
        (429, {"ok": False, "parameters": {"retry_after": True}}, "rate_limited", "HTTP 429.", None),
        (429, '{"ok":false,"parameters":{"retry_after":NaN}}', "rate_limited", "HTTP 429.", None),
        (429, f'{{"ok":false,"parameters":{{"retry_after":1{"0" * 400}}}}}', "rate_limited", "HTTP 429.", None),
        (429, {"ok": False, "parameters": 5}, "rate_limited", "HTTP 429.", None),
        (429, "<html>", "rate_limited", "HTTP 429.", None),
        (
            500,
            {"ok": False, "description": "Internal Server Error: restart"},
            "server_error",
            "Internal Server Error: restart",
            None,
        ),
        (502, "<html>Bad gateway</html>", "server_error", "HTTP 502.", None),
    ],
)
def test_an_answer_proves_exactly_this(
    status: int, body: object, reason: str, message: str, retry_after: float | None
) -> None:
    raw = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
    outcome = judge(WIRE, Answer(status, raw))
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.message, outcome.retry_after) == (reason, message, retry_after)
    assert outcome.proved_not_sent is (reason not in UNKNOWN)


@pytest.mark.parametrize("status", range(300, 600))
def test_no_status_but_success_is_a_receipt_whatever_the_body_says(status: int) -> None:
    assert isinstance(judge(WIRE, Answer(status, json.dumps(OK).encode())), SendFailed)


@pytest.mark.parametrize("status", range(100, 600))
def test_only_a_refusal_proves_that_nothing_was_sent(status: int) -> None:
    outcome = judge(WIRE, Answer(status, b"{}"))
    assert isinstance(outcome, SendFailed)
    assert outcome.proved_not_sent is (400 <= status < 500 and status != 408)


@given(st.binary(max_size=200), st.integers(min_value=100, max_value=599))
def test_garbage_is_never_a_receipt(body: bytes, status: int) -> None:
    assert isinstance(judge(WIRE, Answer(status, body)), SendFailed)


def test_a_receipt_that_came_early_is_a_receipt_and_anything_else_proves_nothing_was_sent() -> None:
    assert judge(WIRE, Answer(200, json.dumps(OK).encode(), early=True)) == Receipt("1001")
    for status in range(100, 600):
        outcome = judge(WIRE, Answer(status, b"", early=True))
        assert isinstance(outcome, SendFailed)
        assert outcome.proved_not_sent


def test_true_is_a_receipt_for_a_reaction_only() -> None:
    answer = Answer(200, b'{"ok":true,"result":true}')
    assert judge(REACTION, answer) == Receipt("42:7:👍")
    assert isinstance(judge(WIRE, answer), SendFailed)
