"""What follows when a backup was put back: what waited in it for others may have left since, so the owner looks first.

One transaction: what was queued or approved becomes uncertain, what is asked is asked anew, presses, commands and
words of the owner that nobody had carried out are let go, and the owner is told (`messenger/cards/restored.py`). The
brake that the house puts on comes before all that.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards.restored import KIND
from messenger.storage import cards, deliveries, queries, targets, transitions, updates
from shared import answers
from shared.db.pool import Connection, Record, tell
from shared.errors import Unreadable
from shared.storage import brakes, contacts, notices, notifications, pending_actions, resolutions, tool_calls
from shared.storage.pending_actions import Event, Revision, Why
from shared.telemetry.logs import logger

log = logger("messenger.delivery.restored")
MAY_HAVE_LEFT: Final = Why("messenger", "A backup was restored: it may have been sent since the backup was made.")
MAY_HAVE_RUN: Final = Why("messenger", "A backup was restored: it may have run since the backup was made.")
OPEN: Final = ("pending", "approved", "executing")
ASKED_BEFORE: Final = "A backup was restored: you may have answered this since, and it may have been sent."


async def put_brake_on(connection: Connection, context: Context, **known: object) -> None:
    """Put the brake on and carry out what it means, in the caller's transaction.

    `known` is what gave the backup away; the audit keeps it.
    """
    owner = await contacts.owner(connection)
    await brakes.restored(connection, context.name, owner["id"] if owner else None, **known)
    await carry_out(connection, context)


async def look(context: Context) -> None:
    """Carry out the owner's own word that a backup was put back, if there is one."""
    async with context.db.work() as connection:
        waits = await brakes.unhandled(connection)
    if waits is not None:
        async with context.db.work() as connection:
            await carry_out(connection, context)


async def carry_out(connection: Connection, context: Context) -> None:
    """Carry out what the brake means; do nothing if another process did.

    The brake's row is changed first, which makes every marker wait for the end of this transaction.
    """
    brake = await brakes.unhandled(connection)
    if brake is None or not await brakes.carried_out(connection, brake):
        return
    await updates.let_go_words(connection)
    await resolutions.let_go(connection)
    doubts = [one for one in await queries.queued(connection) if await _may_have_left(connection, one)]
    asked = [one for one in await queries.asked_about_others(connection) if await _ask_anew(connection, one, context)]
    await doubt_calls(connection)
    event = Event("restored_carried_out", context.name)
    await pending_actions.record(connection, event, brake=brake, uncertain=len(doubts), asked_anew=len(asked))
    await cards.tell_of(connection, KIND.name, everywhere=True)
    await tell(connection, "cards")
    log.warning("a backup was put back: nothing leaves for others before the owner has looked", uncertain=len(doubts))


async def doubt_calls(connection: Connection) -> int:
    """Make uncertain the tool calls that a backup brought back, and return how many there were.

    One that its butler holds is left for the next round: no row of a butler's keeps the owner from being told.
    """
    brought_back = await tool_calls.brought_back(connection)
    for call_id in brought_back:
        await pending_actions.move_call(connection, call_id, OPEN, "uncertain", MAY_HAVE_RUN)
    return len(brought_back)


async def _may_have_left(connection: Connection, notification_id: str) -> bool:
    row = await notifications.locked(connection, notification_id)
    if row is None or row["status"] != "queued":
        return False
    if not await transitions.make_uncertain(connection, notification_id):
        try:
            new = await targets.not_yet_brought(connection, row)
        except Unreadable:
            return False  # nor can anybody send it
        if new.kind == "owner":
            return False
        await deliveries.enqueue(connection, new)
        if not await transitions.make_uncertain(connection, notification_id):
            return False
    said = f"{MAY_HAVE_LEFT.reason} Do not send it again."
    await notices.settle_and_tell(
        connection, notification_id, answers.uncertain(notification_id, "internal_error", said)
    )
    await pending_actions.move(connection, notification_id, ["approved", "executing"], "uncertain", MAY_HAVE_LEFT)
    return True


async def _ask_anew(connection: Connection, action: Record, context: Context) -> bool:
    """Ask by a fresh card, since the old one may show an answer by now; no earlier button counts."""
    row = await notifications.locked(connection, action["notification_id"])
    if row is None or row["status"] not in answers.ASKED:
        return False
    summary = f"{action['agent_summary']} {ASKED_BEFORE}"
    ttl = context.settings.approval_ttl
    anew = Revision(action["id"], action["revision"], action["content_sha"], None, ttl, summary)
    return await pending_actions.revise(connection, anew, Why("messenger", ASKED_BEFORE)) is not None
