"""Bounces: mails that were sent and came back, told to their butler and once to the owner.

A report counts only for the mail and the address that it names and that we sent to. Carrying out one twice changes
nothing.
"""

import re
from typing import Final, Literal

from messenger.inbound.mail.dsn import Bounce
from messenger.storage import queries, transitions
from shared import answers
from shared.db.pool import Connection, Record, tell
from shared.storage import notices, notifications, pending_actions
from shared.storage.pending_actions import Event, Why
from shared.telemetry.metrics import deliveries_total

_OURS: Final = re.compile(r"<n\.([0-9a-f-]{36})@[^<>]+>")


async def came_back(connection: Connection, bounce: Bounce) -> Literal["bounced", "ignored", "early"]:
    """Carry out what a report changes: nothing, unless it names a mail of ours and the address that was sent to.

    Return `early` while nobody knows yet how its sending ended: the report is looked at again then.
    """
    ours = _OURS.fullmatch(bounce.message_id)
    row = await notifications.locked(connection, ours[1]) if ours else None
    delivery = await queries.one(connection, row["id"]) if row is not None else None
    if row is None or delivery is None or not await _is_about(connection, bounce, delivery):
        return "ignored"
    if delivery["status"] == "sending":
        return "early"
    await transitions.taken(connection, delivery["id"], bounce.message_id)
    if not await transitions.bounced(connection, delivery["id"], bounce.status):
        return "ignored"
    answer = answers.bounced(row["id"], bounce.status, bounce.said)
    await notifications.settle(connection, row["id"], answer)
    await notices.add_outcome(connection, row["id"], "bounced", "came back: it did not arrive.", always=True)
    # What the far end wrote stands in the answer, which is wiped some day; the audit stays.
    why, result = Why("messenger", f"Bounced: {bounce.status}"), {"status": answer.status}
    await pending_actions.move(connection, row["id"], ["uncertain"], "failed", why, result)
    await pending_actions.record(
        connection, Event("bounced", "messenger", notification_id=row["id"], reason=bounce.status)
    )
    deliveries_total.labels(channel="email", state="bounced", reason="").inc()
    await tell(connection, "cards")
    return "bounced"


async def _is_about(connection: Connection, bounce: Bounce, delivery: Record) -> bool:
    """Return whether the report names the mail as it was sent, and the recipient it was sent to."""
    if delivery["channel"] != "email" or delivery["address"].lower() not in bounce.recipients:
        return False
    receipts = await queries.receipts(connection, delivery["id"])
    # Without a receipt of the mail server's own the notification's id in the Message-ID is all there is.
    return all(receipt == bounce.message_id for receipt in receipts if receipt.startswith("<"))
