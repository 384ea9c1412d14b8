"""The new beginning of what ended unsent, because its butler asks for the same thing again.

Two endings can be followed by another try: every attempt is proved not sent, or time ran out. It is decided afresh, as
of now; an earlier yes counts no more. What was denied, refused, withdrawn or is uncertain stays so.
"""

from dataclasses import replace
from typing import Literal

from butlers.butler import Context
from messenger.delivery import stop
from messenger.storage import queries, transitions
from messenger.verdict import NO_IDENTIFIER, Blocked
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import Connection, Record, tell
from shared.errors import InvalidInput, Misconfigured
from shared.gate.evaluate import Evaluation, afresh, evaluate, weigh
from shared.model import Decision
from shared.storage import cooldown, deliveries, notifications, pending_actions, withdrawals
from shared.storage.contacts import MissingIdentifier
from shared.storage.pending_actions import Event


async def reopen(connection: Connection, row: Record, context: Context) -> bool:
    """Begin it anew, allowed or parked, and return whether that was done; the caller holds the notification's row.

    INVARIANT: what another than its butler admitted does not begin anew by a call: nothing would bound that.
    """
    ended = await _ended(connection, row)
    if ended is None or row["admitted_by"] != row["origin_butler"] or await _cools(connection, row):
        return False
    said = "The Switchboard brought the same call again."
    return await begin_anew(connection, row["id"], context, said, once=ended == "expired")


async def begin_anew(
    connection: Connection, notification_id: str, context: Context, said: str, *, once: bool = False
) -> bool:
    """Begin anew, by this word, what ended unsent, decided afresh; return whether that was done.

    What may begin anew but `once` does not where it has. The caller holds the notification's row.
    """
    try:
        judged = await evaluate(connection, notification_id, lock=True)
        row = await notifications.locked(connection, notification_id)
    except (InvalidInput, Misconfigured):
        return False
    decision = _decided(judged)
    if row is None or row["wiped"] or decision.verdict == "deny":
        return False
    # The marker would end it, and say nothing.
    if await withdrawals.is_wanted(connection, notification_id, row["origin_butler"]):
        return False
    # Its one time is used up only where nothing else is in the way.
    if once and not await notifications.expired_again(connection, notification_id):
        return False
    await transitions.ask_again(connection, notification_id)
    if decision.verdict == "allow" and isinstance(judged, Evaluation):
        lasts = notifications.lasts(judged.action.intent)
        await notifications.release(connection, notification_id, answers.queued(notification_id), lasts)
    else:
        sha = judged.action.content_sha if isinstance(judged, Evaluation) else None
        missing = isinstance(judged, MissingIdentifier)
        await stop.park(connection, Blocked("parked", decision.findings, row, sha, missing=missing), row, context)
        await tell(connection, "cards")
    event = Event("reopened", context.name, None, decision.rule_id, notification_id, said)
    await pending_actions.record(connection, event)
    return True


async def _ended(connection: Connection, row: Record) -> Literal["failed", "expired"] | None:
    """Return in which of the two ways it ended unsent; None if in neither."""
    notification_id, answer = row["id"], NotifyResponse.model_validate(row["answer"])
    if row["status"] != "error" or not answers.may_reopen(answer):
        return None
    if await deliveries.begun(connection, notification_id):
        return None
    delivery = await queries.one(connection, notification_id)
    if delivery is not None and delivery["status"] == "failed":
        return "failed"
    late = delivery is not None and delivery["status"] in {"expired", "dead"}
    return "expired" if late or await pending_actions.last_of(connection, notification_id) == "expired" else None


async def _cools(connection: Connection, row: Record) -> bool:
    """Return whether the owner would be asked, and has said no to this butler there too often for that."""
    try:
        judged = await evaluate(connection, row["id"], lock=True)
    except (InvalidInput, Misconfigured):
        return False
    if isinstance(judged, MissingIdentifier):
        butler, realm = row["origin_butler"], row["realm"]
        return await cooldown.cools_until(connection, butler, realm, judged.contact_id) is not None
    facts, _ = await weigh(connection, judged.action, replace(judged.facts, in_time=True, approval=None))
    return facts.cools_until is not None


def _decided(judged: Evaluation | MissingIdentifier) -> Decision:
    if isinstance(judged, MissingIdentifier):
        return Decision("park", (NO_IDENTIFIER,))
    # Whether the owner is asked too often was settled before, and the owner's own word is no question.
    return afresh(judged)
