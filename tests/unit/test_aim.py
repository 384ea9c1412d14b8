"""What goes out of what was asked: a reply keeps its thread only if something proves it."""

from dataclasses import replace

import pytest

from shared.contracts import NotifyEnvelope
from shared.gate.accept import accept
from shared.gate.evaluate import render
from shared.gate.resolve import action_of, going
from shared.model import Action
from shared.storage.contacts import MissingIdentifier, Target

STRANGER = Target("4242")
UNPROVED = replace(STRANGER, unproved=True)


def asked(intent: str, **more: object) -> NotifyEnvelope:
    """An envelope in a stranger's thread, as it is accepted."""
    context = {
        "request_id": "r1",
        "source_channel": "telegram",
        "source_endpoint_identity": "bot",
        "source_sender_identity": "4242",
        "source_thread_identity": "4242:7",
    }
    call = {"channel": "telegram", "message": "Hello", "intent": intent, "request_context": context, **more}
    return accept("health", call).envelope


def judged(envelope: NotifyEnvelope, target: Target) -> Action:
    return action_of(envelope, target, "sandbox", "health")


def test_an_unproved_reply_is_the_send_of_its_words() -> None:
    send = judged(asked("send"), STRANGER)
    assert judged(asked("reply"), UNPROVED) == replace(send, unproved=True)
    assert judged(asked("reply"), STRANGER).content_sha != send.content_sha


def test_only_the_intent_of_what_goes_differs_from_what_was_asked() -> None:
    envelope = asked("reply", emoji="x")
    sent = going(envelope, UNPROVED)
    assert sent.delivery == envelope.delivery.model_copy(update={"intent": "send"})
    assert sent.model_copy(update={"delivery": envelope.delivery}) == envelope
    assert envelope.delivery.intent == "reply"


@pytest.mark.parametrize(
    ("intent", "target"),
    [
        pytest.param("reply", STRANGER, id="proved"),
        pytest.param("reply", MissingIdentifier("id", "Anna"), id="nobody there"),
        pytest.param("send", UNPROVED, id="a send has no thread"),
        pytest.param("react", UNPROVED, id="a reaction cannot become a message"),
    ],
)
def test_anything_else_goes_as_it_was_asked(intent: str, target: Target | MissingIdentifier) -> None:
    envelope = asked(intent, emoji="\u2764")
    assert going(envelope, target) == envelope


def test_a_reaction_stays_one_and_says_that_nothing_proves_it() -> None:
    envelope = asked("react", emoji="\u2764")
    action = judged(envelope, UNPROVED)
    assert (action.intent, action.unproved) == ("react", True)
    assert action.content_sha == judged(envelope, STRANGER).content_sha


@pytest.mark.parametrize(("target", "threaded"), [(STRANGER, True), (UNPROVED, False)])
def test_the_bytes_hold_a_thread_only_if_it_is_proved(target: Target, *, threaded: bool) -> None:
    row = {"id": "n1", "created_at": None}
    (wire,) = render(row, asked("reply"), target, "")  # type: ignore[arg-type]  # a row is read by its keys
    assert (b"reply_parameters" in wire.body) is threaded


def test_the_subject_counts_towards_how_long_it_is() -> None:
    call = {"channel": "email", "recipient": "anna@example.org", "message": "Hello"}
    to = Target("anna@example.org")
    assert judged(accept("health", call).envelope, to).length == 5
    assert judged(accept("health", {**call, "subject": "About it"}).envelope, to).length == 13
