"""Stage 4, decide: action and facts in, a decision that names its reasons out.

Deny beats allow, and what nothing allows is parked. What cannot be read is not in the facts, and a caller that could
not gather them must not ask. Pure.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from shared.addresses import folded
from shared.model import Action, Approval, Decision, Facts, Finding, Rule

# These daemons carry what others ask; no standing rule allows what they ask themselves.
MOVERS: Final = frozenset({"switchboard", "messenger"})
OWN_REACTIONS: Final = "A butler can react only to its own messages and to messages it received."
# What a rule may name of a message, besides its length.
FIELDS: Final = frozenset({"contact_id", "recipient", "channel", "intent", "origin_butler"})
RESTORED: Final = "A backup was restored: the rule may already have let this message through."
OTHER_REALM: Final = "It was requested for another account of this channel, or for the sandbox."
CHANGED: Final = "You changed its words."
NOT_AS_APPROVED: Final = Finding("content_changed", "The message or its recipient changed after you approved it.")


def decide(action: Action, facts: Facts) -> Decision:
    """Decide whether this may leave now.

    The function is total, and its result is the same for every order of the rules.
    """
    decision = _judged(action, facts)
    if decision.verdict == "park" and facts.cools_until is not None and not action.is_owner:
        return cooled_down(action.origin, facts.cools_until)
    return decision


def _judged(action: Action, facts: Facts) -> Decision:
    matching = [rule for rule in facts.rules if matches(rule, action)]
    denied = _denied(action, facts, matching)
    if denied is not None:
        return denied
    if owner_is_trusted(action):
        return Decision("allow", (Finding("to_the_owner", "The message is to the owner."),))
    if not action.deliverable:
        return _park("address_of_another_channel", "This channel cannot reach that address.")
    yes = facts.approval
    if yes is not None and owner_approved_these_bytes(action, yes):
        return Decision("allow", (Finding("approved", "The owner approved this exact message."),), None, yes.action_id)
    if facts.similar is not None:
        return _park("near_duplicate", f"A similar message is being sent or may have arrived (ref {facts.similar}).")
    return _by_rule(action, facts, matching)


def cooled_down(butler: str, until: float) -> Decision:
    """Return the denial for a butler in its cool-down, which ends at `until` (seconds since 1970).

    The owner said no three times in a row to this butler there, so there is no fourth question for a while.
    """
    said = f"no more requests until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC, so do not ask again"
    then = "To ask after that, use a new request_context.idempotency_key."
    return deny("cooled_down", f"The owner denied {butler} three times in a row for this recipient: {said}. {then}")


def _denied(action: Action, facts: Facts, matching: list[Rule]) -> Decision | None:
    """Return the denial that no yes and no rule can outweigh, if there is one."""
    if not facts.in_time:
        return deny("too_late", "Expired before it could be sent.")
    if action.realm != facts.realm:
        return deny("other_realm", OTHER_REALM)
    if for_the_sandbox_only(action):
        return deny("sandbox_address", "This address exists only in the sandbox.")
    if action.is_owner and reaction_is_nobodys(action):
        return deny("message_unproved", OWN_REACTIONS)
    denying = [rule for rule in matching if rule.effect == "deny"]
    return deny("rule_denies", "Blocked by a rule.", rule_id=best(denying).id) if denying else None


def _by_rule(action: Action, facts: Facts, matching: list[Rule]) -> Decision:
    usable = [rule for rule in matching if rule.effect == "allow" and uses_are_left(rule)]
    allowing = [rule for rule in usable if was_made_since(rule, facts.restored)]
    if allowing and facts.changed:
        return Decision("park", (Finding("changed", CHANGED), *_about_thread(action)))
    if usable and not allowing:
        return Decision("park", (Finding("restored", RESTORED), *_about_thread(action)))
    if allowing and origin_admitted_it(action) and reaction_has_its_message(action):
        allows = Finding("rule_allows", "A rule allows it.")
        return Decision("allow", (allows, *_about_thread(action)), rule_id=best(allowing).id)
    findings = [Finding("nothing_allows", "No rule allows it.")]
    if facts.approval is not None:
        findings.append(NOT_AS_APPROVED)
    if action.contact_id is None:
        findings.append(Finding("unknown_address", "This address is not in your contacts."))
    if not origin_admitted_it(action) and allowing:
        findings.append(
            Finding("admitted_by_another", f"{action.admitted_by} submitted it on behalf of {action.origin}.")
        )
    return Decision("park", (*findings, *_about_thread(action)))


def _about_thread(action: Action) -> tuple[Finding, ...]:
    """Return what the owner should know of a thread that nothing proves."""
    if not action.unproved:
        return ()
    if not reaction_has_its_message(action):
        return (Finding("message_unproved", "The message it reacts to could not be verified."),)
    said = "The conversation could not be verified, so it would be sent as a new message."
    return (Finding("thread_unproved", said),)


def owner_is_trusted(action: Action) -> bool:
    """Return whether it goes to the owner's own chat or address, which needs no yes."""
    return action.is_owner and action.deliverable


def owner_approved_these_bytes(action: Action, approval: Approval) -> bool:
    """Return whether the approval is for this content: it speaks for its own content only."""
    return approval.content_sha == action.content_sha


def for_the_sandbox_only(action: Action) -> bool:
    """Return whether the address exists on the sandbox only, and this is another realm.

    The addresses that a new installation invents are nobody's on a live channel.
    """
    invented = action.address == "5000000000000001" or action.address.endswith("@sandbox.test")
    return invented and action.realm != "sandbox"


def origin_admitted_it(action: Action) -> bool:
    """Return whether the origin butler admitted it itself and is no mover.

    No standing rule lets out what somebody else admitted in a butler's name, or what a mover says itself.
    """
    return action.admitted_by == action.origin and action.origin not in MOVERS


def reaction_has_its_message(action: Action) -> bool:
    """Return whether it is anything but a reaction to a message that nothing proves.

    Such a reaction says nothing without its message, so no standing rule lets it out.
    """
    return action.intent != "react" or not action.unproved


def reaction_is_nobodys(action: Action) -> bool:
    """Return whether it is a reaction whose author could not be told from the reaction.

    That is one to an unproved message, or one that another daemon admitted: a reaction bears no name and no mark of who
    admitted it.
    """
    return action.intent == "react" and (action.unproved or action.admitted_by != action.origin)


def uses_are_left(rule: Rule) -> bool:
    """Return whether the rule has uses left; a rule that is used up allows nothing."""
    total = rule.max_uses is None or rule.used < rule.max_uses
    daily = rule.max_per_day is None or rule.used_today < rule.max_per_day
    return total and daily


def was_made_since(rule: Rule, restored: float | None) -> bool:
    """Return whether the rule was made since a backup was put back, or none was.

    Rules made before do not count: the message may have gone out by one, or the rule been revoked.
    """
    return restored is None or rule.created > restored


def matches(rule: Rule, action: Action) -> bool:
    """Return whether the rule speaks of this action; one that allows must pin a contact or a recipient.

    What the policy cannot read of a rule that blocks is taken to match, and of one that allows, not to. One that blocks
    holds for every bot and mail account, wherever it was made.
    """
    denies = rule.effect == "deny"
    holds = denies or rule.realm in {None, action.realm}
    if rule.origin_butler not in {None, action.origin} or not holds:
        return False
    if not denies and not {"contact_id", "recipient"} & set(rule.constraints):
        return False
    return all(
        _holds(field, value, action) or (denies and not _is_understood(field, value))
        for field, value in rule.constraints.items()
    )


def _is_understood(field: str, constraint: object) -> bool:
    """Return whether the policy knows this field of a rule, and what the rule wants of it."""
    kind, wanted = read_constraint(constraint)
    if field == "message":
        return kind == "max_length" and isinstance(wanted, int) and not isinstance(wanted, bool)
    if field not in FIELDS:
        return False
    return is_readable(constraint) or (kind == "domain" and field == "recipient" and isinstance(wanted, str))


def pins(rule: Rule, address: str) -> bool:
    """Return whether the rule names this address itself, alone or among others."""
    kind, wanted = read_constraint(rule.constraints.get("recipient"))
    return _value_holds(kind, "recipient", folded(address), wanted)


def _holds(field: str, constraint: object, action: Action) -> bool:
    """Return whether one constraint holds; an unknown field or an unknown type never does."""
    kind, wanted = read_constraint(constraint)
    if field == "message" and kind == "max_length":
        return isinstance(wanted, int) and not isinstance(wanted, bool) and action.length <= wanted
    value = _field(field, action)
    return value is not None and _value_holds(kind, field, folded(value), wanted)


def read_constraint(constraint: object) -> tuple[str, object]:
    """Return a constraint's type and value; a plain value is exact."""
    if isinstance(constraint, Mapping):
        return str(constraint.get("type")), constraint.get("value")
    return "exact", constraint


def _value_holds(kind: str, field: str, value: str, wanted: object) -> bool:
    if kind == "one_of" and isinstance(wanted, list):
        return value in {folded(one) for one in wanted if isinstance(one, str)}
    if not isinstance(wanted, str):
        return False
    if kind == "domain" and field == "recipient":
        return "@" in value[1:] and value.rpartition("@")[2] == folded(wanted)
    return kind == "exact" and value == folded(wanted)


def _field(field: str, action: Action) -> str | None:
    return {
        "contact_id": action.contact_id,
        "recipient": action.address,
        "channel": action.channel,
        "intent": action.intent,
        "origin_butler": action.origin,
    }.get(field)


def is_readable(constraint: object) -> bool:
    """Return whether the policy knows what a rule about an argument wants."""
    kind, wanted = read_constraint(constraint)
    if kind == "one_of":
        return isinstance(wanted, list) and all(isinstance(one, str) for one in wanted)
    return kind == "exact" and isinstance(wanted, str)


def best(rules: list[Rule]) -> Rule:
    """Return the best of several matching rules: more exact, then bounded, then newer, then by id."""
    return min(rules, key=lambda rule: (-len(rule.constraints), not rule.bounded, -rule.created, rule.id))


def deny(code: str, text: str, *, rule_id: str | None = None) -> Decision:
    """Return a denial for that reason."""
    return Decision("deny", (Finding(code, text),), rule_id=rule_id)


def _park(code: str, text: str) -> Decision:
    return Decision("park", (Finding(code, text),))
