"""Gauges of all deliveries, read from the rows: whichever process made or ended them."""

import asyncio

from butlers.butler import Context
from messenger.storage import queries
from shared.db.pool import Connection
from shared.errors import ButlersError
from shared.loops import pause
from shared.telemetry.logs import logger
from shared.telemetry.metrics import deliveries_by_state, oldest_open_delivery_seconds

log = logger("messenger.maintenance.metrics")


async def run(context: Context, stopping: asyncio.Event) -> None:
    """Read the gauges again and again, until stopping."""
    while not stopping.is_set():
        try:
            async with context.db.work() as connection:
                await read(connection)
        except ButlersError as lost:
            log.warning("no gauges read", why=lost.message)
        await pause(stopping, context.settings.timings.metrics)


async def read(connection: Connection) -> None:
    """Set every gauge, the age first; a state in which nothing is left is shown no more."""
    oldest_open_delivery_seconds.set(await queries.oldest_open(connection))
    rows = await queries.by_state(connection)
    deliveries_by_state.clear()
    for row in rows:
        deliveries_by_state.labels(channel=row["channel"], state=row["status"]).set(row["n"])
