"""The policy of gated tools: what a rule lets through, what blocks, and what only the owner's yes opens."""

from dataclasses import replace

import pytest

from shared.display.tool_call import named_values
from shared.gate.decide import matches
from shared.gate.decide_call import decide_call, forbids, permits
from shared.gate.delays import holds_back
from shared.model import Action, Approval, Brake, CallAction, CallFacts, Rule

ARGUMENTS = {"bed": "roses", "minutes": 5, "rows": [1.0, -0.0], "to": ["\tanna\n"], "who": {"b": "\u00fc", "a": [1]}}
CALL = CallAction("garden", "water", "rules", "low", {**ARGUMENTS, "until": None}, "sha")
ALLOW = Rule("a", "allow", {"bed": "roses"})
DENY = Rule("d", "deny", {"bed": "roses"})
YES = Approval("action", "sha", ())
LIKE = {"type": "like", "value": "roses"}
DEEP = "[" * 5000


@pytest.mark.parametrize(
    ("call", "facts", "verdict", "code"),
    [
        pytest.param(CALL, CallFacts(), "park", "nothing_allows", id="nothing said"),
        pytest.param(CALL, CallFacts((ALLOW,)), "allow", "rule_allows", id="a rule"),
        pytest.param(replace(CALL, risk="high"), CallFacts((ALLOW,)), "park", "nothing_allows", id="high risk"),
        pytest.param(replace(CALL, gate="ask"), CallFacts((ALLOW,)), "park", "nothing_allows", id="always asks"),
        pytest.param(replace(CALL, origin="messenger"), CallFacts((ALLOW,)), "park", "nothing_allows", id="a mover"),
        pytest.param(replace(CALL, risk="high"), CallFacts(approval=YES), "allow", "approved", id="a yes"),
        pytest.param(
            replace(CALL, content_sha="x"), CallFacts(approval=YES), "deny", "content_changed", id="a yes to other"
        ),
        pytest.param(CALL, CallFacts((ALLOW, DENY), YES), "deny", "rule_denies", id="a block outweighs both"),
        pytest.param(CALL, CallFacts((ALLOW,), uncertain=True), "park", "nothing_allows", id="may have run"),
        pytest.param(CALL, CallFacts((replace(ALLOW, max_uses=1, used=1),)), "park", "nothing_allows", id="used up"),
        pytest.param(CALL, CallFacts((ALLOW,), restored=1.0), "park", "nothing_allows", id="from before a backup"),
        pytest.param(CALL, CallFacts(cools_until=1.0), "deny", "cooled_down", id="three noes"),
        pytest.param(CALL, CallFacts((ALLOW,), cools_until=1.0), "allow", "rule_allows", id="a rule asks nobody"),
    ],
)
def test_verdict_on_a_call(call: CallAction, facts: CallFacts, verdict: str, code: str) -> None:
    decision = decide_call(call, facts)
    assert (decision.verdict, decision.findings[0].code) == (verdict, code)


@pytest.mark.parametrize(
    ("constraints", "permitted", "forbidden"),
    [
        pytest.param({}, True, True, id="every call"),
        pytest.param({"bed": "roses", "minutes": "5"}, True, True, id="a number as JSON"),
        pytest.param({"bed": "beans"}, False, False, id="another value"),
        pytest.param({"bed": "ROSES"}, False, True, id="another spelling"),
        pytest.param({"bed": " \uff52\uff4f\u200bses\n"}, False, True, id="another width, blanks, what nobody sees"),
        pytest.param({"minutes": "5.0"}, False, True, id="another way to write a number"),
        pytest.param({"minutes": "+0_5."}, False, True, id="a number as a program reads it"),
        pytest.param({"bed": "\u201cro\u2019ses\u201d"}, False, True, id="quotes"),
        pytest.param({"minutes": "50"}, False, False, id="another number"),
        pytest.param({"bed": "r\u00f6s\u00e9s"}, False, True, id="letters with marks"),
        pytest.param({"bed": "ro\u034fs\u3164es\ufe0f"}, False, True, id="letters that leave no ink"),
        pytest.param({"rows": "[1, 0]"}, False, True, id="numbers in a list"),
        pytest.param({"rows": "[1, 2]"}, False, False, id="another list"),
        pytest.param({"to": '["anna"]'}, False, True, id="characters that JSON escapes"),
        pytest.param({"who": '{"b": "\\u00fc", "a": [1]}'}, True, True, id="an object as it was typed"),
        pytest.param({"who": '{"A": ["1"], "B": "U"}'}, False, True, id="an object spelled otherwise"),
        pytest.param({"who": '{"b": "a", "a": [1]}'}, False, False, id="another object"),
        pytest.param({"who": "[" * 2000 + "]" * 2000}, False, False, id="deeper than can be read"),
        pytest.param({"until": "noon"}, False, True, id="null in place of an argument"),
        pytest.param({"bed": {"type": "one_of", "value": ["beans", "roses"]}}, True, True, id="one of"),
        pytest.param({"zone": "north"}, False, True, id="an argument left out"),
        pytest.param({"bed": LIKE}, False, True, id="a type nobody knows"),
        pytest.param({"bed": None}, False, True, id="no value"),
        pytest.param({"bed": {"type": "one_of", "value": "roses"}}, False, True, id="no list"),
        pytest.param({"bed": "beans", "minutes": LIKE}, False, False, id="readable, and another value"),
    ],
)
def test_what_cannot_be_read_lets_nothing_through_and_blocks(
    constraints: dict[str, object], *, permitted: bool, forbidden: bool
) -> None:
    assert permits(replace(ALLOW, constraints=constraints), CALL) is permitted
    assert forbids(replace(DENY, constraints=constraints), CALL) is forbidden


def test_a_rule_of_another_butler_says_nothing() -> None:
    assert not permits(replace(ALLOW, origin_butler="health"), CALL)
    assert not forbids(replace(DENY, origin_butler="health"), CALL)


ACTION = Action("health", "health", "send", "telegram", "4242", "anna", is_owner=False, deliverable=True,
    realm="sandbox", content_sha="s", length=5)  # fmt: skip


@pytest.mark.parametrize(
    ("constraints", "blocked"),
    [
        ({"contact_id": "anna", "mood": "good"}, True),
        ({"contact_id": {"type": "regex", "value": ".*"}}, True),
        ({"contact_id": "anna", "message": {"type": "max_length", "value": "9"}}, True),
        ({"contact_id": "zoe", "mood": "good"}, False),
        ({"contact_id": "anna", "message": {"type": "max_length", "value": 4}}, False),
        ({"recipient": {"type": "domain", "value": "example.org"}}, False),
    ],
)
def test_a_block_on_messages_that_cannot_be_read_blocks(constraints: dict[str, object], *, blocked: bool) -> None:
    assert matches(Rule("d", "deny", constraints), ACTION) is blocked
    assert not matches(Rule("a", "allow", constraints), ACTION)


@pytest.mark.parametrize(
    ("brake", "held"),
    [
        (Brake(), True),
        (Brake(butler="garden"), True),
        (Brake(butler="health"), False),
        (Brake(channel="telegram"), False),
        (Brake(contact_id="anna"), False),
    ],
)
def test_a_brake_on_a_butler_or_on_all_holds_calls_back(brake: Brake, *, held: bool) -> None:
    assert holds_back(brake, CALL.origin) is held


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("{}", "(no arguments)"),
        ('{"a":"1\\nb = 2"}', 'a = "1\\nb = 2"'),
        ('{"a\\nb":1,"c":[1,{"d":null}]}', '"a\\nb" = 1\nc = [1,{"d":null}]'),
        ("[wiped]", '"[wiped]"'),
        ("[1]", '"[1]"'),
        pytest.param(DEEP, f'"{DEEP}"', id="deeper than can be read"),
    ],
)
def test_an_argument_is_one_line(arguments: str, shown: str) -> None:
    assert named_values(arguments) == shown
