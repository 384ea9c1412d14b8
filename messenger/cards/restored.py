"""The card about a backup that was put back."""

from datetime import datetime
from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels.realms import SANDBOX
from shared.db.pool import Connection
from shared.display.owner import Sheet
from shared.model import Decision, Finding
from shared.storage import brakes


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the wires of the notice about the backup, as long as the brake stands; it holds nobody's words."""
    restored = await brakes.restored_at(connection)
    if restored is None:
        return Blocked("cancelled", (Finding("over", "The owner has lifted the brake."),))
    stopped = await base.elsewhere(connection, claimed, SANDBOX, context)
    if stopped is not None:
        return stopped
    title, body = words(restored)
    wires = await base.told(connection, claimed, title, Sheet(body))
    return Authorized(wires, Decision("allow", (Finding("restored", title),)))


def words(at: datetime) -> tuple[str, str]:
    """Return title and text of what the owner is told."""
    title = "Butlers is running on a restored backup."
    text = (
        f"Noticed {at:%Y-%m-%d %H:%M} UTC. Anything that happened after the backup was made is unknown here. Messages "
        "to others that were waiting in it may have been sent since: their delivery is unconfirmed, and none is sent "
        "again unless you choose to.\n"
        "Nothing is sent to anyone but you until you lift the brake. First check rules, brakes, contacts and keys: "
        "changes you made after the backup are undone. Then run `butlers brake off`.\n"
        "For a day after that you are asked about every message, whatever your rules allow, because butlers may ask "
        "again for what was already sent."
    )
    return title, f"{title}\n{text}"


KIND: Final = CardKind("restored", authorize)
