"""Bounces: mails that were sent and came back, told to their butler and once to the owner.

One Messenger at a time reads the mailbox, under a lease; a report counts only for the mail and the address that it
names and that we sent to. Reading anything twice changes nothing. The only writer of messenger.mailboxes.
"""

import asyncio
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final, Literal

from butlers.butler import Context
from messenger.channels.smtp import Relay
from messenger.inbound.dsn import Bounce
from messenger.inbound.mailbox import Found, Look, Seen
from messenger.storage import queries, transitions
from shared import answers
from shared.db.pool import Connection, Record
from shared.db.wake import tell
from shared.errors import ButlersError, Misconfigured
from shared.loops import pause
from shared.storage import notices, notifications, pending_actions
from shared.storage.pending_actions import Event, Why
from shared.telemetry.logs import logger
from shared.telemetry.metrics import deliveries_total

log = logger("messenger.inbound.bounces")
# A process that loses the lease while it looks does no harm.
TAKE_LEASE: Final = """
INSERT INTO messenger.mailboxes AS m (account, holder, lease_until)
VALUES ($1, $2, clock_timestamp() + $3::interval)
ON CONFLICT (account) DO UPDATE SET holder = EXCLUDED.holder, lease_until = EXCLUDED.lease_until
WHERE m.holder = $2 OR m.lease_until <= clock_timestamp() OR m.lease_until > clock_timestamp() + $3::interval
RETURNING uidvalidity, last_uid, (read_at AT TIME ZONE 'UTC')::date - 1 AS since
"""
GIVE_UP_LEASE: Final = """
UPDATE messenger.mailboxes SET lease_until = clock_timestamp() WHERE account = $1 AND holder = $2
"""
READ: Final = """
UPDATE messenger.mailboxes SET uidvalidity = $3, last_uid = $4,
    read_at = CASE WHEN $5 THEN clock_timestamp() ELSE read_at END
WHERE account = $1 AND holder = $2
"""
_OURS: Final = re.compile(r"<n\.([0-9a-f-]{36})@[^<>]+>")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds until the first look, and between looks."""

    first: float = 30.0
    every: float = 60.0


async def run(
    context: Context, account: Relay, unread: MutableMapping[str, str], stopping: asyncio.Event, pace: Pace = Pace()
) -> None:
    """Look into the mailbox again and again until stopping; `unread` says why that fails as long as it does."""
    wait = pace.first
    while not await pause(stopping, wait):
        try:
            await look(context, account, stopping)
            unread.clear()
            wait = pace.every
        except ButlersError as failed:
            unread[account.host] = str(failed)
            log.warning("the mailbox was not read", why=failed.message)
            # A login that is refused too often may be locked.
            wait = pace.every * (5 if isinstance(failed, Misconfigured) else 1)
    try:
        async with context.db.work() as connection:
            await connection.execute(GIVE_UP_LEASE, _name(account), context.instance)
    except ButlersError as lost:
        log.warning("the mailbox's lease left to run out", why=lost.message)


async def look(context: Context, account: Relay, stopping: asyncio.Event) -> int:
    """Look once, if it is this process's turn; return how many bounces it found that change something."""
    timings = context.settings.timings
    async with context.db.work() as connection:
        row = await connection.fetchrow(TAKE_LEASE, _name(account), context.instance, timings.mailbox_lease)
    if row is None:
        return 0
    found = await taken(Look(account, Seen(*row.values())), stopping, timings.mailbox_look)
    changed, done, whole = 0, found.last_uid, found.whole
    for uid, bounce in found.bounces:
        async with context.db.work() as connection:
            outcome = await came_back(connection, bounce)
        if outcome == "early":
            done, whole = uid - 1, False
            break
        changed += outcome == "bounced"
    async with context.db.work() as connection:
        await connection.execute(READ, _name(account), context.instance, found.uidvalidity, done, whole)
    return changed


async def taken(look: Look, stopping: asyncio.Event, seconds: float) -> Found:
    """Return what the look finds; cut it short when this daemon stops, or when the server takes too long."""
    looking = asyncio.ensure_future(asyncio.to_thread(look.take))
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({looking, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not looking.done():
        look.stop()
    return await looking


def _name(account: Relay) -> str:
    return f"{account.user}@{account.host}:{account.port}"


async def came_back(connection: Connection, bounce: Bounce) -> Literal["bounced", "ignored", "early"]:
    """Carry out what a report changes: nothing, unless it names a mail of ours and the address that was sent to.

    Return `early` while nobody knows yet how its sending ended: the report is looked at again then.
    """
    ours = _OURS.fullmatch(bounce.message_id)
    row = await notifications.locked(connection, ours[1]) if ours else None
    delivery = await queries.one(connection, row["id"]) if row is not None else None
    if row is None or delivery is None or not await _is_about(connection, bounce, delivery):
        return "ignored"
    if delivery["status"] == "sending":
        return "early"
    await transitions.taken(connection, delivery["id"], bounce.message_id)
    if not await transitions.bounced(connection, delivery["id"], bounce.status):
        return "ignored"
    answer = answers.bounced(row["id"], bounce.status, bounce.said)
    await notifications.settle(connection, row["id"], answer)
    await notices.add_outcome(connection, row["id"], "bounced", "came back: it did not arrive.", always=True)
    # What the far end wrote stands in the answer, which is wiped some day; the audit stays.
    why, result = Why("messenger", f"Bounced: {bounce.status}"), {"status": answer.status}
    await pending_actions.move(connection, row["id"], ["uncertain"], "failed", why, result)
    await pending_actions.record(
        connection, Event("bounced", "messenger", notification_id=row["id"], reason=bounce.status)
    )
    deliveries_total.labels(channel="email", state="bounced", reason="").inc()
    await tell(connection, "cards")
    return "bounced"


async def _is_about(connection: Connection, bounce: Bounce, delivery: Record) -> bool:
    """Return whether the report names the mail as it was sent, and the recipient it was sent to."""
    if delivery["channel"] != "email" or delivery["address"].lower() not in bounce.recipients:
        return False
    receipts = await queries.receipts(connection, delivery["id"])
    # Without a receipt of the mail server's own the notification's id in the Message-ID is all there is.
    return all(receipt == bounce.message_id for receipt in receipts if receipt.startswith("<"))
