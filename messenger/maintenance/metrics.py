"""Gauges of deliveries, approval requests and brakes, read from the rows: whichever process made or ended them."""

import asyncio

from butlers.butler import Context
from messenger.storage import queries
from shared.db.pool import Connection
from shared.errors import ButlersError
from shared.loops import pause
from shared.storage import brakes
from shared.telemetry.logs import logger
from shared.telemetry.metrics import (
    approvals_waiting,
    brakes_on,
    deliveries_by_state,
    oldest_approval_seconds,
    oldest_open_delivery_seconds,
)

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
    """Set every gauge, the ages too; a state or a butler for which nothing is left is shown no more."""
    oldest_open_delivery_seconds.set(await queries.oldest_open(connection))
    asked, on = await queries.waiting_by_butler(connection), await brakes.standing(connection)
    rows = await queries.by_state(connection)
    deliveries_by_state.clear()
    for row in rows:
        deliveries_by_state.labels(channel=row["channel"], state=row["status"]).set(row["n"])
    approvals_waiting.clear()
    for row in asked:
        approvals_waiting.labels(origin=row["origin_butler"]).set(row["n"])
    oldest_approval_seconds.set(max((row["age"] for row in asked), default=0))
    brakes_on.set(len(on))
