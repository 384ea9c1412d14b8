"""The gate's judgement as tables, from the empty case on."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.gate.decide import decide, matches
from shared.model import Action, Approval, Decision, Facts, Rule

ANNA = "11111111-1111-4111-8111-111111111111"
TO_ANNA = Action(
    origin="health",
    admitted_by="health",
    intent="send",
    channel="telegram",
    address="4242",
    contact_id=ANNA,
    is_owner=False,
    deliverable=True,
    realm="sandbox",
    content_sha="sha-of-hello",
    length=5,
)
TO_OWNER = replace(TO_ANNA, is_owner=True)
UNPROVED = replace(TO_ANNA, unproved=True)
BY_MAIL = replace(TO_ANNA, channel="email", address="Anna@example.org")
NOTHING = Facts(realm="sandbox")
ALLOW = Rule("r1", "allow", {"contact_id": ANNA})
DENY = Rule("r0", "deny", {"contact_id": ANNA})
YES = Approval("a1", "sha-of-hello", ("w1",))
COOL = Facts(realm="sandbox", cools_until=1767528000.0)


def told(decision: Decision) -> tuple[str, str]:
    """The verdict and the first reason."""
    return decision.verdict, decision.findings[0].code


def rules(*given: Rule) -> Facts:
    return Facts(realm="sandbox", rules=given)


@pytest.mark.parametrize(
    ("action", "facts", "expected"),
    [
        pytest.param(TO_ANNA, NOTHING, ("park", "nothing_allows"), id="what nothing allows is parked"),
        pytest.param(
            replace(TO_ANNA, intent="reply"), NOTHING, ("park", "nothing_allows"), id="a reply is no way round"
        ),
        pytest.param(TO_OWNER, NOTHING, ("allow", "to_the_owner"), id="the owner is told at once"),
        pytest.param(
            replace(TO_OWNER, intent="react"), NOTHING, ("allow", "to_the_owner"), id="a butler reacts to its owner"
        ),
        pytest.param(
            replace(TO_OWNER, intent="react", unproved=True),
            NOTHING,
            ("deny", "message_unproved"),
            id="a reaction to what others said has no name",
        ),
        pytest.param(
            replace(TO_OWNER, intent="react", admitted_by="switchboard"),
            NOTHING,
            ("deny", "message_unproved"),
            id="a reaction bears no mark of who admitted it",
        ),
        pytest.param(
            replace(TO_OWNER, deliverable=False),
            NOTHING,
            ("park", "address_of_another_channel"),
            id="an address of another channel is not the owner's",
        ),
        pytest.param(TO_ANNA, rules(ALLOW), ("allow", "rule_allows"), id="a rule allows"),
        pytest.param(TO_ANNA, rules(DENY), ("deny", "rule_denies"), id="a rule denies"),
        pytest.param(TO_ANNA, rules(ALLOW, DENY), ("deny", "rule_denies"), id="deny beats allow"),
        pytest.param(TO_OWNER, rules(DENY), ("deny", "rule_denies"), id="deny stops what goes to the owner"),
        pytest.param(
            TO_ANNA,
            replace(NOTHING, rules=(DENY,), approval=YES),
            ("deny", "rule_denies"),
            id="deny outweighs a yes",
        ),
        pytest.param(TO_ANNA, replace(NOTHING, approval=YES), ("allow", "approved"), id="the owner's yes allows"),
        pytest.param(
            TO_ANNA,
            replace(rules(ALLOW), similar="7K2Q"),
            ("park", "near_duplicate"),
            id="no rule lets out what may be a second try",
        ),
        pytest.param(
            TO_ANNA,
            replace(rules(ALLOW), changed=True),
            ("park", "changed"),
            id="what the owner changed no rule lets out",
        ),
        pytest.param(
            TO_ANNA,
            replace(rules(ALLOW), changed=True, approval=YES),
            ("allow", "approved"),
            id="what the owner changed and approved goes",
        ),
        pytest.param(TO_ANNA, COOL, ("deny", "cooled_down"), id="after three noes nothing is asked"),
        pytest.param(
            TO_ANNA, replace(COOL, similar="7K2Q"), ("deny", "cooled_down"), id="nor about what may be a second try"
        ),
        pytest.param(TO_ANNA, replace(COOL, rules=(ALLOW,)), ("allow", "rule_allows"), id="a rule still lets it out"),
        pytest.param(TO_ANNA, replace(COOL, rules=(DENY,)), ("deny", "rule_denies"), id="deny comes first"),
        pytest.param(TO_ANNA, replace(COOL, approval=YES), ("allow", "approved"), id="a yes counts all the same"),
        pytest.param(TO_OWNER, COOL, ("allow", "to_the_owner"), id="the owner is told as ever"),
        pytest.param(
            replace(TO_OWNER, deliverable=False),
            COOL,
            ("park", "address_of_another_channel"),
            id="about the owner nothing cools",
        ),
        pytest.param(
            TO_ANNA,
            replace(NOTHING, approval=YES, similar="7K2Q"),
            ("allow", "approved"),
            id="the owner's yes lets it out",
        ),
        pytest.param(
            TO_OWNER, replace(NOTHING, similar="7K2Q"), ("allow", "to_the_owner"), id="the owner hears it at once"
        ),
        pytest.param(
            replace(TO_ANNA, content_sha="sha-of-other"),
            replace(NOTHING, approval=YES),
            ("park", "nothing_allows"),
            id="a yes to other words allows nothing",
        ),
        pytest.param(
            replace(TO_ANNA, deliverable=False),
            replace(NOTHING, approval=YES, rules=(ALLOW,)),
            ("park", "address_of_another_channel"),
            id="what cannot be delivered is parked whoever allows it",
        ),
        pytest.param(TO_OWNER, replace(NOTHING, in_time=False), ("deny", "too_late"), id="too late is never sent"),
        pytest.param(TO_OWNER, Facts(realm="123456"), ("deny", "other_realm"), id="it never leaves its realm"),
        pytest.param(
            replace(TO_ANNA, admitted_by="switchboard"),
            rules(ALLOW),
            ("park", "nothing_allows"),
            id="what another admitted no rule lets out",
        ),
        pytest.param(
            replace(TO_ANNA, origin="switchboard", admitted_by="switchboard"),
            rules(ALLOW),
            ("park", "nothing_allows"),
            id="what a mover says itself no rule lets out",
        ),
        pytest.param(
            replace(TO_OWNER, admitted_by="switchboard"),
            NOTHING,
            ("allow", "to_the_owner"),
            id="what another admitted may go to the owner",
        ),
        pytest.param(
            replace(TO_ANNA, admitted_by="switchboard"),
            replace(NOTHING, approval=YES),
            ("allow", "approved"),
            id="what another admitted goes out by a yes",
        ),
        pytest.param(UNPROVED, NOTHING, ("park", "nothing_allows"), id="a thread that nothing proves is no authority"),
        pytest.param(UNPROVED, rules(ALLOW), ("allow", "rule_allows"), id="a new message goes out by a rule"),
        pytest.param(
            replace(UNPROVED, intent="react"),
            rules(ALLOW),
            ("park", "nothing_allows"),
            id="a reaction to what nothing proves no rule lets out",
        ),
        pytest.param(
            replace(TO_ANNA, intent="react"), rules(ALLOW), ("allow", "rule_allows"), id="a reaction goes by a rule"
        ),
        pytest.param(
            replace(UNPROVED, intent="react"),
            replace(NOTHING, approval=YES),
            ("allow", "approved"),
            id="the owner lets out a reaction to what nothing proves",
        ),
    ],
)
def test_verdict(action: Action, facts: Facts, expected: tuple[str, str]) -> None:
    assert told(decide(action, facts)) == expected


def test_a_decision_names_the_authority_it_rests_on() -> None:
    by_rule, by_yes = decide(TO_ANNA, rules(ALLOW)), decide(TO_ANNA, replace(NOTHING, rules=(ALLOW,), approval=YES))
    assert (by_rule.rule_id, by_rule.approval_id) == ("r1", None)
    assert (by_yes.rule_id, by_yes.approval_id) == (None, "a1")
    assert decide(TO_ANNA, rules(ALLOW, DENY)).rule_id == "r0"
    assert decide(TO_OWNER, rules(ALLOW)).rule_id is None, "a rule is not spent on what goes to the owner"


def test_every_reason_to_park_is_listed() -> None:
    action = replace(TO_ANNA, contact_id=None, content_sha="changed", admitted_by="switchboard")
    facts = replace(rules(Rule("r", "allow", {"recipient": "4242"})), approval=YES)
    codes = [finding.code for finding in decide(action, facts).findings]
    assert codes == ["nothing_allows", "content_changed", "unknown_address", "admitted_by_another"]


@pytest.mark.parametrize(
    ("action", "facts", "code"),
    [
        (UNPROVED, NOTHING, "thread_unproved"),
        (UNPROVED, rules(ALLOW), "thread_unproved"),
        (replace(UNPROVED, intent="react"), rules(ALLOW), "message_unproved"),
    ],
)
def test_the_owner_is_told_of_a_thread_that_nothing_proves(action: Action, facts: Facts, code: str) -> None:
    codes = [finding.code for finding in decide(action, facts).findings]
    assert codes[1:] == [code]


@pytest.mark.parametrize(
    ("constraints", "action", "fits"),
    [
        pytest.param({"contact_id": ANNA}, TO_ANNA, True, id="a plain value is exact"),
        pytest.param({"contact_id": {"type": "exact", "value": ANNA}}, TO_ANNA, True, id="exact"),
        pytest.param({"contact_id": ANNA.upper()}, replace(TO_ANNA, contact_id=ANNA), True, id="ASCII case is folded"),
        pytest.param({"contact_id": "22222222-2222-4222-8222-222222222222"}, TO_ANNA, False, id="another contact"),
        pytest.param({"contact_id": ANNA}, replace(TO_ANNA, contact_id=None), False, id="no contact at all"),
        pytest.param({"recipient": "4242"}, TO_ANNA, True, id="recipient is the resolved address"),
        pytest.param({"recipient": "anna@EXAMPLE.org"}, BY_MAIL, True, id="an address in another spelling"),
        pytest.param({"recipient": {"type": "one_of", "value": ["1", "4242"]}}, TO_ANNA, True, id="one_of"),
        pytest.param({"recipient": {"type": "one_of", "value": ["1", "2"]}}, TO_ANNA, False, id="none of"),
        pytest.param({"recipient": {"type": "one_of", "value": "4242"}}, TO_ANNA, False, id="one_of wants a list"),
        pytest.param({"recipient": {"type": "one_of", "value": []}}, TO_ANNA, False, id="one of nothing"),
        pytest.param({"recipient": {"type": "domain", "value": "example.org"}}, BY_MAIL, True, id="domain"),
        pytest.param({"recipient": {"type": "domain", "value": "ample.org"}}, BY_MAIL, False, id="not its tail"),
        pytest.param({"recipient": {"type": "domain", "value": "4242"}}, TO_ANNA, False, id="a chat has no domain"),
        pytest.param(
            {"recipient": {"type": "domain", "value": "durov"}},
            replace(TO_ANNA, address="@durov"),
            False,
            id="a username has no domain",
        ),
        pytest.param({"contact_id": {"type": "domain", "value": ANNA}}, TO_ANNA, False, id="domain of no address"),
        pytest.param(
            {"contact_id": ANNA, "message": {"type": "max_length", "value": 5}}, TO_ANNA, True, id="max_length"
        ),
        pytest.param(
            {"contact_id": ANNA, "message": {"type": "max_length", "value": 4}}, TO_ANNA, False, id="too long"
        ),
        pytest.param(
            {"contact_id": ANNA, "message": {"type": "max_length", "value": True}}, TO_ANNA, False, id="no number"
        ),
        pytest.param(
            {"contact_id": ANNA, "message": {"type": "max_length", "value": "9"}}, TO_ANNA, False, id="a number as text"
        ),
        pytest.param({"contact_id": {"type": "max_length", "value": 99}}, TO_ANNA, False, id="max_length of an id"),
        pytest.param({"contact_id": {"type": "regex", "value": ".*"}}, TO_ANNA, False, id="an unknown type"),
        pytest.param({"contact_id": {"value": ANNA}}, TO_ANNA, False, id="no type"),
        pytest.param({"contact_id": ANNA, "mood": "good"}, TO_ANNA, False, id="an unknown field"),
        pytest.param({"contact_id": None}, TO_ANNA, False, id="null"),
        pytest.param({"contact_id": ANNA, "channel": "telegram", "intent": "send"}, TO_ANNA, True, id="all hold"),
        pytest.param({"contact_id": ANNA, "channel": "email"}, TO_ANNA, False, id="one of them does not hold"),
        pytest.param({}, TO_ANNA, False, id="an empty rule speaks of nobody"),
        pytest.param({"channel": "telegram"}, TO_ANNA, False, id="it must pin a contact or a recipient"),
    ],
)
def test_constraints(constraints: dict[str, object], action: Action, *, fits: bool) -> None:
    assert matches(Rule("r", "allow", constraints), action) is fits


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (replace(ALLOW, origin_butler="health"), True),
        (replace(ALLOW, origin_butler="calendar"), False),
        (replace(ALLOW, realm="sandbox"), True),
        (replace(ALLOW, realm="123456"), False),
        (replace(DENY, realm="123456"), True),
    ],
)
def test_a_rule_may_speak_of_one_butler_or_one_realm(rule: Rule, *, fits: bool) -> None:
    assert matches(rule, TO_ANNA) is fits


@pytest.mark.parametrize("realm", ["123456", "another bot", "sandbox"])
def test_a_rule_that_blocks_holds_wherever_it_was_made(realm: str) -> None:
    assert matches(replace(DENY, realm=realm), replace(TO_ANNA, realm="123456"))


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        (replace(ALLOW, max_uses=1), "allow"),
        (replace(ALLOW, max_uses=1, used=1), "park"),
        (replace(ALLOW, max_uses=2, used=1), "allow"),
        (replace(ALLOW, max_per_day=1, used_today=1), "park"),
        (replace(ALLOW, max_per_day=2, used_today=1), "allow"),
        (replace(ALLOW, max_uses=9, max_per_day=1, used=3, used_today=1), "park"),
    ],
)
def test_a_rule_that_is_used_up_allows_nothing(rule: Rule, verdict: str) -> None:
    assert decide(TO_ANNA, rules(rule)).verdict == verdict


def test_a_deny_rule_is_never_used_up() -> None:
    assert decide(TO_ANNA, rules(replace(DENY, max_uses=1, used=5))).verdict == "deny"


def test_the_more_exact_then_the_bounded_then_the_newer_rule_is_spent() -> None:
    exact = Rule("exact", "allow", {"contact_id": ANNA, "channel": "telegram"})
    bounded = replace(ALLOW, id="bounded", bounded=True)
    newer, older, twin = (
        replace(ALLOW, id="newer", created=9.0),
        replace(ALLOW, id="older", created=1.0),
        replace(ALLOW, id="a_twin", created=1.0),
    )
    ranked = [exact, bounded, newer, twin, older]
    for start in range(len(ranked)):
        for order in permutations(ranked[start:]):
            assert decide(TO_ANNA, rules(*order)).rule_id == ranked[start].id
    used_up = replace(exact, max_uses=1, used=1)
    assert decide(TO_ANNA, rules(used_up, bounded)).rule_id == "bounded"


CONSTRAINTS = st.dictionaries(
    st.sampled_from(["contact_id", "recipient", "channel", "message", "mood"]),
    st.one_of(
        st.none(),
        st.integers(),
        st.sampled_from([ANNA, "4242", "telegram"]),
        st.lists(st.integers()),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["exact", "one_of", "domain", "max_length", "?"]), "value": st.integers()}
        ),
    ),
)
ANY_RULE = st.builds(
    Rule, id=st.text(max_size=3), effect=st.sampled_from(["allow", "deny"]), constraints=CONSTRAINTS, used=st.integers()
)


@given(st.lists(ANY_RULE, max_size=4))
def test_it_is_total_and_does_not_depend_on_the_order_of_the_rules(found: list[Rule]) -> None:
    decision = decide(TO_ANNA, rules(*found))
    assert decision == decide(TO_ANNA, rules(*reversed(found)))
    allowing = [rule for rule in found if rule.effect == "allow" and matches(rule, TO_ANNA)]
    assert decision.verdict != "allow" or allowing
    assert decision.findings


def test_a_butler_that_cools_down_is_told_until_when() -> None:
    (finding,) = decide(TO_ANNA, COOL).findings
    assert finding.text == (
        "The owner denied health three times in a row for this recipient: "
        "no more requests until 2026-01-04 12:00 UTC, so do not ask again. "
        "To ask after that, use a new request_context.idempotency_key."
    )
