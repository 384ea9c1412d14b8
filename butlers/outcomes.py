"""The status of a notification as the rows say it, and waiting until it is settled."""

import asyncio
import time
from typing import Final

from butlers.butler import Ground
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import Database
from shared.errors import ButlersError
from shared.storage import standing
from shared.telemetry.logs import logger

log = logger("butlers.outcomes")

POLL_SECONDS: Final = 0.5
# A process that stops waits this long for what is in hand to settle, and then answers how it stands.
HURRIED_SECONDS: Final = 1.5


async def rows_say(db: Database, notification_id: str, butler: str) -> NotifyResponse | None:
    """Return the status of this butler's message; None if it cannot be read now, which is not its failure."""
    try:
        async with db.work() as connection:
            return await standing.own(connection, notification_id, butler)
    except ButlersError as lost:
        log.warning("how it stands cannot be read", notification=notification_id, why=lost.message)
        return None


async def wait_settled(ground: Ground, notification_id: str, deadline: float) -> NotifyResponse:
    """Wait until it is more than `queued`, or delayed, or until the deadline (monotonic); return the answer then."""
    hurried = False
    while True:
        ticket = ground.wakes["settled"].ticket(notification_id)
        async with ground.db.work() as connection:
            found = await standing.status(connection, notification_id)
        if ground.stopping.is_set() and not hurried:
            deadline, hurried = min(deadline, time.monotonic() + HURRIED_SECONDS), True
        answer = found or answers.queued(notification_id)
        left = deadline - time.monotonic()
        if answer.status != "queued" or answers.is_delayed(answer) or left <= 0:
            return answer
        try:
            await asyncio.wait_for(ticket.wait(), min(POLL_SECONDS, left))
        except TimeoutError:
            continue
