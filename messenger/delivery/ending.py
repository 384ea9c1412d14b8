"""An attempt's end: what it means for others, and writing it down for as long as that takes."""

import asyncio
from datetime import timedelta
from typing import Final

from butlers.butler import Ground
from messenger.channels.base import Receipt, SendFailed
from messenger.delivery import settle
from messenger.delivery.outcome import Next
from messenger.maintenance import circuit_breaker
from messenger.retry import asked_for, until_written
from messenger.storage import rate_limits
from messenger.storage.deliveries import Claimed
from shared.db.pool import Connection
from shared.errors import ButlersError, Unavailable
from shared.telemetry.logs import logger

log = logger("messenger.delivery.ending")
# A database that answers, and refuses it so often, will not take it.
MOST_REFUSALS: Final = 12


async def heed(connection: Connection, claimed: Claimed, result: Receipt | SendFailed) -> None:
    """What the provider said to one is true for others too: its chat waits with it, or the whole channel."""
    if isinstance(result, SendFailed) and result.reason == "rate_limited":
        wait = timedelta(seconds=asked_for(result.retry_after))
        await rate_limits.obey(connection, claimed.channel, claimed.address, wait)
    await circuit_breaker.heed(connection, claimed.channel, result)


async def write_down(ground: Ground, claimed: Claimed, end: tuple[int, Receipt | SendFailed], then: Next) -> bool:
    """Write the end of part n's attempt down, however long the database is away: it is known only here.

    False where the database will not take it.
    """
    n, result = end
    refused, written = 0, False
    try:
        for wait in until_written():
            try:
                async with ground.db.work() as connection:
                    await settle.part_ended(connection, claimed, n, then)
                    await heed(connection, claimed, result)
                written = True
            except ButlersError as lost:
                refused += not isinstance(lost, Unavailable)
                log.warning("outcome not written yet", delivery=claimed.id, why=lost.message)
            if written or refused == MOST_REFUSALS:
                break
            await asyncio.sleep(wait)
    finally:
        if not written:
            log.error("an outcome is given up", delivery=claimed.id, outcome=then.outcome, receipt=then.provider_id)
    ground.wakes["settled"](str(claimed.notification_id))
    return written
