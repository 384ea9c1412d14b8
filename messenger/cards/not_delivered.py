"""The card about a message to somebody else that a rule or the owner let out, and that did not go."""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.display import approval
from shared.display.owner import Sheet
from shared.display.quotes import Quote, written
from shared.display.visible import in_line
from shared.hashing import reference
from shared.model import Decision, Finding
from shared.storage import deliveries, notifications
from shared.storage.resolutions import UNSENT

PARTLY: Final = "Part of it may have arrived, so it is not tried again. See"


def words(row: Record, why: str, where: str, *, begun: bool) -> Sheet:
    """Return what the owner is told: every word of others is shown as data.

    What may have left in part is tried again by nobody, and the card does not offer it.
    """
    delivery = notifications.envelope_of(row).delivery
    channel, name = CHANNELS[delivery.channel], in_line(row["name"] or row["address"])
    butler, ref = in_line(row["origin_butler"]), reference(row["id"])
    lines = [
        f"Not delivered{' in full' if begun else ''}: {butler}'s message to {name} by {channel.label} (ref {ref}).",
        f"To: {approval.whom(delivery.channel, row['name'] or '', row['address'])}",
        *(said.format(name=name) for wrote, said in channel.refusals.items() if wrote in why),
    ]
    shown = written(delivery.subject, delivery.emoji, delivery.message)
    return Sheet(
        "\n".join(lines),
        (Quote(why, "Why"), *shown),
        "\n".join([f"{PARTLY if begun else 'Try it again here:'} {where}", *base.near(where)]),
        (where,),
    )


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as this attempt is the end of the message."""
    row = await queries.doubt(connection, str(claimed.about), claimed.revision)
    if row is None or row["status"] not in UNSENT or row["attempt"] != claimed.revision:
        return Blocked("cancelled", (Finding("over", "It is being sent again, or has arrived."),))
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    answered = await notifications.one(connection, row["notification_id"])
    error = answered["answer"].get("error") if answered is not None else None
    why = str(error["message"]) if error else "Its time to be sent has passed."
    begun = await deliveries.begun(connection, row["notification_id"])
    shown = words(row, why, base.link(context, "deliveries", row["id"]), begun=begun)
    wires = await base.told(connection, claimed, f"Not delivered (ref {reference(row['id'])})", shown)
    return Authorized(wires, Decision("allow", (Finding("not_delivered", "The owner is told of the end."),)))


KIND: Final = CardKind("not_delivered", authorize, cards.ask_not_delivered)
