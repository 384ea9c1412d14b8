"""The owner's word on a pending action, whichever surface it comes from.

One decision however many press: the first commit wins, the others are told. Whoever says yes is bound to
the bytes rendered in this very transaction; if they are not what the card showed, the card asks anew.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from butlers.gate import tool_args
from butlers.judge import Judged, look
from shared import answers, approvals, notifications
from shared.approvals import Event, Revision, Verdict
from shared.db import Connection, Record, tell
from shared.errors import InvalidInput, Misconfigured
from shared.render import shas


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the owner's word, as a code and as a sentence for the owner."""

    code: Literal["approved", "denied", "late", "changed", "impossible"]
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """Who says what to which action, and by which surface."""

    action_id: str
    approve: bool
    by: str
    surface: str
    # How long the owner has to answer if it must be asked anew.
    lasts: timedelta
    reason: str | None = None
    # Which revision the surface showed, if it cannot prove that by a button's tag.
    revision: int | None = None


async def decide(connection: Connection, word: Word) -> Outcome:
    """Carry the word out in the caller's transaction."""
    action = await approvals.open_action(connection, word.action_id)
    if action is None:
        return Outcome("impossible", "There is no such question.")
    if action["status"] != "pending":
        return _late(action)
    if word.revision not in {None, action["revision"]}:
        return Outcome("changed", "It has changed since it was shown.")
    return await (_approve if word.approve else _deny)(connection, word, action)


async def _approve(connection: Connection, word: Word, action: Record) -> Outcome:
    try:
        judged = await look(connection, action["notification_id"], lock=True)
    except (InvalidInput, Misconfigured) as gone:
        return Outcome("impossible", gone.message)
    if not isinstance(judged, Judged) or not judged.target.deliverable:
        return Outcome("impossible", "There is no address it could go to.")
    if judged.action.content_sha != action["content_sha"]:
        return await _ask_again(connection, word, action, judged)
    try:
        wires = tuple(shas(judged.wires()))
    except InvalidInput as unfit:
        return Outcome("impossible", f"It cannot be sent: {unfit.message}")
    verdict = Verdict(word.action_id, action["revision"], "approved", word.by, word.reason, wires)
    notification_id = await approvals.decide(connection, verdict)
    if notification_id is None:
        return await _too_late(connection, word)
    queued = answers.queued(notification_id)
    await notifications.release(connection, notification_id, queued, notifications.SEND_WITHIN)
    await _record(connection, "approved", word, notification_id)
    await tell(connection, "released")
    await tell(connection, "cards")
    return Outcome("approved", "Approved. It goes out now.")


async def _deny(connection: Connection, word: Word, action: Record) -> Outcome:
    await notifications.locked(connection, action["notification_id"])
    verdict = Verdict(word.action_id, action["revision"], "denied", word.by, word.reason)
    notification_id = await approvals.decide(connection, verdict)
    if notification_id is None:
        return await _too_late(connection, word)
    said = "The owner said no." + (f" Reason: {word.reason}" if word.reason else "")
    answer = answers.failed(notification_id, "forbidden", said)
    await notifications.settle(connection, notification_id, answer)
    await _record(connection, "denied", word, notification_id)
    await tell(connection, "cards")
    return Outcome("denied", "Denied. Nothing was sent.")


async def _ask_again(connection: Connection, word: Word, action: Record, judged: Judged) -> Outcome:
    """What would go out is not what the card showed: no yes can be taken for it."""
    kept = tool_args(judged.envelope, judged.row["whom"])
    sha = judged.action.content_sha
    await approvals.revise(connection, Revision(word.action_id, action["revision"], sha, kept, word.lasts))
    await _record(connection, "revised", word, action["notification_id"])
    await tell(connection, "cards")
    return Outcome("changed", "It has changed since it was shown. A new card follows.")


async def _too_late(connection: Connection, word: Word) -> Outcome:
    again = await approvals.open_action(connection, word.action_id)
    return _late(again) if again is not None else Outcome("impossible", "There is no such question.")


def _late(action: Record) -> Outcome:
    status = "expired" if action["status"] == "pending" else action["status"]
    return Outcome("late", f"It was {status} before.")


async def _record(connection: Connection, event: str, word: Word, notification_id: str) -> None:
    line = Event(event, "owner", word.action_id, None, notification_id, word.reason)
    await approvals.record(connection, line, surface=word.surface, contact=word.by)
