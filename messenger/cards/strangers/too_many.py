"""The card about strangers who write more than is kept."""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage.deliveries import Claimed
from messenger.storage.strangers import CARD, MOST_BYTES, MOST_MESSAGES, MOST_SENDERS, counted
from messenger.verdict import Authorized, Blocked
from shared.channels.realms import realm_of
from shared.db.pool import Connection
from shared.display.owner import Sheet
from shared.model import Decision, Finding


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the wires of the notice to the owner that not everything strangers write is kept."""
    row = await counted(connection)
    if row is None:
        return Blocked("cancelled", (Finding("over", "A day has passed."),))
    stopped = await base.elsewhere(connection, claimed, realm_of(context.settings, "telegram"), context)
    if stopped is not None:
        return stopped
    title = "Strangers are writing to your butlers more than can be stored."
    messages, many = row["messages"], row["messages"] != 1
    body = (
        f"{title}\n{messages} message{'s have' if many else ' has'} been dropped since {row['first_at']:%Y-%m-%d %H:%M}"
        " UTC.\n"
        f"Per day, {MOST_MESSAGES} messages or {MOST_BYTES['telegram'] // 1000} kB (by mail "
        f"{MOST_BYTES['email'] // 1000} kB) are stored per stranger, for the first {MOST_SENDERS} "
        "strangers of each channel. Your contacts are not limited: add anyone who should be able to "
        "reach you. By mail, a contact counts as a stranger unless your mail server vouches for the sender.\n"
        "This notice is sent at most once a day for each channel."
    )
    wires = await base.told(connection, claimed, title, Sheet(body))
    return Authorized(wires, Decision("allow", (Finding("strangers", title),)))


KIND: Final = CardKind(CARD, authorize)
