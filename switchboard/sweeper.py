"""The sweep, which forwards what is allowed and not in delivery: released by a decision, or left behind by a crash."""

import asyncio
from typing import Final

from pydantic import ValidationError

from butlers.butler import Context
from shared.contracts import NotifyEnvelope, RouteEnvelope, RouteResponse, route_request
from shared.loops import apart, either, pause
from shared.storage import notifications
from shared.telemetry.logs import logger
from switchboard.route import Routes, forward
from switchboard.storage import registry

log = logger("switchboard.sweeper")

AT_ONCE: Final = 8
# What is allowed and not in delivery: left behind by a crash after its admission, or released by a decision. Butlers
# take turns, so that what cannot be forwarded of one never holds up what another sends; of each the oldest are looked
# at, however many wait.
RELEASED = """
WITH RECURSIVE b AS (
    SELECT min(origin_butler) AS name FROM shared.notifications WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(origin_butler) FROM shared.notifications WHERE status = 'queued' AND origin_butler > b.name)
    FROM b WHERE b.name IS NOT NULL)
SELECT due.id::text FROM b CROSS JOIN LATERAL (
    SELECT n.id, n.created_at
    FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
    WHERE n.status = 'queued' AND n.origin_butler = b.name AND (d.id IS NULL OR d.status = 'parked')
        AND (n.created_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()
             OR EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id))
    ORDER BY n.created_at LIMIT 100) due
ORDER BY row_number() OVER (PARTITION BY b.name ORDER BY due.created_at), due.created_at LIMIT 100
"""


async def sweep(context: Context) -> int:
    """Forward what is allowed and not in delivery; return how many were taken up."""
    routes = Routes(context.db)
    async with context.db.work() as connection:
        rows = await connection.fetch(RELEASED, context.settings.timings.live_call)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(notification_id: str) -> None:
        async with gate:
            done = False
            with apart(log, "not forwarded", notification=notification_id):
                done = await _sweep_one(context, routes, notification_id)
            if not done:
                with apart(log, "not handed over", notification=notification_id):
                    await _hand_over_unread(context, notification_id)

    await asyncio.gather(*(one(row["id"]) for row in rows))
    await routes.close()
    return len(rows)


async def _sweep_one(context: Context, routes: Routes, notification_id: str) -> bool:
    """Forward one notification; return whether it could be read. Outcome then, the rows say."""
    async with context.db.work() as connection:
        row = await notifications.one(connection, notification_id)
    if row is None:
        return True
    try:
        stored = NotifyEnvelope.model_validate(row["envelope"])
    except ValidationError:
        return False
    envelope = stored.model_copy(update={"notification_id": notification_id})
    raw = route_request(row["envelope"], stored.origin_butler, notification_id)
    await forward(context, routes, RouteEnvelope.model_validate(raw), envelope, wait=False)
    return True


async def _hand_over_unread(context: Context, notification_id: str) -> None:
    """Name to the Messenger what cannot be read or carried; it looks for itself, and ends it."""
    log.warning("an envelope cannot be carried", notification=notification_id)
    named = route_request({"notification_id": notification_id}, context.name, notification_id)
    wait = context.settings.timings.switchboard_wait
    await context.daemons.call_for("messenger", "route.execute", named, wait, RouteResponse)


async def sweep_for_ever(context: Context, stopping: asyncio.Event) -> None:
    """Sweep on each release and each tick, until `stopping`; log a lost database, and try again at the next."""
    while not stopping.is_set():
        ticket = context.wakes["released"].ticket()
        with apart(log, "sweep not done"):
            await sweep(context)
        await either(context.settings.sweep_seconds, ticket, stopping)


async def tidy_for_ever(context: Context, stopping: asyncio.Event) -> None:
    """Note which instances have gone silent, again and again, until `stopping`."""
    timings = context.settings.timings
    while not stopping.is_set():
        with apart(log, "registry not tidied"):
            async with context.db.work() as connection:
                await registry.tidy(connection, timings)
        await pause(stopping, timings.unhurried)
