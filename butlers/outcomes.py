"""The status of a notification as the rows say it, and waiting until it is settled."""

import time

from butlers.butler import Context
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import Database
from shared.db.wake import Ticket
from shared.errors import ButlersError
from shared.loops import pause
from shared.storage import standing
from shared.telemetry.logs import logger

log = logger("butlers.outcomes")


async def rows_say(db: Database, notification_id: str, butler: str) -> NotifyResponse | None:
    """Return the status of this butler's message; None if it cannot be read now, which is not its failure."""
    try:
        async with db.work() as connection:
            return await standing.own(connection, notification_id, butler)
    except ButlersError as lost:
        log.warning("how it stands cannot be read", notification=notification_id, why=lost.message)
        return None


async def wait_settled(
    context: Context, notification_id: str, deadline: float, ticket: Ticket | None = None
) -> NotifyResponse:
    """Wait until it is more than `queued`, or delayed, or until the deadline (monotonic); return the answer then.

    Whoever has just read that it is queued gives the ticket taken before that, and nothing is read before its wake. Nor
    is anything read where the wake brings the answer that its process has stored.
    """
    hurried, timings = False, context.settings.timings
    while True:
        if ticket is not None:
            await pause(ticket, max(0.0, min(timings.outcome_again, deadline - time.monotonic())))
            if isinstance(ticket.news, NotifyResponse):
                return ticket.news
        ticket = context.wakes["settled"].ticket(notification_id)
        async with context.db.work() as connection:
            found = await standing.status(connection, notification_id)
        if context.stopping.is_set() and not hurried:
            # What is in hand may settle yet; then it is answered how it stands.
            deadline, hurried = min(deadline, time.monotonic() + timings.hurried), True
        answer = found or answers.queued(notification_id)
        if answer.status != "queued" or answers.is_delayed(answer) or deadline <= time.monotonic():
            return answer
