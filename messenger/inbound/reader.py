"""The reader of the mailbox: one Messenger at a time, under a lease; what it finds is carried out in order.

Reading anything twice changes nothing: a bounce ends a delivery once, and the inbox holds a mail once.
"""

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace

from butlers.butler import Context
from messenger.channels.smtp import Relay
from messenger.inbound.bounces import came_back
from messenger.inbound.letters import bring_in
from messenger.inbound.mail.dsn import Bounce
from messenger.inbound.mailbox import Arrived, Found, Mailbox, Seen
from messenger.storage import mailboxes
from shared.errors import ButlersError, HopFailed, Misconfigured
from shared.loops import pause
from shared.telemetry.logs import logger

log = logger("messenger.inbound.reader")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds until the first look, between looks, and after one that found that there is more to see."""

    first: float = 1.0
    every: float = 60.0
    soon: float = 0.2


@dataclass(frozen=True, slots=True)
class Source:
    """A mailbox that is read: where it is, and whose word on a sender counts there.

    `endpoint` is the address that its mails come to; without one it is read for bounces only.
    """

    account: Relay
    endpoint: str = ""
    server: str | None = None

    @property
    def name(self) -> str:
        """The account, without its password."""
        return f"{self.account.user or 'sandbox'}@{self.account.host}:{self.account.port}"

    def box(self) -> Mailbox:
        """Return a connection to it, which is made when it is first looked into."""
        return Mailbox(self.account, self.server, self.endpoint)


async def run(
    context: Context, source: Source, unread: MutableMapping[str, str], stopping: asyncio.Event, pace: Pace = Pace()
) -> None:
    """Look into the mailbox again and again until stopping; `unread` says why that fails as long as it does."""
    wait, box = pace.first, source.box()
    # Where it is another's turn, a reader that fell silent keeps it so long.
    lease = context.settings.timings.mailbox_lease.total_seconds()
    next_look = {True: pace.soon, False: pace.every, None: min(pace.every, lease)}
    failures = 0
    while not await pause(stopping, wait):
        try:
            _, at_once = await look(context, source, box, stopping, pace.every)
            unread.clear()
            wait, failures = next_look[at_once], 0
        except ButlersError as failed:
            if stopping.is_set():  # that cut it short
                break
            # One that was cut short stays so.
            box = source.box()
            if source.account.user:  # of the sandbox its own channels tell
                unread[source.account.host] = str(failed)
            log.warning("the mailbox was not read", why=failed.message)
            wait, failures = _after_failure(failed, failures, pace), failures + 1
    await asyncio.to_thread(box.close)
    try:
        async with context.db.work() as connection:
            await mailboxes.give_up_lease(connection, source.name, context.instance)
    except ButlersError as lost:
        log.warning("the mailbox's lease left to run out", why=lost.message)


def _after_failure(failed: ButlersError, before: int, pace: Pace) -> float:
    """Return the seconds until the next look, after so many failures before: soon, since most servers only restart."""
    if isinstance(failed, Misconfigured):
        return pace.every * 5  # a login that is refused too often may be locked
    return min(pace.every, pace.first * 4.0 ** min(before, 10))


async def look(
    context: Context, source: Source, box: Mailbox, stopping: asyncio.Event, idle: float = 0.0
) -> tuple[int, bool | None]:
    """Look once, if it is this process's turn; return how much of what it found was new, and whether to look on.

    Where it is not, that is None.
    """
    timings = context.settings.timings
    async with context.db.work() as connection:
        row = await mailboxes.take_lease(connection, source.name, context.instance, timings.mailbox_lease)
    if row is None:
        return 0, None
    seen = Seen(*row.values())
    seen = seen if source.endpoint else replace(seen, mails_from=None)
    keeping = asyncio.create_task(_keep_lease(context, source))
    try:
        found = await taken(box, seen, stopping, timings.mailbox_look, idle)
        return await _carried_out(context, source, found)
    finally:
        keeping.cancel()


async def _keep_lease(context: Context, source: Source) -> None:
    """Renew the lease until we are cancelled; to lose it does no harm."""
    timings = context.settings.timings
    while True:
        await asyncio.sleep(timings.mailbox_renew)
        with suppress(ButlersError):
            async with context.db.work() as connection:
                await mailboxes.take_lease(connection, source.name, context.instance, timings.mailbox_lease)


async def _carried_out(context: Context, source: Source, found: Found) -> tuple[int, bool]:
    """Carry out what was found, in order, and note how far that went."""
    new, done, whole = 0, found.last_uid, found.whole
    for uid, item in found.items:
        outcome = await _carry_out(context, source, item)
        if outcome is None:
            done, whole = uid - 1, False
            break
        new += outcome
    async with context.db.work() as connection:
        numbers = found.uidvalidity, done
        await mailboxes.note_read(connection, source.name, context.instance, numbers, whole=whole)
    return new, done == found.last_uid and (found.woken or not found.whole or bool(found.items))


async def _carry_out(context: Context, source: Source, item: Bounce | Arrived) -> bool | None:
    """Carry out what one message means; return whether that was new, or None if it must be looked at again later."""
    if isinstance(item, Arrived):
        try:
            return await bring_in(context, source.endpoint, item)
        except HopFailed as failed:
            log.warning("a mail waits for the Switchboard", why=failed.message)
            return None
    async with context.db.work() as connection:
        outcome = await came_back(connection, item)
    return None if outcome == "early" else outcome == "bounced"


async def taken(box: Mailbox, seen: Seen, stopping: asyncio.Event, seconds: float, idle: float = 0.0) -> Found:
    """Return what the look finds; cut it short when this daemon stops, or when the server takes too long."""
    looking = asyncio.ensure_future(asyncio.to_thread(box.take, seen, idle))
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({looking, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not looking.done():
        box.stop()
    return await looking
