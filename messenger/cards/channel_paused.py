"""The card about a channel that has paused itself."""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage import breakers
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import CHANNELS, realms
from shared.db.pool import Connection, Record
from shared.display.owner import Sheet
from shared.display.quotes import Quote
from shared.model import Decision, Finding


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the wires of the notice about the other channel's pause, as long as the pause stands."""
    found = [row for row in await breakers.paused(connection) if row["channel"] != claimed.channel]
    if not found:
        await breakers.told_nothing(connection, claimed.channel)
        return Blocked("cancelled", (Finding("pause_over", "The channel works again."),))
    about = realms.realm_of(context.settings, found[0]["channel"])
    stopped = await base.elsewhere(connection, claimed, about, context)
    if stopped is not None:
        return stopped
    title, shown = words(found[0])
    wires = await base.told(connection, claimed, title, shown)
    return Authorized(wires, Decision("allow", (Finding("channel_paused", title),)))


def words(row: Record) -> tuple[str, Sheet]:
    """Return title and text of what the owner is told."""
    title, remedy = CHANNELS[row["channel"]].paused(row["reason"])
    since = f"{row['since']:%Y-%m-%d %H:%M} UTC"
    waiting = f"{row['waiting']} message{'' if row['waiting'] == 1 else 's'} waiting"
    lines = [title, remedy, f"Nothing has been sent this way since {since}: {waiting}, nothing is lost."]
    return title, Sheet("\n".join(lines), (Quote(row["detail"], "Reason given"),) if row["detail"] else ())


def sentences(rows: list[Record]) -> dict[str, str]:
    """Return a sentence about each paused channel, by the channel's name."""
    return {row["channel"]: f"{words(row)[0]} Paused since {row['since']:%H:%M:%S} UTC." for row in rows}


KIND: Final = CardKind("channel_paused", authorize)
