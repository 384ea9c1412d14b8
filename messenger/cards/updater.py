"""The loop that changes cards in Telegram when they are over or have changed.

It runs apart from all else, so that no word of the owner's waits for it.
"""

import asyncio

from butlers.butler import Context
from messenger.cards import closing
from messenger.cards.base import Refresh
from messenger.cards.kinds import KINDS
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.retry import asked_for
from messenger.storage import breakers
from shared.db.pool import Connection
from shared.loops import apart, first_of, pause
from shared.telemetry.logs import logger

log = logger("messenger.cards.updater")


async def run(context: Context, telegram: TelegramChannel, stopping: asyncio.Event) -> None:
    """Show the changes on each hint, and when the rechecker's look has found some, until stopping."""
    while not stopping.is_set():
        tickets = [context.wakes[topic].ticket() for topic in ("cards", "edits")]
        if await pause(stopping, await show(context, telegram)):
            return
        await first_of(*tickets, stopping)


async def show(context: Context, telegram: TelegramChannel) -> float:
    """Show the changes once, up to the first that Telegram puts off; return the seconds it wants to be left alone.

    A channel that has paused itself is left alone as well.
    """
    steps = list[Refresh]()
    with apart(log, "nothing shown"):
        async with context.db.work() as connection:
            steps = await due(connection, context)
    for step in steps:
        with apart(log, "not shown", step=step.__name__):
            try:
                await step(context, telegram)
            except ProviderRefused as refused:
                log.info("shown later", why=refused.message)
                return asked_for(refused.failed.retry_after)
    return 0.0


async def due(connection: Connection, context: Context) -> list[Refresh]:
    """Return the steps that have anything to change: cards that are over, and cards whose list is to be looked at."""
    if await breakers.stands(connection, "telegram"):
        return []
    over: list[Refresh] = [closing.close] if await closing.over(connection) else []
    listing = [(kind.stale, kind.refresh) for kind in KINDS.values() if kind.stale and kind.refresh]
    return over + [refresh for stale, refresh in listing if await stale(connection, context)]
