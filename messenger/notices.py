"""Cards that are about no message: what the house itself has to tell the owner."""

from typing import Final

from butlers.butler import Ground
from messenger import pauses, restoring, strangers, views
from messenger.check import Cleared, Stopped
from messenger.store import Claimed
from shared.db import Connection

CHECKS: Final = {strangers.NOTICE: strangers.check, restoring.NOTICE: restoring.check, None: pauses.check}


async def check_notice(connection: Connection, claimed: Claimed, ground: Ground) -> Cleared | Stopped:
    """The wires of such a card as it would be written now, or why it is not needed any more."""
    return await CHECKS[await views.notice(connection, claimed.id)](connection, claimed, ground)
