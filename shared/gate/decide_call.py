"""Stage 4 for a call of a gated tool: call and facts in, a decision that names its reasons out. Pure."""

import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from shared.display.visible import UNSEEN
from shared.gate.decide import MOVERS, best, deny, is_readable, read_constraint, uses_are_left, was_made_since
from shared.hashing import canonical_json
from shared.model import Approval, CallAction, CallFacts, Decision, Finding, Rule

QUOTES: Final = dict.fromkeys(
    map(ord, "\"'`\\\u00ab\u00bb\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a")
)
NUMBER: Final = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?")


def decide_call(call: CallAction, facts: CallFacts) -> Decision:
    """Decide whether this call of a gated tool may run now; as with messages, deny beats allow."""
    denying = [rule for rule in facts.rules if rule.effect == "deny" and forbids(rule, call)]
    if denying:
        return deny("rule_denies", "Blocked by a rule.", rule_id=best(denying).id)
    if facts.approval is not None:
        return _by_yes(call, facts.approval)
    allowing = [rule for rule in facts.rules if rule.effect == "allow" and permits(rule, call)]
    usable = [rule for rule in allowing if uses_are_left(rule) and was_made_since(rule, facts.restored)]
    if usable and a_rule_is_enough(call) and not facts.uncertain:
        return Decision("allow", (Finding("rule_allows", "A rule allows it."),), rule_id=best(usable).id)
    if facts.cools_until is not None:
        return call_cooled_down(call, facts.cools_until)
    findings = [Finding("nothing_allows", "No rule allows it.")]
    if facts.uncertain:
        findings.append(Finding("may_have_run", "The same call may have run before; its outcome is not known."))
    return Decision("park", tuple(findings))


def _by_yes(call: CallAction, yes: Approval) -> Decision:
    if yes.content_sha != call.content_sha:
        return deny("content_changed", "The call changed after it was approved.")
    return Decision("allow", (Finding("approved", "The owner approved this exact call."),), None, yes.action_id)


def call_cooled_down(call: CallAction, until: float) -> Decision:
    """Return the denial for a tool in its cool-down, which ends at `until` (seconds since 1970)."""
    said = f"no more requests until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC, so do not ask again."
    return deny("cooled_down", f"The owner denied `{call.tool_name}` three times in a row: {said}")


def a_rule_is_enough(call: CallAction) -> bool:
    """Return whether a standing rule may let it run: never for a high risk, and not where the tool always asks."""
    return call.gate == "rules" and call.risk == "low" and call.origin not in MOVERS


def permits(rule: Rule, call: CallAction) -> bool:
    """Return whether an allowing rule speaks of this call: each of its arguments is there, and is exactly that."""
    if rule.origin_butler not in {None, call.origin}:
        return False
    return all(
        name in call.arguments and any(_is_exactly(call.arguments[name], one) for one in _named(wanted))
        for name, wanted in rule.constraints.items()
    )


def forbids(rule: Rule, call: CallAction) -> bool:
    """Return whether a blocking rule speaks of this call; what cannot be read, or is left out, is taken to match."""
    if rule.origin_butler not in {None, call.origin}:
        return False
    return all(
        # Tools take null for an argument that is left out.
        call.arguments.get(name) is None
        or not is_readable(wanted)
        or _spelling(call.arguments[name]) in map(_spelling, _named(wanted))
        for name, wanted in rule.constraints.items()
    )


def _named(constraint: object) -> Sequence[str]:
    """Return the values that a rule names for an argument; none where it cannot be read."""
    if not is_readable(constraint):
        return ()
    wanted = read_constraint(constraint)[1]
    return wanted if isinstance(wanted, list) else (str(wanted),)


def _is_exactly(value: object, wanted: str) -> bool:
    """Return whether an argument is what a rule names: a text as it is, anything else as JSON, however typed."""
    if isinstance(value, str):
        return value == wanted
    with suppress(ValueError, RecursionError):
        return canonical_json(value) == canonical_json(json.loads(wanted))
    return False


def _spelling(value: object) -> str:
    """Return what the spellings of one value share, which a blocking rule compares: to match too much is right there.

    It has no case, width, blanks, quotes, marks and characters that leave no ink, and of each number in it the value.
    A text that is the JSON of a list or an object is spelled like that, whose keys are in any order.
    """
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{_spelling(key)}:{_spelling(one)}" for key, one in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelling, value)) + "]"
    text = value if isinstance(value, str) else canonical_json(value)
    same = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    bare = "".join(one for one in same if unicodedata.category(one)[0] not in "CMZ" and one not in UNSEEN)
    with suppress(ValueError, RecursionError):
        if isinstance(parsed := json.loads(bare), dict | list):
            return _spelling(parsed)
    return NUMBER.sub(_value, bare.translate(QUOTES))


def _value(number: re.Match[str]) -> str:
    try:
        # Nothing and its negative are one.
        return str(Decimal(number[0]).normalize() + 0)
    except ArithmeticError:
        return number[0]
