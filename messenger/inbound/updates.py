"""The handling of stored updates, each once."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from messenger.channels.telegram import Call, ProviderRefused, TelegramChannel
from messenger.delivery.lease import Worker
from messenger.inbound import commands
from messenger.inbound.callbacks import acknowledge, handle_press
from messenger.inbound.messages import handle_message
from messenger.storage import updates
from shared.db.pool import BRIEFLY, Record
from shared.errors import ButlersError, HopFailed, Locked, Unavailable
from shared.loops import apart, first_of
from shared.telemetry.logs import logger

log = logger("messenger.inbound.updates")


async def handle(worker: Worker, telegram: TelegramChannel, bot: str, stopping: asyncio.Event) -> None:
    """Handle what is stored.

    No word of the owner's waits for more than one message, and a message waits for the Switchboard. What is left is
    woken by the rechecker's look.
    """
    while not stopping.is_set():
        ticket = worker.context.wakes["updates"].ticket()
        try:
            while await _turn(worker, telegram, bot):
                pass
        except ButlersError as failed:
            log.warning("inbound left for later", why=failed.message)
        await first_of(ticket, stopping)


async def _turn(worker: Worker, telegram: TelegramChannel, bot: str) -> bool:
    """Handle the oldest press or command, else the oldest other update; return whether another may follow at once.

    What fails is tried again when all others had their turn, and is given up after a minute: what fails each time keeps
    nobody waiting, nor does what needs a row that somebody holds.
    """
    timings = worker.context.settings.timings
    row: Record | None = None
    calls: Sequence[Call] = ()
    done = False
    try:
        with apart(log, NOT_HANDLED, through=PASSING):
            async with worker.context.db.work(BRIEFLY) as connection:
                row = await updates.oldest_unhandled(connection, bot, timings.album)
                if row is not None:
                    handled = handle_press if "callback_query" in row["body"] else handle_message
                    calls = await handled(connection, worker, bot, row)
            done = True
    except Locked as held:
        log.warning(NOT_HANDLED, why=held.message)
    if row is None:
        return False
    if not done:
        async with worker.context.db.work() as connection:
            await updates.failed(connection, bot, row["update_id"], timings.update_given_up)
        calls = await _said_of_failure(worker, row["body"] or {}) if row["outcome"] is None else []
    for wake in ("released", "deliveries") if row["is_word"] else ():
        worker.context.wakes[wake]()
    for method, payload in calls:
        try:
            await telegram.call(method, payload, wait=10)
        except ProviderRefused as refused:
            log.info("not shown", method=method, why=refused.message)
    # What fails for the first time lets the others go before it, and what fails again waits for the next tick.
    return done or row["outcome"] is None


async def _said_of_failure(worker: Worker, update: Mapping[str, object]) -> Sequence[Call]:
    """Return the call that tells whoever pressed, and the owner who wrote, that it could not be done right now."""
    query, message = update.get("callback_query"), update.get("message")
    if isinstance(query, dict):
        return [acknowledge(query, FAILED)]
    with apart(log, "the owner is not told"):
        async with worker.context.db.work(BRIEFLY) as connection:
            if isinstance(message, dict) and await commands.is_owners(connection, message):
                return [commands.answer(message, FAILED)]
    return []


NOT_HANDLED: Final = "an update was not handled"
# Failures that end by themselves: the database or the Switchboard is away.
PASSING: Final = (Unavailable, HopFailed)
FAILED: Final = "This could not be done right now. Butlers retries for a minute; check again after that."
