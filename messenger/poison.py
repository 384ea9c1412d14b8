"""Poison messages: what cannot be rendered, by reason of its own row or of a mistake of ours, stops no other message.

A row that says nothing we can carry out ends at once, with an answer and one line in the audit. What broke by a mistake
is tried again with growing backoff, so that it does not stand before the others of its address.
"""

from typing import Final

from messenger.storage.deliveries import Claimed
from messenger.verdict import Blocked
from shared import answers
from shared.contracts import NotifyEnvelope, same_envelope, wire
from shared.db.pool import Connection, Record
from shared.errors import ButlersError
from shared.model import Finding
from shared.storage import deliveries, notices, notifications, pending_actions
from shared.storage.pending_actions import Event, Why

SAID: Final = "The stored message cannot be read."
CODE: Final = "cannot_be_rendered"
OVER: Final = frozenset({"ok", "error", "uncertain"})


async def end(connection: Connection, notification_id: str, said: str) -> None:
    """End a message that waits, with its question, in the caller's transaction; what has ended stays as it is."""
    row = await notifications.locked(connection, notification_id)
    if row is None:
        return
    begun = await deliveries.begun(connection, notification_id)
    waits, said = row["status"] not in OVER, f"{said} {answers.EARLIER if begun else 'Not sent.'}"
    if waits:
        answer = answers.failed(notification_id, "validation_error", said)
        await notices.settle_and_tell(connection, notification_id, answer)
    open_states = ["pending", "approved", "executing"]
    moved = await pending_actions.move(connection, notification_id, open_states, "cancelled", Why("messenger", said))
    if waits and moved is None:
        event = Event("refused", "messenger", notification_id=notification_id, reason=said)
        await pending_actions.record(connection, event)


async def not_rendered(connection: Connection, claimed: Claimed, unfit: ButlersError) -> Blocked:
    """Return the end of a delivery that cannot be rendered; end also the question that a card cannot show."""
    action = await pending_actions.open_action(connection, claimed.action_id) if claimed.action_id else None
    if action is not None:
        await end(connection, action["notification_id"], unfit.message)
    return Blocked("refused", (Finding(CODE, unfit.message),))


async def end_if_it_cannot_travel(connection: Connection, notification_id: object) -> None:
    """End a notification that is allowed, but that nobody can bring to the Messenger."""
    row = await notifications.locked(connection, notification_id) if isinstance(notification_id, str) else None
    if row is not None and row["status"] == "queued" and not travels(row):
        await end(connection, row["id"], SAID)


def travels(row: Record) -> bool:
    """Return whether the envelope that the Switchboard reads out of this row is what lies in it.

    An envelope that is not canonical is changed by reading.
    """
    try:
        envelope = NotifyEnvelope.model_validate(row["envelope"])
        return same_envelope(wire(envelope), row["envelope"])
    except (ValueError, RecursionError):
        return False
