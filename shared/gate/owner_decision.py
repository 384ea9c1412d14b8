"""The owner's word on a pending action, whichever surface it comes from.

There is one decision, however many presses there are: the first commit wins, and the others are told. A yes is bound
to the bytes rendered in this very transaction; if they are not what the card showed, the card asks anew.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pydantic import ValidationError

from shared import answers
from shared.channels import realms
from shared.channels.base import shas
from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection, Record, tell
from shared.display import decided
from shared.display.approval import local
from shared.display.fates import ANSWERED, CALL
from shared.errors import ButlersError, InvalidInput, Misconfigured
from shared.gate.accept import message_of
from shared.gate.admit import tool_args, why_asked
from shared.gate.delays import approved, approved_call
from shared.gate.evaluate import NO_ADDRESS, Evaluation, evaluate
from shared.model import Brake
from shared.storage import audit_bindings, brakes, deliveries, notices, notifications, pending_actions, tool_calls
from shared.storage.notices import Notice
from shared.storage.pending_actions import Revision, Verdict, Why


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the owner's word, as a code and as a sentence for the owner."""

    code: Literal["approved", "denied", "edited", "late", "changed", "impossible", "not_here", "resolved"]
    text: str


@dataclass(frozen=True, slots=True)
class OwnerDecision:
    """The owner's yes or no: who says it, to which action, and by which surface."""

    action_id: str
    approve: bool
    by: str
    surface: str
    # How long the owner has to answer if it must be asked anew.
    lasts: timedelta
    reason: str | None = None
    # Which revision the surface showed, if it cannot prove that by a button's tag.
    revision: int | None = None
    # If the surface is a channel: the realm in which it works.
    realm: str | None = None
    # The hash of the content that the surface showed, if it cannot prove that by a button's tag.
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """The owner's edit: who puts which text in the place of a message, and by which surface."""

    action_id: str
    message: str
    by: str
    surface: str
    # How long the owner has to answer the new question.
    lasts: timedelta
    revision: int | None = None
    realm: str | None = None


async def apply(connection: Connection, word: OwnerDecision) -> Outcome:
    """Carry out the owner's word in the caller's transaction."""
    action = await pending_actions.open_action(connection, word.action_id)
    if action is None:
        return await _apply_to_call(connection, word)
    if not realms.may_decide(word.surface, word.realm, action["realm"]):
        return Outcome("not_here", realms.NOT_HERE)
    if not await _waits(connection, action):
        action = await pending_actions.open_action(connection, word.action_id) or action
        return Outcome("impossible", "There is no such approval request.") if action["open"] else _late(action)
    # The revision that counts is the one read before this waited for the message's lock.
    if action["status"] != "pending":
        return _late(action)
    if word.revision not in {None, action["revision"]}:
        return Outcome("changed", "Changed since it was shown.")
    return await (_approve if word.approve else _deny)(connection, word, action)


async def _apply_to_call(connection: Connection, word: OwnerDecision) -> Outcome:
    """Carry out the owner's word on a tool call.

    INVARIANT: a yes is bound to the call as it lies in its row now, and to nothing that was written beside it.
    """
    call = await tool_calls.one(connection, word.action_id)
    if call is None:
        return Outcome("impossible", "There is no such approval request.")
    if not realms.may_decide(word.surface, word.realm, call["realm"]):
        return Outcome("not_here", realms.NOT_HERE)
    sha = tool_calls.sha_of(call)
    changed = {sha, word.shown or sha} != {call["content_sha"]} or word.revision not in {None, call["revision"]}
    if call["open"] and word.approve and changed:
        return Outcome("impossible", "The stored call was changed after it was asked. Deny it.")
    verdict = Verdict(
        word.action_id,
        call["revision"],
        "approved" if word.approve else "denied",
        word.by,
        word.surface,
        word.reason,
        bound={"content": sha, "tool": call["tool_name"]} if word.approve else {},
    )
    if not call["open"] or not await pending_actions.decide_call(connection, verdict):
        ended = await tool_calls.one(connection, word.action_id) or call
        return Outcome("late", f"Already answered: {_fate(ended, CALL)}")
    about = f"your call of `{call['tool_name']}` ({word.action_id})"
    said = decided.message_decided("approved" if word.approve else "denied", about, None, None, word.reason)
    await tell_butler(connection, call["origin_butler"], word.action_id, said)
    await tell(connection, "released")
    await tell(connection, "cards")
    if not word.approve:
        return Outcome("denied", "Denied.")
    standing = [Brake(on["butler"], on["contact_id"], on["channel"]) for on in await brakes.standing(connection)]
    return Outcome("approved", approved_call(call["origin_butler"], standing))


def _fate(row: Record, words: Mapping[str, str]) -> str:
    status = "expired" if row["status"] == "pending" else row["status"]
    when = f" ({local(row['decided_at'])})" if row["decided_at"] is not None else ""
    return f"{words[status]}{when}."


async def edit(connection: Connection, change: Edit) -> Outcome:
    """Ask anew with the owner's text, in the caller's transaction; nothing leaves by this.

    Raises InvalidInput if the text cannot be sent, or if there is none to change; then nothing was written.
    """
    action = await pending_actions.open_action(connection, change.action_id)
    if action is None:
        return Outcome("impossible", "There is no such approval request.")
    if not realms.may_decide(change.surface, change.realm, action["realm"]):
        return Outcome("not_here", realms.NOT_HERE)
    waits = await _waits(connection, action)
    action = await pending_actions.open_action(connection, change.action_id) or action
    if not action["open"]:
        return Outcome("late", f"{_late(action).text} Nothing was changed.")
    if not waits:
        return Outcome("impossible", "There is no such approval request.")
    if change.revision not in {None, action["revision"]}:
        return Outcome("changed", "Changed since it was shown.")
    if await deliveries.begun(connection, action["notification_id"]):
        raise InvalidInput("Part of it has already been sent.", "Approve or deny it as it is.")
    await notifications.edit(connection, action["notification_id"], _new_text(action, change.message))
    await _ask_anew(connection, action, change)
    row = await notifications.locked(connection, action["notification_id"])
    await _tell_of_message(connection, "changed, and has yet to approve,", row or action, change)
    return Outcome("edited", "Saved. Nothing has been sent yet; you are asked to approve the new text.")


async def _waits(connection: Connection, action: Record) -> bool:
    """Return whether the message waits for the owner, and keep it waiting until this transaction ends.

    INVARIANT: no word on a question moves what arrived, ended or is on its way. Who inserts a question may say what it
    is about, and that was checked when it was inserted.
    """
    row = await notifications.locked(connection, action["notification_id"])
    return row is not None and row["status"] in answers.ASKED


def _new_text(action: Record, message: str) -> str | None:
    """Return the owner's words, or None if they are those that were asked."""
    now = notifications.envelope_of(action).delivery
    asked = NotifyEnvelope.model_validate(action["envelope"]).delivery
    if asked.intent == "react":
        raise InvalidInput("A reaction has no text to edit.", "Approve or deny it.")
    text = message_of({"message": message}, asked.intent)
    if text == now.message:
        raise InvalidInput("The text has not changed.", "Approve it, deny it, or enter a different text.")
    return text if text != asked.message else None


async def _ask_anew(connection: Connection, action: Record, change: Edit) -> None:
    try:
        judged = await evaluate(connection, action["notification_id"], lock=True)
    except Misconfigured as gone:
        raise InvalidInput(gone.message, "Deny it.") from None
    sha = judged.action.content_sha if isinstance(judged, Evaluation) else None
    row = await notifications.locked(connection, action["notification_id"])
    assert row is not None  # noqa: S101  # a notification is never deleted
    kept = tool_args(notifications.envelope_of(row), row["whom"])
    said = why_asked(row["origin_butler"], judged.decision.findings) if isinstance(judged, Evaluation) else None
    anew = Revision(action["id"], action["revision"], sha, kept, change.lasts, said, event="edited")
    why = Why("owner", None, surface=change.surface, contact=change.by)
    if await pending_actions.revise(connection, anew, why) is None:
        raise InvalidInput("It has been decided in the meantime.", "Nothing was changed.")
    await tell(connection, "cards")


async def _approve(connection: Connection, word: OwnerDecision, action: Record) -> Outcome:
    try:
        judged = await evaluate(connection, action["notification_id"], lock=True)
    except (InvalidInput, Misconfigured) as gone:
        return Outcome("impossible", gone.message)
    why = judged.impossible if isinstance(judged, Evaluation) else NO_ADDRESS
    if why is not None or not isinstance(judged, Evaluation):
        return Outcome("impossible", why or NO_ADDRESS)
    if judged.action.content_sha != action["content_sha"] or word.shown not in {None, action["content_sha"]}:
        return await _ask_again(connection, word, action, judged)
    try:
        wires = tuple(shas(judged.wires()))
    except InvalidInput as unfit:
        return Outcome("impossible", f"It cannot be sent: {unfit.message}")
    what = judged.action
    binds = await audit_bindings.of_yes(
        connection, judged.row["id"], what.channel, what.address, what.content_sha, wires
    )
    verdict = Verdict(word.action_id, action["revision"], "approved", word.by, word.surface, word.reason, wires, binds)
    notification_id = await pending_actions.decide(connection, verdict)
    if notification_id is None:
        return await _too_late(connection, word)
    queued = answers.queued(notification_id)
    await notifications.release(connection, notification_id, queued, notifications.SEND_WITHIN)
    await tell(connection, "released")
    await tell(connection, "cards")
    await _tell_of_message(connection, "approved", judged.row, word)
    return Outcome("approved", approved(judged.action, judged.facts))


async def _deny(connection: Connection, word: OwnerDecision, action: Record) -> Outcome:
    verdict = Verdict(word.action_id, action["revision"], "denied", word.by, word.surface, word.reason)
    notification_id = await pending_actions.decide(connection, verdict)
    if notification_id is None:
        return await _too_late(connection, word)
    begun = await deliveries.begun(connection, notification_id)
    said = "Denied by the owner." + (f" Reason: {word.reason}" if word.reason else "")
    said = f"{said} {answers.EARLIER}" if begun else said
    answer = answers.failed(notification_id, "forbidden", said)
    await notifications.settle(connection, notification_id, answer)
    row = await notifications.locked(connection, notification_id)
    await _tell_of_message(connection, "denied", row or action, word)
    await tell(connection, "cards")
    return Outcome("denied", decided.denied(begun=begun))


async def _tell_of_message(connection: Connection, verb: str, row: Record, word: OwnerDecision | Edit) -> None:
    """Tell the message's butler what the owner decided, with the text that counts and what was changed of it.

    What anybody may have said in the sandbox is told nobody as the owner's word while a channel reaches people.
    """
    if await realms.is_played(connection, word.surface):
        return
    what, text, before = f"your message {row['id']}", None, None  # what cannot be read is decided all the same
    with suppress(ButlersError, ValidationError):
        now, asked = notifications.envelope_of(row).delivery, NotifyEnvelope.model_validate(row["envelope"]).delivery
        what, text, before = f"your {now.channel} message {row['id']}", now.message or now.emoji, asked.message
    said = decided.message_decided(verb, what, text, before, getattr(word, "reason", None))
    await tell_butler(connection, row["origin_butler"], word.action_id, said, wakes=isinstance(word, OwnerDecision))


async def tell_butler(connection: Connection, butler: str, about: str, said: str, *, wakes: bool = True) -> None:
    """Tell a butler what the owner decided of what it asked, in the caller's transaction."""
    told = Notice("owner", "decision", said, key=str(about), trust="owner", priority="high", wakes=wakes)
    await notices.add(connection, butler, told)


async def _ask_again(connection: Connection, word: OwnerDecision, action: Record, judged: Evaluation) -> Outcome:
    """Ask anew: what would go out is not what the card showed, so no yes can be taken for it."""
    kept = tool_args(judged.envelope, judged.row["whom"])
    said = why_asked(judged.row["origin_butler"], judged.decision.findings)
    anew = Revision(word.action_id, action["revision"], judged.action.content_sha, kept, word.lasts, said)
    why = Why("owner", "The message had changed.", surface=word.surface, contact=word.by)
    if await pending_actions.revise(connection, anew, why) is None:
        return await _too_late(connection, word)
    await tell(connection, "cards")
    return Outcome("changed", "Changed since it was shown. A new approval request follows.")


async def _too_late(connection: Connection, word: OwnerDecision) -> Outcome:
    again = await pending_actions.open_action(connection, word.action_id)
    if again is None:
        return Outcome("impossible", "There is no such approval request.")
    return Outcome("changed", "Changed since it was shown.") if again["open"] else _late(again)


def _late(action: Record) -> Outcome:
    return Outcome("late", _fate(action, ANSWERED))
