"""The card about a message that a rule or the owner let out, or that was for the owner, and that did not go."""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import CHANNELS, realms
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
ELSEWHERE: Final = "It was for another account of this channel, so it is not tried again. See"
AGAIN: Final = "Try it again here:"


def words(row: Record, why: str, then: str, where: str) -> Sheet:
    """Return what the owner is told, and may do then: every word of others is shown as data.

    What may have left in part is tried again by nobody, nor what was for another account; the card does not offer it.
    """
    delivery = notifications.envelope_of(row).delivery
    channel, name = CHANNELS[delivery.channel], in_line(row["name"] or row["address"])
    butler, ref = in_line(row["origin_butler"]), reference(row["id"])
    how = "Not delivered in full" if then == PARTLY else "Not delivered"
    lines = [
        f"{how}: {butler}'s message to {name} by {channel.label} (ref {ref}).",
        f"To: {approval.whom(delivery.channel, row['name'] or '', row['address'])}",
        *(said.format(name=name) for wrote, said in channel.refusals.items() if wrote in why),
    ]
    shown = written(delivery.subject, delivery.emoji, delivery.message)
    return Sheet(
        "\n".join(lines),
        (Quote(why, "Why"), *shown),
        "\n".join([f"{then} {where}", *base.near(where)]),
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
    then = AGAIN if row["realm"] == realms.realm_of(context.settings, row["channel"]) else ELSEWHERE
    then = PARTLY if await deliveries.begun(connection, row["notification_id"]) else then
    shown = words(row, why, then, base.link(context, "deliveries", row["id"]))
    wires = await base.told(connection, claimed, f"Not delivered (ref {reference(row['id'])})", shown)
    return Authorized(wires, Decision("allow", (Finding("not_delivered", "The owner is told of the end."),)))


KIND: Final = CardKind("not_delivered", authorize, cards.ask_not_delivered)
