"""The brake as a table, and what a standing rule would have done with the past."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from shared.db.pool import Record
from shared.errors import InvalidInput
from shared.gate.backtest import Past, would_have
from shared.gate.delays import delay
from shared.model import Brake, Facts, Rule
from shared.storage.addressees import Addressee
from shared.storage.history import told
from shared.storage.rules import constraints_of, scope
from tests.unit.test_policy import ANNA, TO_ANNA, TO_OWNER

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def until(*brakes: Brake, to_owner: bool = False) -> object:
    """Until when the message waits, or False where it does not wait."""
    later = delay(TO_OWNER if to_owner else TO_ANNA, Facts(realm="sandbox", brakes=brakes))
    return later.until if later is not None else False


@pytest.mark.parametrize(
    ("brakes", "expected"),
    [
        pytest.param([], False, id="without a brake nothing waits"),
        pytest.param([Brake()], None, id="a brake for everything stops everything"),
        pytest.param([Brake(butler="health")], None, id="of this butler"),
        pytest.param([Brake(butler="greeter")], False, id="of another butler"),
        pytest.param([Brake(contact_id=ANNA)], None, id="to this contact"),
        pytest.param([Brake(contact_id="another")], False, id="to another contact"),
        pytest.param([Brake(channel="telegram")], None, id="by this channel"),
        pytest.param([Brake(channel="email")], False, id="by another channel"),
        pytest.param([Brake(butler="health", channel="email")], False, id="all that is named must fit"),
        pytest.param([Brake(until=10.0)], 10.0, id="until its time"),
        pytest.param([Brake(until=10.0), Brake(until=20.0)], 20.0, id="the longest counts"),
        pytest.param([Brake(until=10.0), Brake()], None, id="one without a time lasts longest"),
        pytest.param([Brake(until=10.0), Brake(butler="greeter")], 10.0, id="what does not fit lengthens nothing"),
    ],
)
def test_a_brake_delays_what_it_is_for(brakes: Sequence[Brake], expected: object) -> None:
    assert until(*brakes) == expected


def test_the_owner_is_told_unless_the_owner_said_so_too() -> None:
    assert until(Brake(), to_owner=True) is False
    assert until(Brake(butler="health", until=5.0), to_owner=True) is False
    assert until(Brake(owner_too=True), to_owner=True) is None
    assert until(Brake(owner_too=True)) is None


def past(*hours: float) -> list[Past]:
    return [Past(f"n{hour}", NOON + timedelta(hours=hour), "ok", "hello", TO_ANNA) for hour in hours]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("r", "allow", {"contact_id": ANNA}), ["allow", "allow", "allow"]),
        (Rule("r", "deny", {"contact_id": ANNA}), ["deny", "deny", "deny"]),
        (Rule("r", "allow", {"contact_id": ANNA}, max_uses=2), ["allow", "allow", "park"]),
        (Rule("r", "allow", {"contact_id": ANNA}, max_per_day=1), ["allow", "park", "allow"]),
        (Rule("r", "allow", {"contact_id": "another"}), []),
        (Rule("r", "allow", {"contact_id": ANNA}, origin_butler="greeter"), []),
    ],
)
def test_a_rule_is_tried_on_the_past_with_its_uses(rule: Rule, expected: list[str]) -> None:
    assert [decision.verdict for _, decision in would_have(rule, past(0, 1, 25))] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"contact_id": ANNA}, {"contact_id": ANNA}),
        ({"recipient": " Anna@Example.org "}, {"recipient": "Anna@example.org"}),
        ({"recipient": "4242", "intent": "send"}, {"recipient": "4242", "intent": "send"}),
        ({"contact_id": ANNA, "channel": "email"}, {"contact_id": ANNA, "channel": "email"}),
    ],
)
def test_a_rule_pins_somebody(given: dict[str, str], expected: dict[str, str]) -> None:
    names = {"contact_id": None, "recipient": None, "channel": None, "intent": None}
    made = constraints_of(**{**names, **given})
    assert {k: v.lower() for k, v in made.items()} == {k: v.lower() for k, v in expected.items()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either a contact or a recipient"),
        ({"channel": "email"}, "either a contact or a recipient"),
        ({"contact_id": ANNA, "recipient": "4242"}, "either a contact or a recipient"),
        ({"contact_id": ANNA, "channel": "sms"}, "Unknown channel `sms`"),
        ({"contact_id": ANNA, "intent": "shout"}, "Unknown intent `shout`"),
        ({"recipient": "a@b.org", "channel": "telegram"}, "cannot be reached through telegram"),
        ({"recipient": "two words"}, "a space inside"),
    ],
)
def test_a_rule_for_nobody_or_against_itself_is_refused(given: dict[str, str], said: str) -> None:
    names = {"contact_id": None, "recipient": None, "channel": None, "intent": None}
    with pytest.raises(InvalidInput, match=said):
        constraints_of(**{**names, **given})


def test_a_life_is_told_in_order() -> None:
    asked = {
        "id": "n1",
        "origin_butler": "health",
        "admitted_by": "health",
        "realm": "sandbox",
        "lineage": "request:7",
        "envelope": {"delivery": {"intent": "send", "channel": "telegram", "message": "Hello"}},
        "owner_text": None,
        "status": "ok",
        "answer": {},
        "created_at": NOON,
    }
    event = {"kind": "event", "what": "approved", "who": "owner", "text": None, "place": "cli", "by": "Ida"}
    ended = {"kind": "end", "what": "sent", "who": "17", "text": None, "place": "1", "by": None}
    rows = [cast("Record", {"at": NOON, **row}) for row in (event, ended)]
    steps = told(cast("Record", asked), Addressee("Anna", "4242", ANNA), rows).steps
    assert [step.what for step in steps] == ["asked", "admitted", "approved", "sent"]
    assert steps[0].text == 'health asked to send by telegram to Anna (4242): "Hello"'
    assert steps[2].text == "owner (Ida) approved it via cli."
    assert steps[3].text == "The attempt at part 1 ended: sent. Receipt: 17."


@pytest.mark.parametrize(
    ("effect", "butler", "constraints", "contact", "said"),
    [
        ("allow", None, {"contact_id": "c"}, "Anna", "every butler may write to Anna"),
        ("allow", "health", {"contact_id": "c", "intent": "reply"}, None, "health may reply to c"),
        ("deny", None, {"recipient": "42", "channel": "email"}, None, "every butler may never write to 42 by email"),
        ("allow", None, {"contact_id": "c", "recipient": "a@b.c"}, "Anna", "every butler may write to Anna at a@b.c"),
        ("allow", "x", {"recipient": {"type": "domain", "value": "b.org"}}, None, "x may write to anybody at b.org"),
        ("allow", "x", {"recipient": {"type": "one_of", "value": ["1", "2"]}}, None, "x may write to 1 or 2"),
        ("allow", None, {"recipient": "1", "message": {"type": "max_length", "value": 9}}, None,
            "every butler may write to 1 where message is at most 9 characters long with its subject"),
        ("allow", None, {"recipient": "1", "mood": {"type": "good"}}, None,
            'every butler may write to 1 where mood is {"type":"good"}, which nothing ever is,'),
        ("allow", None, {}, None, "every butler may write to nobody"),
    ],
)  # fmt: skip
def test_a_rule_says_what_it_is_for(
    effect: str, butler: str | None, constraints: dict[str, object], contact: str | None, said: str
) -> None:
    assert scope(effect, butler, constraints, contact) == said
