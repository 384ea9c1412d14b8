"""The life of a delivery: what the documents and the schema say of it, and events where they make a difference."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from shared.model import LEGAL, Status
from tests.models.states import LEASE_SECONDS, Delivery, Effect, Event, Part, step

ROOT = Path(__file__).resolve().parents[2]
WAY = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ((?:`\w+`(?:, )?)+) \| [^|]+ \|$", re.MULTILINE)
SENDING = Delivery("third_party", (Part("sending", 1, (1,)),), "sending", 1, 1, LEASE_SECONDS)
UNCERTAIN = Delivery("third_party", (Part("uncertain", 1, (1,)),), "uncertain", 1, 1)


def after(delivery: Delivery, *events: Event) -> Delivery:
    for event in events:
        stepped = step(delivery, event)
        assert stepped is not None, event
        delivery = stepped.delivery
    return delivery


def test_the_table_in_the_documents_has_every_way_once() -> None:
    section = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8").partition("## The states of a delivery")[2]
    rows = WAY.findall(section.partition("\n## ")[0])
    said = [(old, new) for olds, news in rows for old in re.findall(r"\w+", olds) for new in re.findall(r"\w+", news)]
    assert len(said) == len(set(said))
    assert set(said) == LEGAL


def test_the_schema_knows_the_same_states() -> None:
    sql = (ROOT / "migrations" / "versions" / "0002_messenger.py").read_text(encoding="utf-8")
    checks = [set(re.findall(r"'(\w+)'", listed)) for listed in re.findall(r"CHECK \(status IN \(([^)]+)\)\)", sql)]
    assert set(get_args(Status)) in checks
    assert {state for way in LEGAL for state in way} == set(get_args(Status))


@pytest.mark.parametrize("kind", ["owner", "third_party"])
def test_a_lease_lost_past_the_marker_is_uncertain(kind: str) -> None:
    stepped = step(replace(SENDING, kind=kind), Event("lease_lost", LEASE_SECONDS))
    assert stepped is not None
    assert (stepped.delivery.status, stepped.effect) == ("uncertain", Effect.TELL)


@pytest.mark.parametrize("kind", ["card", "reaction"])
def test_what_may_come_twice_without_harm_is_tried_again(kind: str) -> None:
    assert after(replace(SENDING, kind=kind), Event("lease_lost", LEASE_SECONDS)).status == "queued"


def test_a_lease_that_lasts_is_not_lost_and_one_that_is_over_marks_nothing() -> None:
    claimed = after(Delivery("third_party"), Event("claim", 10.0))
    assert step(claimed, Event("lease_lost", 16.9)) is None
    assert step(claimed, Event("marked", 17.0, fence=1)) is None
    assert step(claimed, Event("marked", 11.0, fence=0)) is None
    assert after(claimed, Event("marked", 11.0, fence=1)).status == "sending"


def test_send_again_is_one_attempt_however_often_it_is_pressed() -> None:
    once = after(UNCERTAIN, Event("again", attempt=1))
    assert step(once, Event("again", attempt=1)) is None
    unknown = after(once, Event("claim"), Event("marked", fence=2), Event("unknown", attempt=2))
    assert step(unknown, Event("again", attempt=1)) is None, "a word on the first attempt is no word on the second"


def test_a_machine_repeats_once_and_to_the_owner_alone() -> None:
    assert step(UNCERTAIN, Event("repeat_due")) is None
    once = after(replace(UNCERTAIN, kind="owner"), Event("repeat_due"))
    again = after(once, Event("claim"), Event("marked", fence=2), Event("unknown", attempt=2))
    assert step(again, Event("repeat_due")) is None


def test_a_late_receipt_spares_a_repeat_that_has_not_begun_and_is_shown_beside_one_that_has() -> None:
    asked = after(UNCERTAIN, Event("again", attempt=1))
    assert after(asked, Event("receipt", fence=1, attempt=1)).status == "sent"
    begun = after(asked, Event("claim"), Event("marked", fence=2))
    late = step(begun, Event("receipt", fence=1, attempt=1))
    assert late is not None
    assert (late.effect, late.delivery.status) == (Effect.LATE, "sending")


def test_a_rule_gets_its_use_back_only_if_nothing_can_have_left() -> None:
    refused = step(SENDING, Event("rejected", attempt=1))
    assert refused is not None
    assert refused.effect is Effect.GIVE_BACK
    second = after(UNCERTAIN, Event("again", attempt=1), Event("claim"), Event("marked", fence=2))
    refused = step(second, Event("rejected", attempt=2))
    assert refused is not None
    assert refused.effect is Effect.ANSWER
