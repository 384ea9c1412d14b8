"""What Telegram shows of what is over or has changed, apart from all else: no word of the owner's waits for it."""

import asyncio
from functools import partial

from butlers.apart import apart
from butlers.butler import Ground
from messenger import closing, digests, pauses, rounds
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.timing import asked_for
from shared.telemetry import logger

log = logger("messenger.showing")


async def run(ground: Ground, telegram: TelegramChannel, stopping: asyncio.Event) -> None:
    """Show it on each hint and each tick, until stopping."""
    await rounds.go(ground, stopping, partial(show, ground, telegram))


async def show(ground: Ground, telegram: TelegramChannel) -> float:
    """Show it once, up to the first that Telegram puts off; how many seconds it wants to be left alone.

    A channel that has paused itself is left alone as well.
    """
    for step in (closing.close, digests.refresh):
        with apart(log, "not shown", step=step.__name__):
            async with ground.db.work() as connection:
                if await pauses.stands(connection, "telegram"):
                    return 0.0
            try:
                await step(ground, telegram)
            except ProviderRefused as refused:
                log.info("shown later", why=refused.message)
                return asked_for(refused.failed.retry_after)
    return 0.0
