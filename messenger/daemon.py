"""The Messenger: sole holder of channel credentials; takes routes from the Switchboard alone."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from butlers.butler import Butler, Ground, Parts, Tool
from messenger.cards import updater
from messenger.channels.base import Channel
from messenger.channels.email import EmailChannel
from messenger.channels.telegram import TelegramChannel
from messenger.delivery import lease, worker
from messenger.inbound import bounces, mailbox, poller, updates
from messenger.maintenance import circuit_breaker, metrics, purger, reaper, rechecker, sealer
from messenger.route_execute import OBJECT, execute
from messenger.storage import rate_limits
from shared.channels.realms import Configured, configured, write_channels
from shared.telemetry.logs import logger

log = logger("messenger")

# How each channel sends; Telegram's sender is also how the owner answers.
SENDERS: Final[dict[str, Callable[[Configured], Channel]]] = {
    "email": lambda set_up: EmailChannel.from_url(set_up.smtp_url.reveal()),
}


def build(ground: Ground) -> Parts:
    """Build the Messenger's one tool, its channels, and its loops."""
    set_up = configured(ground.settings)
    telegram = TelegramChannel(set_up.telegram_url, set_up.token.reveal())
    channels: dict[str, Channel] = {"telegram": telegram, **{name: open_(set_up) for name, open_ in SENDERS.items()}}
    jitter = random.Random().random()  # noqa: S311  # spreads retries only
    desk = lease.Desk(ground, channels, jitter=jitter, limited=rate_limits.limited(ground.settings, set_up))
    paused: dict[str, str] = {}
    unread: dict[str, str] = {}
    bot = set_up.token.reveal().partition(":")[0]
    tool = Tool("route.execute", "Deliver what a route carries.", OBJECT, partial(execute, desk), hop=True)

    async def close() -> None:
        for channel in channels.values():
            await channel.close()

    loops: list[Callable[[asyncio.Event], Awaitable[None]]] = [
        partial(_set_up, desk, set_up),
        partial(worker.run, desk),
        partial(lease.renew, desk),
        partial(desk.witness.follow, ground),
        partial(reaper.tidy, desk),
        partial(circuit_breaker.run, ground, channels, paused),
        partial(rechecker.run, ground),
        partial(updater.run, ground, telegram),
        partial(poller.poll, desk, telegram, bot),
        partial(updates.handle, desk, telegram, bot),
        partial(purger.run, ground, jitter),
        partial(sealer.run, ground),
        partial(metrics.run, ground),
    ]
    if ground.settings.imap_url is not None:
        account = mailbox.account_from(ground.settings.imap_url.reveal())
        loops.append(partial(bounces.run, ground, account, unread))

    def remarks() -> list[str]:
        return [*paused.values(), *unread.values(), *filter(None, [desk.witness.trouble])]

    return Parts([tool], loops, remarks=remarks, close=close)


async def _set_up(desk: lease.Desk, set_up: Configured, stopping: asyncio.Event) -> None:
    """Write into the rows which realms this Messenger is configured for, then wait until stopping."""
    async with desk.ground.db.work() as connection:
        await write_channels(connection, set_up)
    await stopping.wait()


BUTLER: Final = Butler(
    "messenger",
    "Delivers by Telegram and e-mail, and never says sent without a receipt.",
    "messenger",
    build,
    accepts=frozenset({"switchboard"}),
)
