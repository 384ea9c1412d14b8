"""The card about a message that may or may not have arrived: what is known, and three answers to it.

Of the owner's words on one attempt the first counts. Its buttons bind the delivery, the attempt and the answer.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.base import Wire
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display.approval import measured, whom
from shared.display.owner import Sheet
from shared.display.quotes import written
from shared.display.visible import in_line
from shared.hashing import reference
from shared.model import Decision, Finding
from shared.storage import notifications, resolutions
from shared.storage.resolutions import Resolution, Word

VERBS: Final[dict[str, Word]] = {"ar": "arrived", "ag": "again", "lv": "leave"}
BUTTONS: Final = (("It arrived", "ar"), ("Send again", "ag"), ("Leave it", "lv"))
LATE_RECEIPT: Final = "late_receipt"
ARRIVED: Final = "Sent. The receipt arrived late."
BOTH: Final = "Sent. The receipt arrived late; as you had it sent again, it may have arrived twice."


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as nobody knows what became of this attempt."""
    row = await queries.doubt(connection, str(claimed.about), claimed.revision)
    if row is None or row["status"] != "uncertain" or row["attempt"] != claimed.revision:
        return Blocked("cancelled", (Finding("answered", "Its delivery is no longer unconfirmed."),))
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    wires = await _wires(connection, claimed, row, context)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


async def _wires(connection: Connection, claimed: Claimed, row: Record, context: Context) -> tuple[Wire, ...]:
    shown = words(row)
    if not CHANNELS[claimed.channel].has_buttons:
        subject = f"Delivery unconfirmed (ref {reference(row['id'])})"
        where = base.link(context, "deliveries", row["id"])
        return await base.mailed(connection, claimed, subject, shown, "Say what became of it", where)
    return base.with_keyboard(await base.told(connection, claimed, "", shown), buttons(context.secret, row))


def words(row: Record) -> Sheet:
    """Return what is known, and the whole text: every word of others is shown as data."""
    delivery = notifications.envelope_of(row).delivery
    to = whom(delivery.channel, row["name"] or "", row["address"])
    lines = [
        f"Delivery unconfirmed (ref {reference(row['id'])}): this message may or may not have arrived.",
        f"From {in_line(row['origin_butler'])} to {to} {CHANNELS[delivery.channel].via}",
        resolutions.evidence(row),
        "It is not sent again unless you choose to.",
    ]
    words = written(delivery.subject, delivery.emoji, delivery.message)
    return Sheet("\n".join(lines), words, f"To {to}: {measured(delivery.message)}")


def outcome(row: Record) -> str:
    """Return what became of the attempt that was asked about, once more is known or was said."""
    if row["outcome"] not in {"sent", LATE_RECEIPT}:
        return resolutions.DONE.get(row["said"] or "", "Its delivery is no longer unconfirmed.")
    return BOTH if row["said"] == "again" and row["outcome"] == LATE_RECEIPT else ARRIVED


def buttons(secret: bytes, row: Record) -> list[list[Button]]:
    """Return the buttons of the three answers."""
    made = [Button(name, base.packed(row["id"], verb, tag(secret, *_bound_try(row, verb)))) for name, verb in BUTTONS]
    return [made[:2], made[2:]]


def _bound_try(row: Record, verb: str) -> tuple[str, ...]:
    return "uncertain", row["id"], str(row["attempt"]), verb


def genuine(secret: bytes, row: Record, press: Press) -> bool:
    """Return whether this button was made for this delivery as it stands after its latest attempt."""
    return tag_matches(secret, press.tag, *_bound_try(row, press.verb))


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Carry out the owner's word on what may have arrived; its card shows the outcome as soon as that is committed."""
    row = await queries.doubt(connection, press.about)
    if row is None or not genuine(context.secret, row, press):
        return base.STALE, base.NOT_VALID
    word, realm = VERBS[press.verb], realms.realm_of(context.settings, "telegram")
    given = Resolution(row["id"], row["attempt"], word, presser.contact_id, "telegram")
    found = await presser.resolve(connection, given, realm, context)
    if found is None:
        return base.NOT_HERE, realms.NOT_HERE
    await cards.adopt(connection, KIND.name, row["id"], row["attempt"], presser.message_id)
    return f"{word}_{found}", resolutions.said(word, found)


async def _outcome(connection: Connection, card: Record) -> str:
    row = await queries.doubt(connection, card["about"], card["revision"])
    return outcome(row) if row is not None else ""


KIND: Final = CardKind(
    "uncertain", authorize, cards.ask_uncertain, VERBS, pressed, over=queries.doubts_over, outcome=_outcome
)
