"""The carrying out of the owner's word on what may have arrived, and the one repeat by machine: to the owner.

Whichever surface a word comes from, it is a row first. Of the words on one attempt the first finds it uncertain and
counts; a word on an earlier attempt changes nothing. Lock order: notification, delivery, part, pending action.
"""

from typing import Final

from butlers.butler import Context
from messenger.maintenance import reopener
from messenger.storage import queries, transitions
from shared import answers
from shared.channels import realms
from shared.contracts import NotifyResponse
from shared.db.pool import Connection, Record, tell
from shared.loops import apart
from shared.storage import deliveries, notifications, pending_actions, resolutions
from shared.storage.notifications import SEND_WITHIN
from shared.storage.pending_actions import Event, Why
from shared.storage.resolutions import Outcome, Resolution
from shared.telemetry.logs import logger

log = logger("messenger.maintenance.resolver")
CONFIRMED: Final = "confirmed by the owner"


async def carry_out(context: Context) -> int:
    """Carry out what the owner said on the console and the command line, word by word; return how many."""
    async with context.db.work() as connection:
        words = await resolutions.waiting(connection)
    for word in words:
        with apart(log, "a word was not carried out", word=word["id"]):
            async with context.db.work() as connection:
                await take(connection, word, context)
    if words:
        context.wakes["deliveries"]()
        context.wakes["released"]()
    return len(words)


async def heed_press(connection: Connection, given: Resolution, realm: str, context: Context) -> Outcome | None:
    """Carry out a word given here and now, by a press; return None where that realm may say nothing of it."""
    row = await queries.doubt(connection, given.delivery_id)
    if row is None or not realms.may_decide(given.surface, realm, row["realm"]):
        return None
    resolution_id = await resolutions.ask(connection, given)
    word = await resolutions.one(connection, resolution_id)
    return await take(connection, word, context)


async def take(connection: Connection, word: Record, context: Context) -> Outcome:
    """Carry one word out in the caller's transaction, note what came of it, and return that."""
    done = await _carry_out(connection, word, context)
    outcome: Outcome = "done" if done else "late"
    await resolutions.handled(connection, word["id"], outcome)
    await tell(connection, "cards")
    return outcome


async def _carry_out(connection: Connection, word: Record, context: Context) -> bool:
    delivery = await queries.doubt(connection, word["delivery_id"])
    if delivery is None:
        return False
    row = await notifications.locked(connection, delivery["notification_id"])
    if row is None or not await _WAYS[word["word"]](connection, word, row, context):
        return False
    event = Event(f"owner_said_{word['word']}", "owner", notification_id=row["id"])
    await pending_actions.record(
        connection, event, surface=word["surface"], contact=word["by"], attempt=word["attempt"]
    )
    return True


async def _arrived(connection: Connection, word: Record, row: Record, _context: Context) -> bool:
    """Count it as sent, with the owner's word for a receipt; parts that nobody has tried follow."""
    found = await transitions.arrived(connection, word["delivery_id"], word["attempt"], CONFIRMED, SEND_WITHIN)
    if found is None:
        return False
    if found == "queued":
        return await _on_its_way(connection, word, row)
    answer = await _arrived_answer(connection, word, row)
    await notifications.settle(connection, row["id"], answer)
    await pending_actions.move(connection, row["id"], ["uncertain"], "executed", _why(word), {"status": answer.status})
    return True


async def _arrived_answer(connection: Connection, word: Record, row: Record) -> NotifyResponse:
    parts = await queries.receipts(connection, word["delivery_id"])
    channel, receipt = row["envelope"]["delivery"]["channel"], parts[0] if parts else CONFIRMED
    delivered = answers.delivered(channel, receipt, len(parts), row["realm"])
    return answers.sent(row["id"], delivered, answers.BY_OWNER)


async def _again(connection: Connection, word: Record, row: Record, _context: Context) -> bool:
    """Queue it for one more attempt under the owner's word; the marker asks again whether it may leave."""
    if not await transitions.again(connection, word["delivery_id"], word["attempt"], SEND_WITHIN):
        return False
    return await _on_its_way(connection, word, row)


async def _on_its_way(connection: Connection, word: Record, row: Record) -> bool:
    await notifications.release(connection, row["id"], answers.queued(row["id"]), SEND_WITHIN)
    await pending_actions.move(connection, row["id"], ["uncertain"], "executing", _why(word))
    return True


async def _leave(connection: Connection, word: Record, row: Record, _context: Context) -> bool:
    """Leave it as it is: nobody will know whether it arrived, and nobody sends it again."""
    if not await transitions.leave(connection, word["delivery_id"], word["attempt"]):
        return False
    answer = answers.uncertain(row["id"], "internal_error", answers.LEFT)
    await notifications.settle(connection, row["id"], answer)
    return True


async def _retry(connection: Connection, word: Record, row: Record, context: Context) -> bool:
    """Begin anew what did not go, and of which nothing can have left: decided afresh, under the same key."""
    delivery = await queries.one(connection, row["id"])
    if delivery is None or delivery["status"] not in resolutions.UNSENT or delivery["attempt"] != word["attempt"]:
        return False
    if row["status"] != "error" or await deliveries.begun(connection, row["id"]):
        return False
    return await reopener.begin_anew(connection, row["id"], context, "The owner wants it tried again.")


_WAYS: Final = {"arrived": _arrived, "again": _again, "leave": _leave, "retry": _retry}


def _why(word: Record) -> Why:
    said = resolutions.DONE[word["word"]]
    return Why("owner", said, surface=word["surface"], contact=word["by"])


async def repeat_to_owner(context: Context) -> int:
    """Send once more what went to the owner and nobody answered for; return how many.

    It is marked as a possible repeat.
    """
    async with context.db.work() as connection:
        due = await queries.to_repeat(connection, context.settings.timings.owner_repeat)
    for row in due:
        with apart(log, "not repeated to the owner", delivery=row["id"]):
            await _repeat(context, row)
    if due:
        context.wakes["deliveries"]()
    return len(due)


async def _repeat(context: Context, row: Record) -> None:
    async with context.db.work() as connection:
        await notifications.locked(connection, row["notification_id"])
        if await transitions.again(connection, row["id"], row["attempt"], None):
            event = Event("possible_repeat", "messenger", notification_id=row["notification_id"])
            await pending_actions.record(connection, event)
