"""The watchdog: no butler's login holds up others for long, whatever times it sets for itself."""

import asyncio

from butlers.butler import Context
from messenger.storage import watchdog
from shared.errors import ButlersError
from shared.loops import pause
from shared.telemetry.logs import logger

log = logger("messenger.maintenance.watchdog")


async def run(context: Context, stopping: asyncio.Event) -> None:
    """Look again and again until stopping; where the database does not let us, say so once and rest."""
    while not stopping.is_set():
        try:
            may = await look(context)
        except ButlersError as lost:
            log.warning("long transactions were not looked for", why=lost.message)
        else:
            if not may:
                log.info("long transactions of butlers are not ended: no superuser ran `butlers migrate`")
                await stopping.wait()
        await pause(stopping, context.settings.timings.unhurried)


async def look(context: Context) -> bool:
    """End what butlers' logins have held for too long, and name them; return whether we may."""
    longest = context.settings.timings.longest_transaction
    async with context.db.work() as connection:
        ended = await watchdog.end_transactions(connection, longest)
    for login in ended or ():
        log.warning("ended a transaction that lasted too long", login=login, seconds=longest.total_seconds())
    return ended is not None
