"""Stage 5, admit: the notification, and its question if it is parked, in the one transaction of stages 2 to 5.

The same key again gets the current answer. The early answer given here is a courtesy to the caller; the Messenger
decides again at its marker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from shared import answers
from shared.contracts import NotifyEnvelope, NotifyResponse
from shared.db.pool import Connection, Database, tell
from shared.gate.accept import NotifyCall
from shared.gate.decide import cooled_down
from shared.gate.evaluate import weigh
from shared.gate.gather import gather
from shared.gate.resolve import action_of, resolve
from shared.idempotency import notification_key
from shared.model import Decision, Finding
from shared.storage import cooldown, notifications, pending_actions
from shared.storage.contacts import MissingIdentifier, Target
from shared.storage.notifications import Current, NewNotification
from shared.storage.pending_actions import Event, Parked


@dataclass(frozen=True, slots=True)
class Admitter:
    """The daemon that admits: its name, its database, how long the owner has to answer, and its source of ids."""

    name: str
    db: Database
    approval_ttl: timedelta
    new_id: Callable[[], str]


async def admit(by: Admitter, call: NotifyCall) -> Current:
    """Admit a call once; return the current answer of the first if the same call comes again.

    Raises InvalidInput, Misconfigured, IdempotencyConflict or Unavailable; then nothing was written.
    """
    async with by.db.work() as connection:
        delivery = call.envelope.delivery
        target = await resolve(connection, call.envelope, call.whom)
        is_owner = isinstance(target, Target) and target.is_owner
        lineage = await _lineage(connection, by, call, to_others=not is_owner)
        new = _new(by, call, lineage)
        facts = await gather(connection, delivery.channel, new.id, target)
        new = replace(new, realm=facts.realm)
        if isinstance(target, MissingIdentifier):
            return await _admit_missing(connection, by, new, target)
        action = action_of(call.envelope, target, facts.realm, by.name)
        _, decision = await weigh(connection, action, facts)
        new = replace(
            new,
            content_sha=action.content_sha,
            contact_id=target.contact_id,
            entry_id=target.entry_id,
            third_party=not target.is_owner,
        )
        current = await _admit_decided(connection, by, new, decision, notifications.lasts(action.intent))
        about = answers.about_thread(action.intent) if action.unproved and decision.verdict != "deny" else None
        nobody = answers.reaches_nobody(delivery.channel) if facts.is_played else None
        return replace(current, note=" ".join(filter(None, [current.note, about, nobody])) or None)


async def _lineage(connection: Connection, by: Admitter, call: NotifyCall, *, to_others: bool) -> str:
    """Return what makes equal calls one: what the caller stated, else its session, else that they come at once.

    A session tells the owner the same words as often as it says them, and anybody else once.
    """
    origin, delivery = call.envelope.origin_butler, call.envelope.delivery
    lineage = call.lineage
    if lineage is None and call.session is not None and to_others:
        lineage = f"session:{call.session}"
    if lineage is None:
        fresh = f"recent:{by.new_id()}"
        lineage = await notifications.recent_lineage(connection, by.name, call.request_sha, fresh)
    if delivery.intent == "react":
        before = await notifications.before_reaction(connection, origin, str(call.whom), delivery.emoji or "")
        lineage = f"{lineage}|after:{before}"
    return lineage


def _new(by: Admitter, call: NotifyCall, lineage: str) -> NewNotification:
    origin, notification_id = call.envelope.origin_butler, by.new_id()
    return NewNotification(
        id=notification_id,
        origin=origin,
        admitted_by=by.name,
        realm="",
        key=notification_key(origin, lineage, call.said_sha),
        lineage=lineage,
        request_sha=call.request_sha,
        envelope=call.envelope,
        whom=str(call.whom),
        third_party=True,
        answer=answers.queued(notification_id),
        session=call.session,
        came=call.came,
    )


async def _admit_missing(
    connection: Connection, by: Admitter, new: NewNotification, missing: MissingIdentifier
) -> Current:
    new = replace(new, contact_id=missing.contact_id)
    until = await cooldown.cools_until(connection, new.origin, new.realm, missing.contact_id)
    if until is not None:
        return await _refuse(connection, by, new, cooled_down(new.origin, until))
    # The contract's answer names only the action; as it has the notification's own id, the caller can ask about it.
    answer = answers.missing(new.id, new.id, new.envelope.delivery.channel)
    asked = replace(new, answer=answer)
    return await _park(connection, by, asked, new.id, why_missing(new.envelope, missing.contact_name))


async def _admit_decided(
    connection: Connection, by: Admitter, new: NewNotification, decision: Decision, lasts: timedelta
) -> Current:
    if decision.verdict == "allow":
        return await notifications.admit(connection, replace(new, lasts=lasts))
    if decision.verdict == "deny":
        return await _refuse(connection, by, new, decision)
    action_id = by.new_id()
    asked = replace(new, answer=answers.waiting(new.id, action_id))
    return await _park(connection, by, asked, action_id, why_asked(new.origin, decision.findings))


async def _refuse(connection: Connection, by: Admitter, new: NewNotification, decision: Decision) -> Current:
    reasons = decision.text
    answer = answers.failed(new.id, "forbidden", reasons)
    current = await notifications.admit(connection, replace(new, answer=answer))
    if current.first:
        happened = "cooled_down" if decision.findings[0].code == "cooled_down" else "denied_by_rule"
        event = Event(happened, by.name, rule_id=decision.rule_id, notification_id=new.id, reason=reasons)
        await pending_actions.record(connection, event)
    return current


async def _park(connection: Connection, by: Admitter, new: NewNotification, action_id: str, summary: str) -> Current:
    """Admit it with its question, unless the same request waits for the owner already."""
    waiting = await notifications.collapse(connection, new)
    if waiting is not None:
        return waiting
    current = await notifications.admit(connection, new)
    if current.first:
        args = {**tool_args(new.envelope, new.whom), **as_called(new.envelope, new.whom, new.came)}
        parked = Parked(action_id, new.id, new.origin, args, new.content_sha, summary, new.session)
        await pending_actions.park(connection, parked, by.approval_ttl, by.name)
        await tell(connection, "cards")
    return current


def why_asked(origin: str, findings: Sequence[Finding]) -> str:
    """Say what the owner reads before deciding: who wants something, and why nothing lets it out unasked."""
    return " ".join([f"{origin} wants to send this.", *(finding.text for finding in findings)])


def why_missing(envelope: NotifyEnvelope, name: str) -> str:
    """Say what the owner reads if there is no identifier to send to: who wants to tell whom by which channel."""
    origin, channel = envelope.origin_butler, envelope.delivery.channel
    wants = f"{origin} wants to tell {name} something by {channel}"
    return f"{wants}, and there is no {channel} identifier on file for {name}."


def tool_args(envelope: NotifyEnvelope, whom: str) -> dict[str, object]:
    """Return what would go out, and by which request, as it is kept with a pending action."""
    kept: dict[str, object] = envelope.delivery.model_dump(exclude_none=True)
    if envelope.request_context is not None:
        kept["request_context"] = dict(envelope.request_context)
    if whom.startswith("contact:"):
        kept["contact_id"] = whom.partition(":")[2]
    return kept


def as_called(envelope: NotifyEnvelope, whom: str, came: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments that came otherwise than they go out, by themselves; nothing if there are none.

    Nothing of what was asked is lost, and no word stands among those that would go out that does not.
    """
    out = tool_args(envelope, whom)
    apart = {name: value for name, value in came.items() if out.get(name) != value}
    return {"as_called": apart} if apart else {}


def answer_of(current: Current, note: str | None = None) -> NotifyResponse:
    """Return the answer for this caller: marked as a repeat, with what the caller should know about it."""
    answer = current.answer
    if not current.first:
        answer = answer.model_copy(update={"duplicate": True})
    notes = [answers.SAME_WORDS if current.same_content else note, current.note]
    said = " ".join(one for one in notes if one)
    return answer.model_copy(update={"note": said}) if said else answer
