"""The card about what may have arrived: what is known, all of it as data, and buttons bound to exactly that attempt."""

from datetime import UTC, datetime
from typing import cast

import pytest

from messenger.cards import approval, base, uncertain
from shared.db.pool import Record
from shared.display.owner import as_text, bubbles
from shared.storage import resolutions

SECRET = b"k" * 32
ID = "882f944d-051b-4fa8-a3cf-373336d2e355"


def row(**changes: object) -> Record:
    """A delivery as far as its card reads it."""
    delivery = {"channel": "email", "message": changes.pop("message", "Hello"), "subject": changes.pop("subject", None)}
    envelope = {"origin_butler": "health", "delivery": {k: v for k, v in delivery.items() if v}}
    known = {
        "tried": 1,
        "n": 1,
        "parts": 1,
        "marked_at": datetime(2026, 1, 4, 12, 30, tzinfo=UTC),
        "outcome": "timeout",
        "reason": None,
    }
    whom = {"id": ID, "attempt": 1, "origin_butler": "health", "name": "Anna", "address": "anna@example.org"}
    return cast("Record", {**whom, **known, "envelope": envelope, "owner_text": None, "said": None, **changes})


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x07", "\ufeff"])
def test_hidden_characters_are_visible_wherever_others_words_are_shown(hidden: str) -> None:
    sheet = uncertain.words(row(message=f"pay{hidden}me", subject=f"su{hidden}bject", name=f"An{hidden}na"))
    for text in (as_text(sheet), bubbles(sheet)[0].text):
        assert hidden not in text
        # The name stands above the words and below them.
        assert text.count(f"<U+{ord(hidden):04X}>") == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "attempt 1 was sent at 2026-01-04 12:30:00 UTC, and the provider gave no answer in time"),
        (
            {"outcome": "lease_lost", "tried": 3},
            "attempt 3 was sent at 2026-01-04 12:30:00 UTC, and the process that was sending",
        ),
        ({"n": 2, "parts": 3}, "attempt 1, part 2 of 3 was sent"),
        ({"outcome": None}, "it ended without an answer"),
        ({"marked_at": None}, "Nothing more is known."),
    ],
)
def test_it_says_what_is_known(changes: dict[str, object], said: str) -> None:
    assert said in resolutions.evidence(row(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"said": "arrived"}, "You confirmed that it arrived."),
        ({"said": "again"}, "You had it sent again."),
        ({"said": "leave"}, "You left it unconfirmed"),
        ({}, "Its delivery is no longer unconfirmed."),
        ({"outcome": "sent"}, "Sent. The receipt arrived late."),
        ({"outcome": "sent", "said": "again"}, "Sent. The receipt arrived late."),
        ({"outcome": "late_receipt", "said": "again"}, "may have arrived twice"),
    ],
)
def test_it_says_what_became_of_it(changes: dict[str, object], said: str) -> None:
    assert said in uncertain.outcome(row(**changes))


@pytest.mark.parametrize("verb", uncertain.VERBS)
def test_a_button_speaks_for_its_own_delivery_attempt_answer_and_secret_only(verb: str) -> None:
    made = {b.data.split(":")[2]: b.data for line in uncertain.buttons(SECRET, row()) for b in line}
    press = base.read(made[verb], uncertain.VERBS)
    assert press is not None
    assert (press.about, press.verb, len(made[verb].encode()) <= 64) == (ID, verb, True)
    assert uncertain.genuine(SECRET, row(), press)
    assert not uncertain.genuine(SECRET, row(attempt=2), press)
    assert not uncertain.genuine(SECRET, row(id="11111111-1111-4111-8111-111111111111"), press)
    assert not uncertain.genuine(b"j" * 32, row(), press)
    other = next(one for one in uncertain.VERBS if one != verb)
    forged = base.read(made[verb].replace(f":{verb}:", f":{other}:"), uncertain.VERBS)
    assert forged is not None
    assert not uncertain.genuine(SECRET, row(), forged)


def test_a_button_of_one_kind_is_none_of_the_other() -> None:
    [[first, *_], *_] = uncertain.buttons(SECRET, row())
    assert base.read(first.data, approval.VERBS) is None
