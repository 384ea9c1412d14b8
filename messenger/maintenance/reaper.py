"""The reaper: it takes over what silent holders left, and does what else is due over rows that nobody holds."""

import asyncio
from datetime import timedelta
from typing import Final

from messenger.cards import kinds
from messenger.cards.questions.question import tell_answers
from messenger.delivery import expire, restored
from messenger.delivery.lease import Worker
from messenger.delivery.stop import NOT_SENT
from messenger.storage import breakers, queries, rate_limits, transitions
from messenger.storage import deliveries as store
from shared import answers
from shared.db.pool import BRIEFLY, Connection
from shared.errors import ButlersError
from shared.gate.tool_call import RUN_WITHIN
from shared.loops import either
from shared.storage import deliveries, notices, notifications, pairings, pending_actions, rules, tool_calls
from shared.storage.pending_actions import Why
from shared.telemetry.logs import logger
from shared.telemetry.metrics import deliveries_total

log = logger("messenger.maintenance.reaper")

LOST: Final = Why("messenger", "The process that was sending it stopped responding. Delivery unconfirmed.")
CALL_LOST: Final = Why("messenger", "The process that was running it stopped responding. It may have run.")
CALL_AGAIN: Final = Why("messenger", "The process that was running it stopped responding; it is run again.")
CALL_LATE: Final = Why("messenger", "Expired before it could run.")
NOBODY_ANSWERED: Final = "Expired without an answer."


async def reap(connection: Connection, lease: timedelta) -> int:
    """Take over what silent holders left behind; return how many there were."""
    silent = await queries.silent(connection, lease)
    for row in silent:
        if row["notification_id"] is not None:
            await notifications.locked(connection, row["notification_id"])
    lost = await store.reap(connection, [row["id"] for row in silent], lease) if silent else []
    for row in lost:
        deliveries_total.labels(channel=row["channel"], state=row["status"], reason="lease_lost").inc()
        if row["status"] == "uncertain" and row["notification_id"] is not None:
            answer = answers.uncertain(row["notification_id"], "internal_error")
            await notices.settle_and_tell(connection, row["notification_id"], answer)
            await pending_actions.move(connection, row["notification_id"], ["approved", "executing"], "uncertain", LOST)
    return len(lost)


async def reap_calls(connection: Connection, lease: timedelta, within: timedelta) -> int:
    """End the tool calls of a backup, of a daemon that fell silent, and those that nobody began in time; count them.

    INVARIANT: what may have run is run again by no machine, unless the tool is declared repeatable.
    """
    doubted = await restored.doubt_calls(connection)
    silent = await tool_calls.silent_calls(connection, lease)
    for row in silent:
        to, why = ("approved", CALL_AGAIN) if row["again"] else ("uncertain", CALL_LOST)
        await pending_actions.move_call(connection, row["id"], ["executing"], to, why)
    late = await tool_calls.overdue_calls(connection, within)
    for call_id in late:
        await pending_actions.move_call(connection, call_id, ["approved"], "expired", CALL_LATE)
    return doubted + len(silent) + len(late)


async def close_unanswered(connection: Connection) -> int:
    """Close the questions that nobody answered in time; return how many there were."""
    closed = 0
    for row in await pending_actions.unanswered(connection):
        told = row["notification_id"]
        held = await notifications.locked(connection, told) if told is not None else None
        if not await pending_actions.expire(connection, row["id"], Why("messenger", NOBODY_ANSWERED)):
            continue
        closed += 1
        if held is not None and held["status"] in answers.ASKED:
            begun = await deliveries.begun(connection, told)
            said = f"{NOBODY_ANSWERED} {answers.EARLIER if begun else NOT_SENT}"
            answer = answers.failed(told, "forbidden" if begun else "timeout", said, retryable=False)
            await notices.settle_and_tell(connection, told, answer)
    return closed


async def tidy(worker: Worker, stopping: asyncio.Event) -> None:
    """Take over what silent holders left, and write the cards that are missing, again and again until stopping."""
    wake, timings = worker.context.wakes["cards"], worker.context.settings.timings
    while not stopping.is_set():
        ticket = wake.ticket()
        try:
            async with worker.context.db.work() as connection:
                reaped = await reap(connection, timings.lease) + await close_unanswered(connection)
                reaped += await reap_calls(connection, timings.lease, RUN_WITHIN)
                await transitions.close_answered(connection)
                await tell_answers(connection, timings.question_heard)
                written = await transitions.delayed_no_more(connection, timings.braked_again)
                written += await transitions.sooner(connection, timings.longest_wait)
                written += await breakers.tell_owner(connection)
                await rate_limits.forget(connection, timings.bucket_kept, timings.longest_wait)
                late, expiring = await queries.overdue(connection), await rules.expiring(connection)
                not_brought = await queries.not_brought(connection)
                await pairings.expire(connection)
            # Some of what is late, and then the cards: these wait for no end of it. The next round finds more.
            await expire.bring_late(worker.context, not_brought)
            if late or not_brought:
                async with worker.context.db.work() as connection:
                    reaped += await expire.end_late(connection)
            # A butler that holds a row of its own keeps that one's card waiting, and no kind of card for long.
            async with worker.context.db.work(BRIEFLY) as connection:
                written += await kinds.write_missing(connection, worker.context.settings.card_burst, timings)
            if reaped or written:
                worker.context.wakes["deliveries"]()
            if expiring:
                async with worker.context.db.work() as connection:
                    await rules.expire_overdue(connection, worker.context.name)
        except ButlersError as lost:
            log.warning("not tidied", why=lost.message)
        await either(worker.context.settings.sweep_seconds, ticket, stopping)
