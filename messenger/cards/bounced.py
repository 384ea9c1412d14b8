"""The card about a mail that came back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.db.pool import Connection, Record
from shared.display import approval
from shared.display.owner import Sheet
from shared.display.quotes import Quote, written
from shared.display.visible import in_line
from shared.hashing import reference
from shared.model import Decision, Finding
from shared.storage import notifications


def words(row: Record, answer: Mapping[str, object]) -> tuple[str, Sheet]:
    """Return title and text of what the owner is told: every word of others is shown as data."""
    delivery, error = notifications.envelope_of(row).delivery, answer.get("error")
    whom = "you" if row["class"] == "owner" else in_line(row["name"] or row["address"])
    title = f"{approval.titled(row['origin_butler'])}'s e-mail to {whom} bounced (ref {reference(row['id'])})."
    lines = [title, f"To: {approval.whom(delivery.channel, row['name'] or '', row['address'])}"]
    lines.append("It was not delivered and will not be sent again.")
    report = str(error.get("message")) if isinstance(error, Mapping) else f"Bounced: {row['reason']}"
    words = written(delivery.subject, None, delivery.message)
    return title, Sheet("\n".join(lines), (Quote(report, "Report"), *words))


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the wires of the notice to the owner about what came back."""
    row = await queries.doubt(connection, str(claimed.about), claimed.revision)
    if row is None or row["status"] != "bounced":
        return Blocked("cancelled", (Finding("over", "It has not bounced."),))
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    answered = await notifications.one(connection, row["notification_id"])
    title, shown = words(row, answered["answer"] if answered is not None else {})
    where = base.link(context, "deliveries", row["id"])
    subject = f"A message bounced (ref {reference(row['id'])})"
    shown = replace(shown, foot="\n".join([f"See {where}", *base.near(where)]), links=(where,))
    wires = await base.told(connection, claimed, subject, shown)
    return Authorized(wires, Decision("allow", (Finding("bounced", title),)))


KIND: Final = CardKind("bounced", authorize, cards.ask_bounced)
