"""To which butler a received message goes, and why (switchboard/routing.py)."""

from dataclasses import replace
from typing import Final

import pytest

from switchboard.routing import (
    Choice,
    Classification,
    Classifier,
    Incoming,
    RoutingFacts,
    RoutingRule,
    begins_work,
    choose,
    classified,
    default_of,
    left_open,
)

OWNERS = Incoming("telegram", "5", "message", "how did I sleep?", from_owner=True)
OTHERS = replace(OWNERS, sender="77", from_owner=False)
FACTS = RoutingFacts(("greeter", "health"), "greeter")
TO_HEALTH = RoutingRule("r1", "health", words="SLEEP")
NOBODY = RoutingRule("r2", None, "telegram", sender="77")
# The greeter classifies, and is the default; `paused` is no name, as it is not there.
CLASSIFIER = Classifier("greeter", {"greeter": "Greets.", "health": "Looks after sleep."})
BY_DEFAULT = Choice("greeter", "the default butler")


def butler(message: Incoming, facts: RoutingFacts) -> str | None:
    found = choose(message, facts)
    assert found is not None
    return found.butler


def test_each_reason_comes_before_those_after_it() -> None:
    named = replace(OWNERS, text="/health hello")
    everything = replace(FACTS, answered="greeter", thread="greeter", rules=[RoutingRule("r", "greeter", "telegram")])
    steps = [
        (named, replace(everything, default="health"), "greeter", "it answers a message of this butler"),
        (named, replace(everything, answered=None), "health", "the owner named it"),
        (OWNERS, replace(everything, answered=None, wrote=["health"]), "health", "it wrote to the owner last"),
        (OWNERS, replace(everything, answered=None, thread="health"), "health", "its thread went there before"),
        (OWNERS, replace(FACTS, rules=[TO_HEALTH]), "health", "rule r1"),
        (OWNERS, FACTS, "greeter", "the default butler"),
    ]
    for message, facts, to, why in steps:
        assert choose(message, facts) == Choice(to, why)


def test_of_several_that_wrote_the_last_that_is_there_is_asked_and_the_reason_names_the_one_before() -> None:
    wrote = ["gone", "greeter", "health"]
    assert choose(OWNERS, replace(FACTS, wrote=wrote)) == Choice("greeter", "it wrote to the owner last, after health")


def test_who_may_ask_a_butler_reaches_it_whatever_was_said_before_and_asks_no_other() -> None:
    allowed = RoutingRule("r3", "health", contact="anna", may_ask=True)
    anna = replace(OTHERS, contact="anna", is_proved=True)
    facts = replace(FACTS, thread="greeter", rules=[allowed])
    assert choose(anna, facts) == Choice("health", "rule r3")
    assert butler(replace(anna, is_proved=False), facts) == "greeter"
    assert [begins_work(anna, name, [allowed]) for name in ("health", "greeter")] == [True, False]


NAMED_IN_SUBJECT: Final = "Subject: /health sleep\n\nSent from my phone"
BELOW_SUBJECT: Final = "Subject: Sleep\n\n/health how was it?"


@pytest.mark.parametrize(
    "text",
    ["/health!", "@health sleep", "/Health, sleep", "@health: x", "/health@my_bot x", NAMED_IN_SUBJECT, BELOW_SUBJECT],
)
def test_the_owner_names_a_butler_at_the_beginning(text: str) -> None:
    assert butler(replace(OWNERS, text=text), FACTS) == "health"


@pytest.mark.parametrize(
    "text", ["ask @health", "/healthy", "@ health", "health", "//health", "@health.example x", "Subject: x\n/health"]
)
def test_what_only_looks_like_a_name_is_none(text: str) -> None:
    assert butler(replace(OWNERS, text=text), FACTS) == "greeter"


def test_only_the_owners_own_words_name_a_butler() -> None:
    assert butler(replace(OTHERS, text="/health hi"), FACTS) == "greeter"
    assert butler(replace(OWNERS, text="/health hi", kind="forward"), FACTS) == "greeter"


def test_a_name_that_nobody_has_is_said_and_goes_on() -> None:
    said = Choice("greeter", "the default butler; no butler is called nobody", "nobody")
    assert choose(replace(OWNERS, text="@nobody hi"), FACTS) == said


def test_a_blocked_sender_reaches_no_thread_by_any_way() -> None:
    facts = replace(FACTS, answered="health", thread="health", rules=[TO_HEALTH, NOBODY])
    assert choose(OTHERS, facts) == Choice(None, "blocked by rule r2")
    assert butler(replace(OTHERS, sender="78"), facts) == "health"
    assert butler(OWNERS, replace(facts, rules=[replace(NOBODY, sender=None)])) == "health"


@pytest.mark.parametrize(
    "rule",
    [replace(TO_HEALTH, words="weather"), replace(TO_HEALTH, channel="email"), replace(TO_HEALTH, sender="6")],
)
def test_a_rule_fits_only_what_it_says(rule: RoutingRule) -> None:
    assert butler(OWNERS, replace(FACTS, rules=[rule])) == "greeter"


def test_the_first_rule_that_fits_decides() -> None:
    assert butler(OWNERS, replace(FACTS, rules=[TO_HEALTH, replace(TO_HEALTH, butler="greeter")])) == "health"


def test_a_butler_that_is_not_there_gets_nothing() -> None:
    gone = replace(FACTS, answered="gone", thread="switchboard", rules=[replace(TO_HEALTH, butler="gone")])
    assert butler(OWNERS, gone) == "greeter"
    assert choose(OWNERS, RoutingFacts((), None)) is None


def test_the_default_is_the_one_that_says_so_else_the_first_by_name() -> None:
    assert default_of([("health", True), ("greeter", False)]) == "health"
    assert default_of([("health", False), ("greeter", False)]) == "greeter"
    assert default_of([]) is None


def test_only_what_is_work_and_goes_to_the_default_is_open_to_the_classifier() -> None:
    for message, facts, wanted in (
        (OWNERS, FACTS, True),
        (replace(OWNERS, text="@nobody hi"), FACTS, True),
        (replace(OWNERS, text="/health hi"), FACTS, False),
        (OWNERS, replace(FACTS, answered="health"), False),
        (OWNERS, replace(FACTS, thread="health"), False),
        (OWNERS, replace(FACTS, rules=[TO_HEALTH]), False),
        (replace(OWNERS, kind="forward"), FACTS, False),
        (replace(OWNERS, kind="edit"), FACTS, False),
        (replace(OWNERS, text=" "), FACTS, False),
        (OTHERS, FACTS, False),
        (replace(OTHERS, contact="anna", is_proved=True), FACTS, False),
        (OTHERS, replace(FACTS, rules=[NOBODY]), False),
    ):
        chosen = choose(message, facts)
        assert chosen is not None
        assert left_open(message, chosen, facts.rules) is wanted, (message, facts)


def test_the_classifier_is_asked_where_it_is_there_and_has_a_choice() -> None:
    assert classified(BY_DEFAULT, CLASSIFIER, None) is None
    assert classified(BY_DEFAULT, Classifier("greeter", {"greeter": "Greets."}), None) == BY_DEFAULT
    gone = Choice("greeter", "the default butler; the classifier is not there")
    assert classified(BY_DEFAULT, Classifier("paused", CLASSIFIER.names), None) == gone


def test_the_classifier_names_the_butler() -> None:
    assert classified(BY_DEFAULT, CLASSIFIER, Classification("done", "health")) == Choice(
        "health", "the classifier named it"
    )
    unknown = Choice("greeter", "the default butler; no butler is called nobody")
    wanted = Choice("health", "the classifier named it; no butler is called nobody")
    assert classified(unknown, CLASSIFIER, Classification("done", "health")) == wanted


@pytest.mark.parametrize(
    "words",
    [
        "",
        "Health",
        " health",
        "health\n",
        "health.",
        "`health`",
        "the health",
        "health greeter",
        "paused",
        "nobody",
        "?",
    ],
)
def test_an_answer_that_is_not_exactly_a_name_counts_as_none(words: str) -> None:
    wanted = Choice("greeter", "the default butler; the classifier named none of the butlers")
    assert classified(BY_DEFAULT, CLASSIFIER, Classification("done", words)) == wanted


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Classification("running", "health", is_late=True), "the classifier did not answer in time"),
        (Classification("waiting", is_late=True), "the classifier did not answer in time"),
        (Classification("done", "health", is_late=True), "the classifier did not answer in time"),
        (Classification("limit", "health"), "the classifier is at its limit"),
        (Classification("failed", "health"), "the classifier's session failed"),
        (Classification("lost", "health"), "the classifier's session failed"),
        (Classification("stopped", "health"), "the classifier's session failed"),
    ],
)
def test_no_answer_in_time_leaves_it_with_the_default_and_says_why(asked: Classification, why: str) -> None:
    assert classified(BY_DEFAULT, CLASSIFIER, asked) == Choice("greeter", f"the default butler; {why}")


def test_an_answer_is_waited_for_only_while_it_could_count() -> None:
    for status in ("waiting", "running"):
        assert classified(BY_DEFAULT, CLASSIFIER, Classification(status)) is None
        assert classified(BY_DEFAULT, CLASSIFIER, Classification(status, is_late=True)) is not None
