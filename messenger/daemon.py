"""The Messenger: sole holder of channel credentials; takes routes from the Switchboard alone."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from butlers.butler import Butler, Components, Context, Loop, Tool
from messenger.cards import updater
from messenger.channels.base import Channel
from messenger.channels.email import EmailChannel
from messenger.channels.telegram import TelegramChannel
from messenger.delivery import lease, loop
from messenger.inbound import commands, mailbox, poller, reader, updates
from messenger.inbound.fetch_attachment import Files, fetch_attachment
from messenger.maintenance import circuit_breaker, metrics, purger, reaper, rechecker, sandbox, sealer, watchdog
from messenger.route_execute import OBJECT, execute
from messenger.storage import rate_limits
from shared.channels.realms import SANDBOX, SANDBOX_SERVER, Configured, configured, note_seen
from shared.config.settings import Settings
from shared.loops import pause

# How each channel sends; Telegram's sender is also how the owner answers.
SENDERS: Final[dict[str, Callable[[Configured], Channel]]] = {
    "email": lambda set_up: EmailChannel.from_url(set_up.smtp_url.reveal()),
}


def build(context: Context) -> Components:
    """Build the Messenger's two tools, its channels, and its loops."""
    set_up = configured(context.settings)
    telegram = TelegramChannel(set_up.telegram_url, set_up.token.reveal())
    channels: dict[str, Channel] = {"telegram": telegram, **{name: open_(set_up) for name, open_ in SENDERS.items()}}
    jitter = random.Random().random()  # noqa: S311  # spreads retries only
    worker = lease.Worker(context, channels, jitter=jitter, limited=rate_limits.limited(context.settings, set_up))
    paused, unread, unheard = dict[str, str](), dict[str, str](), dict[str, str]()
    tool = Tool("route.execute", "Deliver what a route.v1 envelope holds.", OBJECT, partial(execute, worker), hop=True)

    bot, source = set_up.token.reveal().partition(":")[0], _mailbox(context.settings)
    fetching = partial(fetch_attachment, context, Files(telegram, bot, source))
    fetch = Tool("fetch_attachment", "Fetch a file of a message from its channel.", OBJECT, fetching, hop=True)

    async def close() -> None:
        for channel in channels.values():
            await channel.close()

    loops: list[Loop] = [
        partial(_be_seen, worker, set_up),
        partial(loop.run, worker),
        partial(lease.renew, worker),
        partial(worker.witness.follow, context),
        partial(reaper.tidy, worker),
        partial(circuit_breaker.run, context, channels, paused),
        partial(rechecker.run, context),
        partial(updater.run, context, telegram),
        partial(poller.poll, worker, telegram, bot, unheard),
        *_inbound(worker, telegram, bot, source, unread),
        partial(purger.run, context, jitter),
        partial(sealer.run, context),
        partial(metrics.run, context),
        partial(sandbox.run, context),
        partial(watchdog.run, context),
    ]

    def remarks() -> list[str]:
        return [*paused.values(), *unread.values(), *unheard.values(), *filter(None, [worker.witness.trouble])]

    return Components([tool, fetch], loops, remarks=remarks, close=close)


def _inbound(
    worker: lease.Worker, telegram: TelegramChannel, bot: str, source: reader.Source | None, unread: dict[str, str]
) -> Sequence[Loop]:
    """Return the loops by which something comes in: updates, commands, and mails where there is a mailbox."""
    return [
        partial(updates.handle, worker, telegram, bot),
        partial(commands.show_menu, worker, telegram),
        *([] if source is None else [partial(reader.run, worker.context, source, unread)]),
    ]


def _mailbox(settings: Settings) -> reader.Source | None:
    """Return the mailbox that is read: as set, else the sandbox's where mails go to it.

    INVARIANT: what people wrote is no mail of the sandbox, which it would be while mails go there.
    """
    set_up = configured(settings)
    played, endpoint = set_up.realms["email"] == SANDBOX, set_up.senders["email"]
    if settings.imap_url is not None:
        account = mailbox.account_from(settings.imap_url.reveal())
        return reader.Source(account, "" if played else endpoint, settings.mail_authserv_id)
    return reader.Source(mailbox.sandbox_feed(set_up.imap_url.reveal()), endpoint, SANDBOX_SERVER) if played else None


async def _be_seen(worker: lease.Worker, set_up: Configured, stopping: asyncio.Event) -> None:
    """Write into the rows of its channels, until stopping, that a Messenger is here."""
    while not stopping.is_set():
        async with worker.context.db.work() as connection:
            await note_seen(connection, set_up, is_here=True)
        await pause(stopping, worker.context.settings.timings.heartbeat)
    async with worker.context.db.work() as connection:
        await note_seen(connection, set_up, is_here=False)


BUTLER: Final = Butler(
    "messenger",
    "Delivers by Telegram and e-mail; reports a message as sent only with a receipt.",
    "messenger",
    build,
    accepts=frozenset({"switchboard"}),
)
