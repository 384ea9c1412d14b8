"""The loop that changes cards in Telegram when they are over or have changed.

It runs apart from all else, so that no word of the owner's waits for it.
"""

import asyncio
from functools import partial

from butlers.butler import Context
from messenger import loop
from messenger.cards import closing
from messenger.cards.kinds import KINDS
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.retry import asked_for
from messenger.storage import breakers
from shared.loops import apart
from shared.telemetry.logs import logger

log = logger("messenger.cards.updater")


async def run(context: Context, telegram: TelegramChannel, stopping: asyncio.Event) -> None:
    """Show the changes on each hint and each tick, until stopping."""
    await loop.go(context, stopping, partial(show, context, telegram))


async def show(context: Context, telegram: TelegramChannel) -> float:
    """Show the changes once, up to the first that Telegram puts off; return the seconds it wants to be left alone.

    A channel that has paused itself is left alone as well.
    """
    for step in (closing.close, *(kind.refresh for kind in KINDS.values() if kind.refresh)):
        with apart(log, "not shown", step=step.__name__):
            async with context.db.work() as connection:
                if await breakers.stands(connection, "telegram"):
                    return 0.0
            try:
                await step(context, telegram)
            except ProviderRefused as refused:
                log.info("shown later", why=refused.message)
                return asked_for(refused.failed.retry_after)
    return 0.0
