"""A call of a gated tool at the gate: let through or parked as it comes, and asked about again before it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from shared.channels import realms
from shared.db.pool import Connection, Record, tell
from shared.display.tool_call import AskedCall
from shared.errors import InvalidInput, Unavailable
from shared.gate.decide_call import decide_call
from shared.gate.delays import holds_back
from shared.gate.owner_decision import Outcome, tell_butler
from shared.model import Approval, Brake, CallAction, CallFacts, Decision, Gate, Risk, Rule
from shared.storage import pending_actions, tool_calls
from shared.storage.pending_actions import Event, Why
from shared.storage.tool_calls import NewCall, sha_of

RUN_WITHIN: Final = timedelta(hours=24)
LONGEST: Final = 10_000
DEEPEST: Final = 30
LONGEST_SENTENCE: Final = 1_000
AGAIN_SOON: Final = "Another call by the same rule came at the same moment."


@dataclass(frozen=True, slots=True)
class Declared:
    """What a tool's code says of itself now."""

    gate: Gate
    risk: Risk


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that has begun: which, and with what arguments."""

    id: str
    attempt: int
    arguments: dict[str, object]
    session: str | None


def exact(arguments: object) -> str:
    """Return the arguments as the one JSON text that is shown, hashed and run; raise InvalidInput if there is none."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError, TypeError):
        raise InvalidInput(
            "The arguments are not plain JSON.", "Use complete characters, and no NaN and no infinity."
        ) from None
    if len(text) > LONGEST or _depth(arguments) > DEEPEST:
        raise InvalidInput("The arguments are too long to be shown to the owner.", f"Use at most {LONGEST} characters.")
    return text


def whole(said: str) -> str:
    """Return a sentence as a row can hold it; raise InvalidInput if it holds half a character."""
    try:
        said.encode()
    except UnicodeEncodeError:
        raise InvalidInput("The tool's sentence holds half a character.", "Send complete characters.") from None
    return said


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


async def admit_call(
    connection: Connection, new: NewCall, declared: Declared, ttl: timedelta
) -> tuple[Decision, Record | None]:
    """Decide about a call, and write it down unless it is refused; return the decision and how the call stands.

    The same call that waits or runs already is that call. Raises Unavailable if it should be tried again.
    """
    waiting = await tool_calls.open_equal(connection, new.origin, new.content_sha)
    if waiting is not None:
        return Decision("park", ()), waiting
    action = _action(new.origin, new.tool_name, declared, new.arguments, new.content_sha)
    decision = decide_call(action, await gather_call(connection, action, new.id))
    if decision.verdict == "deny":
        happened = "cooled_down" if decision.findings[0].code == "cooled_down" else "denied_by_rule"
        event = Event(happened, new.origin, rule_id=decision.rule_id, reason=decision.text)
        await pending_actions.record(connection, event, tool=new.tool_name)
        return decision, None
    if not await pending_actions.park_call(connection, new, ttl, decision.rule_id):
        raise Unavailable("The same call came at the same moment.", "Try again.")
    await tool_calls.add_call(connection, new)
    if decision.rule_id is not None:
        await _spend(connection, action, decision, new.id)
    happened = "approved" if decision.rule_id else "parked"
    event = Event(happened, new.origin, action_id=new.id, rule_id=decision.rule_id, reason=decision.text)
    await pending_actions.record(connection, event, revision=1, content=new.content_sha, tool=new.tool_name)
    await tell(connection, "released" if decision.rule_id else "cards")
    return decision, await tool_calls.one(connection, new.id)


async def _spend(connection: Connection, action: CallAction, decision: Decision, call_id: str) -> None:
    """Count a use of the rule, or raise Unavailable if others took what was left of it meanwhile.

    Of two that take the same use one waits and fails; whoever comes later sees it when it looks once more.
    """
    taken = await pending_actions.spend_on_call(connection, str(decision.rule_id), call_id)
    if not taken or decide_call(action, await gather_call(connection, action, call_id)).rule_id != decision.rule_id:
        raise Unavailable(AGAIN_SOON, "Try again.")


def _action(origin: str, tool_name: str, declared: Declared, arguments: str, content_sha: str) -> CallAction:
    return CallAction(origin, tool_name, declared.gate, declared.risk, json.loads(arguments), content_sha)


async def gather_call(
    connection: Connection, action: CallAction, call_id: str, approval: Approval | None = None
) -> CallFacts:
    """Read everything that a decision about this call leans on; raise Unavailable if it cannot be read."""
    row = await tool_calls.facts(connection, call_id, action.origin, action.tool_name, action.content_sha)
    if row is None:
        raise Unavailable("The facts cannot be read.", "Try again in a moment.")
    return CallFacts(
        rules=tuple(Rule(**fact) for fact in row["rules"]),
        approval=approval,
        brakes=tuple(Brake(**fact) for fact in row["brakes"]),
        restored=row["restored"],
        cools_until=row["cools_until"],
        uncertain=row["uncertain"],
    )


async def begin_call(
    connection: Connection, call_id: str, declared: Declared, holder: str, lasts: timedelta
) -> Begun | None:
    """Ask the gate again and begin the call under a lease; return None if it may not run now, or is begun already.

    INVARIANT: what runs is the text that the hash of the yes, or of the rule's use, is over. No rule lets it run but
    the one that it has used, so that none lets more run than its bound says.
    """
    row = await tool_calls.one(connection, call_id)
    if row is None or row["status"] != "approved" or row["age"] >= RUN_WITHIN.total_seconds():
        return None
    changed = sha_of(row) != row["content_sha"]
    arguments = "{}" if changed else row["arguments"]
    action = _action(row["origin_butler"], row["tool_name"], declared, arguments, sha_of(row))
    bound = Approval(row["id"], row["content_sha"] or "", ())
    facts = await gather_call(connection, action, call_id, bound if row["decided_by"] else None)
    facts = replace(facts, rules=tuple(one for one in facts.rules if one.effect == "deny" or one.id == row["rule_id"]))
    if any(holds_back(brake, row["origin_butler"]) for brake in facts.brakes):
        return None
    decision, origin = decide_call(action, facts), row["origin_butler"]
    if decision.verdict != "allow" or changed:
        said = "It was changed after it was let through." if decision.verdict == "allow" else decision.text
        not_run = "It was not run again; an earlier attempt may have run." if row["attempt"] else "It was not run."
        why = Why(origin, f"{said} {not_run}", decision.rule_id)
        if await pending_actions.move_call(connection, call_id, ["approved"], "cancelled", why):
            said = json.dumps({"error": why.reason})
            await tool_calls.end_call(connection, call_id, row["holder"], row["attempt"], said)
            await tell(connection, "cards")
        return None
    why = Why(origin, decision.text, row["rule_id"])
    if not await pending_actions.move_call(connection, call_id, ["approved"], "executing", why):
        return None
    attempt = await tool_calls.lease(connection, call_id, holder, lasts)
    return Begun(call_id, attempt, json.loads(arguments), row["session_id"])


async def finish_call(connection: Connection, origin: str, begun: Begun, holder: str, came: tuple[str, str]) -> None:
    """Write down what came of an attempt, as its state and its result.

    A late answer ends an uncertainty too, and what was to run again because of it.
    """
    state, result = came
    # The tool's own words may quote what others wrote: they stand in the result, which is wiped, not in the audit.
    why = Why(origin, None)
    if await tool_calls.end_call(connection, begun.id, holder, begun.attempt, result):
        await pending_actions.move_call(connection, begun.id, ["executing", "uncertain", "approved"], state, why)
        await tell(connection, "cards")


async def asked_call(connection: Connection, row: Record) -> AskedCall:
    """Return the question of this row (tool_calls.one): what it says, and what the house makes of it."""
    action = CallAction(row["origin_butler"], row["tool_name"], "rules", row["risk"], {}, sha_of(row))
    facts = await gather_call(connection, action, row["id"])
    may_have_run = ["The same call may have run before; its outcome is not known."] if facts.uncertain else []
    return AskedCall(
        origin=row["origin_butler"],
        tool_name=row["tool_name"],
        says=row["says"],
        arguments=row["arguments"],
        high_risk=row["risk"] == "high",
        findings=tuple(may_have_run),
        until=row["expires_at"],
        content_sha=action.content_sha,
    )


CallWord = Literal["ran", "again", "leave"]
CALL_WORDS: Final[tuple[CallWord, ...]] = ("ran", "again", "leave")
# What it is then, what the owner is told, and what the butler is.
_RESOLVED: Final[Mapping[CallWord, tuple[str, str, str]]] = {
    "ran": ("executed", "You confirmed that it ran.", "says that it ran: {about}."),
    "again": ("approved", "You had it run again.", "has it run again: {about}."),
    "leave": ("failed", "You left it. It is not run again.", "left it, so it does not run again: {about}."),
}
CALL_LATE: Final = "Nothing was changed: its outcome is known, it was answered already, or the same call waits anew."


@dataclass(frozen=True, slots=True)
class Resolve:
    """What the owner says of a call that may have run: of which attempt, who, by which surface."""

    action_id: str
    attempt: int
    word: CallWord
    by: str
    surface: str
    # If the surface is a channel: the realm in which it works.
    realm: str | None = None


async def resolve_call(connection: Connection, said: Resolve) -> Outcome:
    """Carry out the owner's word on a call that may have run, in the caller's transaction.

    INVARIANT: to run it again is a yes, bound to the call as it lies in its row; the gate asks again before it runs.
    """
    call = await tool_calls.one(connection, said.action_id)
    if call is None:
        return Outcome("impossible", "There is no such tool call.")
    if not realms.may_decide(said.surface, said.realm, call["realm"]):
        return Outcome("not_here", realms.NOT_HERE)
    sha = tool_calls.sha_of(call)
    if said.word == "again" and sha != call["content_sha"]:
        return Outcome("impossible", "The stored call was changed after it was asked. Leave it.")
    status, done, told = _RESOLVED[said.word]
    bound = {"content": sha, "tool": call["tool_name"]} if said.word == "again" else {}
    why = Why("owner", done, surface=said.surface, contact=said.by)
    if not await pending_actions.resolve_call(connection, call["id"], said.attempt, status, why, bound):
        return Outcome("late", CALL_LATE)
    about = f"your call of `{call['tool_name']}` ({call['id']})"
    await tell_butler(connection, call["origin_butler"], call["id"], f"The owner {told.format(about=about)}")
    await tell(connection, "released")
    await tell(connection, "cards")
    return Outcome("resolved", done)
