"""The poller of what comes in from Telegram: one for each bot, and every update is stored before it counts."""

import asyncio
import time
from collections.abc import MutableMapping
from typing import Final

from messenger.channels.telegram import TelegramChannel
from messenger.delivery.lease import Worker
from messenger.storage import strangers, updates
from shared.errors import ButlersError
from shared.loops import pause
from shared.telemetry.logs import logger

log = logger("messenger.inbound.poller")
UNHEARD: Final = "Nothing that you press or write in Telegram arrives: {why}"
ALLOWED: Final = ["message", "edited_message", "message_reaction", "callback_query"]


async def poll(
    worker: Worker,
    telegram: TelegramChannel,
    bot: str,
    unheard: MutableMapping[str, str],
    stopping: asyncio.Event,
) -> None:
    """Poll while this process holds the bot's lease; it outlives one poll and passes to another in ten seconds.

    `unheard` says why that fails as long as it does.
    """
    timings = worker.context.settings.timings
    while not stopping.is_set():
        try:
            async with worker.context.db.work() as connection:
                mine = await updates.take_lease(connection, bot, worker.holder, timings.poll_lease)
                offset = await updates.next_offset(connection, bot, timings.update_numbers) if mine else 0
            # Who answers at once with nothing new is not asked again at once.
            if not (mine and await _poll_once(worker, telegram, bot, offset, stopping)):
                await pause(stopping, timings.poll_again)
            unheard.clear()
        except (ButlersError, TimeoutError) as failed:
            unheard[bot] = UNHEARD.format(why=str(failed)[:200] or type(failed).__name__)
            log.warning("not polled", why=str(failed) or type(failed).__name__)
            await pause(stopping, timings.poll_again)
    try:
        async with worker.context.db.work() as connection:
            await updates.give_up_lease(connection, bot, worker.holder)
    except ButlersError as lost:
        log.warning("poll lease left to run out", why=lost.message)


async def _poll_once(worker: Worker, telegram: TelegramChannel, bot: str, offset: int, stopping: asyncio.Event) -> bool:
    """Ask once, and store what came; return whether something new did, or the server took its time."""
    seconds, began = worker.context.settings.timings.poll, time.monotonic()
    payload = {"offset": offset, "timeout": int(seconds), "allowed_updates": ALLOWED}
    asking = asyncio.ensure_future(telegram.call("getUpdates", payload, wait=seconds + 10))
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({asking, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not asking.done():
        asking.cancel()
        return True
    new = 0
    found = asking.result().get("result")
    if isinstance(found, list) and found:
        came = updates.pared(found)
        async with worker.context.db.work() as connection:
            over = await strangers.beyond(connection, came)
            new = await updates.store(connection, bot, [one for one in came if one["update_id"] not in over])
            if over:
                await updates.count(connection, bot, max(over))
        worker.context.wakes["updates"]()
        if any(map(updates.is_of_album, came)):
            later = worker.context.settings.timings.album.total_seconds() + 0.1
            asyncio.get_running_loop().call_later(later, worker.context.wakes["updates"])
    return new > 0 or time.monotonic() - began > seconds / 2
