"""Cards that are about no message: what the house itself has to tell the owner."""

from typing import Final

from butlers.butler import Ground
from messenger.cards import channel_paused, restored, strangers
from messenger.storage import queries
from messenger.storage.deliveries import Claimed
from messenger.storage.strangers import NOTICE
from messenger.verdict import Authorized, Blocked
from shared.db.pool import Connection

CHECKS: Final = {
    NOTICE: strangers.check,
    restored.NOTICE: restored.check,
    None: channel_paused.check,
}


async def check_notice(connection: Connection, claimed: Claimed, ground: Ground) -> Authorized | Blocked:
    """Return the wires of such a card as it would be written now, or why it is not needed any more."""
    return await CHECKS[await queries.notice(connection, claimed.id)](connection, claimed, ground)
