"""A second look at what waits: what its butler has withdrawn, and what was short of an identifier.

The rows alone say what there is to do, so that any Messenger may do it and a lost hint costs one tick. One look finds
all of it, and wakes the loops that have no tick of their own, so that a fleet at rest costs little. Locks are taken in
the order that holds everywhere: notification, delivery, pending action.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from butlers.butler import Context
from messenger import poison
from messenger.cards import updater
from messenger.delivery import restored
from messenger.maintenance import resolver
from messenger.storage import queries, transitions, updates
from shared import answers
from shared.db.pool import Connection, Record, tell
from shared.errors import Unreadable
from shared.gate.admit import tool_args
from shared.gate.decide import OTHER_REALM
from shared.gate.evaluate import Evaluation, afresh, evaluate
from shared.loops import apart, either
from shared.storage import deliveries, notices, notifications, pending_actions, withdrawals
from shared.storage.contacts import UnknownContact
from shared.storage.pending_actions import Event, Revision, Why
from shared.telemetry.logs import logger

log = logger("messenger.maintenance.rechecker")
ENDED: Final = frozenset({"ok", "error", "uncertain"})


async def run(context: Context, stopping: asyncio.Event) -> None:
    """Look again on each hint and each tick, until stopping."""
    wake = context.wakes["cards"]
    while not stopping.is_set():
        ticket = wake.ticket()
        await look_again(context)
        await either(context.settings.sweep_seconds, ticket, stopping)


async def look_again(context: Context) -> None:
    """Find out what there is to do; take the steps that are due, and wake the loops that are.

    A step that breaks does not stop the others.
    """
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "restored": partial(restored.look, context),
        "withdrawn": partial(_withdrawn, context),
        "of_another_account": partial(of_another_account, context),
        "identified": partial(identified, context),
        "carry_out": partial(resolver.carry_out, context),
        "repeat_to_owner": partial(resolver.repeat_to_owner, context),
    }
    due = list[str]()
    with apart(log, "nothing looked at again"):
        async with context.db.work() as connection:
            due = await transitions.to_look_at(connection, context.settings.timings.owner_repeat)
            if await updates.any_unhandled(connection):
                context.wakes["updates"]()
            if await updater.due(connection, context):
                context.wakes["edits"]()
    for name in due:
        with apart(log, "not looked again", step=name):
            await steps[name]()


async def _withdrawn(context: Context) -> None:
    async with context.db.work() as connection:
        done = await withdrawn(connection)
    for notification_id in done:
        context.wakes["settled"](notification_id)


async def withdrawn(connection: Connection) -> list[str]:
    """End what was withdrawn and nobody has begun to send; return the notifications whose wish is answered."""
    done = list[str]()
    for wish in await withdrawals.unanswered(connection):
        found = await _taken_back(connection, wish)
        if found is not None:
            await withdrawals.note_found(connection, wish["notification_id"], wish["origin_butler"], found)
            done.append(str(wish["notification_id"]))
    return done


async def _taken_back(connection: Connection, wish: Record) -> str | None:
    """Carry out a wish to withdraw, and return its answer.

    None while somebody holds the delivery, who asks at the marker.
    """
    notification_id, butler = wish["notification_id"], wish["origin_butler"]
    row = await notifications.locked(connection, notification_id)
    if row is None or row["status"] in ENDED:
        return "settled"
    if await queries.one(connection, notification_id) is not None:
        if await deliveries.begun(connection, notification_id):
            return "being_sent"
        if not await transitions.cancel(connection, notification_id):
            return None
    said = answers.withdrawn(butler)
    await notifications.settle(connection, notification_id, answers.failed(notification_id, "forbidden", said))
    open_states = ["pending", "approved", "executing"]
    if await pending_actions.move(connection, notification_id, open_states, "cancelled", Why(butler, said)) is None:
        event = Event("withdrawn", butler, notification_id=notification_id, reason=said)
        await pending_actions.record(connection, event)
    return "cancelled"


async def of_another_account(context: Context) -> int:
    """End what waits for a yes that nothing could follow, and tell its butler, which may ask again; return how many."""
    async with context.db.work() as connection:
        found = await transitions.of_another_account(connection)
    for notification_id in found:
        with apart(log, "not ended", notification=notification_id):
            async with context.db.work() as connection:
                await _given_up(connection, notification_id)
    return len(found)


async def _given_up(connection: Connection, notification_id: str) -> None:
    row = await notifications.locked(connection, notification_id)
    if row is not None and row["status"] in answers.ASKED:
        begun = await deliveries.begun(connection, notification_id)
        why = f"{OTHER_REALM} {answers.EARLIER}" if begun else f"Not sent. {OTHER_REALM}"
        await notifications.settle(connection, notification_id, answers.failed(notification_id, "forbidden", why))
        await _ended(connection, notification_id, why)
        said = f"has ended. {why}" if begun else f"was not sent. {OTHER_REALM} Ask again if it is still wanted."
        await notices.add_outcome(connection, notification_id, "cancelled", said, always=True, wakes=True)


async def identified(context: Context) -> int:
    """Ask, or let go by a standing rule, what was short of an identifier that is there now; return how many."""
    async with context.db.work() as connection:
        found = await transitions.identified(connection)
    for notification_id in found:
        with apart(log, "the identifier cannot be used", notification=notification_id):
            async with context.db.work() as connection:
                try:
                    await _released(connection, notification_id, context)
                except (Unreadable, UnknownContact) as unfit:
                    await poison.end(connection, notification_id, unfit.message)
    return len(found)


async def _released(connection: Connection, notification_id: str, context: Context) -> None:
    """Make the question an ordinary one, with an address, or end it; nothing leaves that nothing allows."""
    judged = await evaluate(connection, notification_id, lock=True)
    action = await pending_actions.open_of(connection, notification_id)
    if not isinstance(judged, Evaluation) or action is None or action["status"] != "pending":
        return
    if judged.row["status"] != "pending_missing_identifier":
        return
    judged = replace(judged, decision=afresh(judged))
    if judged.decision.verdict == "allow":
        await _let_go(connection, judged, action)
    elif judged.decision.verdict == "deny":
        answer = answers.failed(notification_id, "forbidden", judged.decision.text)
        await notices.settle_and_tell(connection, notification_id, answer)
        await _ended(connection, notification_id, judged.decision.text, judged.decision.rule_id)
    else:
        await _asked(connection, judged, action, context)


async def _asked(connection: Connection, judged: Evaluation, action: Record, context: Context) -> None:
    envelope, target, notification_id = judged.envelope, judged.target, judged.row["id"]
    said = f"{envelope.origin_butler} wants to send this to {target.contact_name}. {judged.decision.text}"
    kept = tool_args(envelope, judged.row["whom"])
    sha, ttl = judged.action.content_sha, context.settings.approval_ttl
    # The owner's own word may have asked anew before: one card with this address is enough.
    found = await pending_actions.open_action(connection, action["id"])
    if found is None or found["content_sha"] != sha:
        anew = Revision(action["id"], action["revision"], sha, kept, ttl, said, "identifier_added")
        await pending_actions.revise(connection, anew, Why("messenger", said))
    await notifications.settle(connection, notification_id, answers.waiting(notification_id, action["id"]))
    await tell(connection, "cards")


async def _let_go(connection: Connection, judged: Evaluation, action: Record) -> None:
    notification_id, why = judged.row["id"], Why("messenger", judged.decision.text, judged.decision.rule_id)
    if not await pending_actions.let_go(connection, action["id"], action["revision"], why):
        return
    lasts = notifications.lasts(judged.envelope.delivery.intent)
    await notifications.release(connection, notification_id, answers.queued(notification_id), lasts)
    await tell(connection, "released")


async def _ended(connection: Connection, notification_id: str, why: str, rule_id: str | None = None) -> None:
    await pending_actions.move(connection, notification_id, ["pending"], "cancelled", Why("messenger", why, rule_id))
    await tell(connection, "cards")
