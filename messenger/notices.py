"""Cards that are about no message: what the house itself has to tell the owner."""

from butlers.butler import Ground
from messenger import pauses, strangers, views
from messenger.check import Cleared, Stopped
from messenger.store import Claimed
from shared.db import Connection


async def check_notice(connection: Connection, claimed: Claimed, ground: Ground) -> Cleared | Stopped:
    """The wires of such a card as it would be written now, or why it is not needed any more."""
    if await views.notice(connection, claimed.id) == strangers.NOTICE:
        return await strangers.check(connection, claimed, ground)
    return await pauses.check(connection, claimed, ground)
