"""The card about a message that may or may not have arrived: what is known, and three answers to it.

Like every card it is made from rows, goes to the owner alone, and may come twice without harm: of the owner's words on
one attempt the first counts. Its buttons bind the delivery, the attempt and the answer.
"""

from typing import Final

from butlers.butler import Ground
from messenger.cards import approval
from messenger.cards.approval import Press
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels.base import Wire
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display.approval import CHANNEL_NAMES, measured, whom
from shared.display.owner import Sheet
from shared.display.quotes import written
from shared.display.visible import in_line
from shared.hashing import reference
from shared.model import Decision, Finding
from shared.storage import notifications, resolutions
from shared.storage.resolutions import Word

VERBS: Final[dict[str, Word]] = {"ar": "arrived", "ag": "again", "lv": "leave"}
BUTTONS: Final = (("It arrived", "ar"), ("Send again", "ag"), ("Leave it", "lv"))
LATE_RECEIPT: Final = "late_receipt"
ARRIVED: Final = "Its receipt came after all: it arrived."
BOTH: Final = "Its receipt came after all. You had it sent again: both may have arrived."


async def check(connection: Connection, claimed: Claimed, row: Record | None, ground: Ground) -> Authorized | Blocked:
    """Return the card's wires as long as nobody knows what became of this attempt.

    `row` is what the card is about.
    """
    if row is None or row["status"] != "uncertain" or row["attempt"] != claimed.revision:
        return Blocked("cancelled", (Finding("answered", "It is not uncertain any more."),))
    elsewhere = await approval.elsewhere(connection, claimed, row["realm"], ground)
    if elsewhere is not None:
        return elsewhere
    wires = await _wires(connection, claimed, row, ground)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


async def _wires(connection: Connection, claimed: Claimed, row: Record, ground: Ground) -> tuple[Wire, ...]:
    shown = words(row)
    if claimed.channel == "email":
        subject = f"Did it arrive? (ref {reference(row['id'])})"
        return await approval.mailed(
            connection, claimed, subject, shown, approval.link(ground, "deliveries", row["id"])
        )
    return approval.with_keyboard(await approval.told(connection, claimed, "", shown), buttons(ground.secret, row))


def words(row: Record) -> Sheet:
    """Return what is known, and the whole text: every word of others is shown as data."""
    delivery = notifications.envelope_of(row).delivery
    to = whom(row["name"] or "", row["address"])
    lines = [
        f"This may have arrived, and may not (ref {reference(row['id'])}).",
        f"From {in_line(row['origin_butler'])}, by {CHANNEL_NAMES[delivery.channel]}",
        f"To: {to}",
        resolutions.evidence(row),
        "Nobody sends it again unless you say so.",
    ]
    words = written(delivery.subject, delivery.emoji, delivery.message)
    return Sheet("\n".join(lines), words, f"To {to}: {measured(delivery.message)}")


def outcome(row: Record) -> str:
    """Return what became of the attempt that was asked about, once more is known or was said."""
    if row["outcome"] not in {"sent", LATE_RECEIPT}:
        return resolutions.DONE.get(row["said"] or "", "It is not uncertain any more.")
    return BOTH if row["said"] == "again" and row["outcome"] == LATE_RECEIPT else ARRIVED


def buttons(secret: bytes, row: Record) -> list[list[Button]]:
    """Return the buttons of the three answers."""
    made = [Button(name, approval.packed(row["id"], verb, _tag(secret, row, verb))) for name, verb in BUTTONS]
    return [made[:2], made[2:]]


def _tag(secret: bytes, row: Record, verb: str) -> str:
    return tag(secret, "uncertain", row["id"], str(row["attempt"]), verb)


def genuine(secret: bytes, row: Record, press: Press) -> bool:
    """Return whether this button was made for this delivery as it stands after its latest attempt."""
    return tag_matches(secret, press.tag, "uncertain", row["id"], str(row["attempt"]), press.verb)
