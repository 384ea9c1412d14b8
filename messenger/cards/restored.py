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
        return Blocked("cancelled", (Finding("over", "The owner has looked."),))
    stopped = await base.elsewhere(connection, claimed, SANDBOX, context)
    if stopped is not None:
        return stopped
    title, body = words(restored)
    wires = await base.told(connection, claimed, title, Sheet(body))
    return Authorized(wires, Decision("allow", (Finding("restored", title),)))


def words(at: datetime) -> tuple[str, str]:
    """Return title and text of what the owner is told."""
    title = "This house runs on a backup that was put back."
    text = (
        f"Found at {at:%Y-%m-%d %H:%M} UTC. What was done after the backup was made is not known here. What waited "
        "in it for somebody else may have left since: it is uncertain, and nobody sends it again unless you say so.\n"
        "Nothing leaves for anybody but you until you lift the brake. Look first at your rules, brakes, contacts and "
        "keys: what you changed after the backup is undone. Then say `butlers brake off`.\n"
        "For a day after that you are asked, whatever rules you had, since the same may be asked for again."
    )
    return title, f"{title}\n{text}"


KIND: Final = CardKind("restored", authorize)
