"""Working a house by hand: admit, enqueue, and carry a delivery to its end with something happening in between."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final
from uuid import uuid4

from messenger.channels.base import Channel, Prepared, SendFailed
from messenger.delivery import loop
from messenger.delivery.lease import Worker
from messenger.maintenance import reaper
from shared.channels.base import Wire
from shared.config.timings import STANDARD
from shared.contracts import route_request
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from tests.integration.house import House

DUE: Final = "UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE notification_id = $1"
# What a provider asked for, or a channel that paused itself, is over.
FREE: Final = "WITH r AS (DELETE FROM messenger.rate_limits) DELETE FROM messenger.circuit_breakers"
# Older than the three seconds that the live call has.
OLDER: Final = "UPDATE shared.notifications SET created_at = created_at - interval '4 seconds' WHERE id = $1"
# Its time is over, by its own row and by its authority's.
PAST: Final = """
WITH d AS (UPDATE messenger.deliveries SET not_after = clock_timestamp() WHERE notification_id = $1)
UPDATE shared.notifications SET not_after = clock_timestamp() WHERE id = $1
"""
END_LEASE: Final = "UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE notification_id = $1"
ACTION: Final = "SELECT * FROM shared.pending_actions WHERE notification_id = $1 ORDER BY requested_at DESC LIMIT 1"
CHATS: Final = count(8_000_000_001)


ON_THE_OWNER: Final = """
INSERT INTO shared.contact_info (contact_id, type, value)
SELECT id, 'telegram', $1 FROM shared.contacts WHERE 'owner' = ANY (roles)
"""


async def forced_on_the_owner(house: House, chat: str) -> None:
    """Put an entry on the owner that the database refuses now, as an older program may have done."""
    async with house.sql.transaction():
        await house.sql.execute("SET LOCAL session_replication_role = replica")
        await house.sql.execute(ON_THE_OWNER, chat)


@dataclass(slots=True)
class Between:
    """A way out during whose preparing something happens, before the marker."""

    inner: Channel
    happens: Callable[[], Awaitable[object]]
    name: str = "between"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        prepared = await self.inner.prepare(wire)
        try:
            await self.happens()
        except BaseException:
            if not isinstance(prepared, SendFailed):
                await prepared.abandon()
            raise
        return prepared

    async def probe(self) -> SendFailed | None:
        return await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()


def worker_where(house: House, happens: Callable[[], Awaitable[object]]) -> Worker:
    """A worker that prepares, then lets this happen, and only then comes to its marker."""
    real = house.worker()
    return house.worker(**{name: Between(channel, happens) for name, channel in real.channels.items()})


async def admitted(house: House, message: str, butler: str = "greeter", /, **arguments: object) -> str:
    """The id of a notification that is admitted and that nobody routed."""
    context = house.context(butler)
    call = accept(butler, {"channel": "telegram", "message": message, **arguments})
    admitter = Admitter(butler, context.db, context.settings.approval_ttl, context.new_id)
    return (await admit(admitter, call)).notification_id


async def enqueue(house: House, notification_id: str) -> None:
    """Bring it to the Messenger, as the Switchboard's sweep does."""
    row = await house.row("SELECT envelope, origin_butler FROM shared.notifications WHERE id = $1", notification_id)
    request = route_request({**row["envelope"], "notification_id": notification_id}, row["origin_butler"], "r")
    request["input"] = {"context": {**request["input"]["context"], "wait": False}}  # type: ignore[index]
    answer = await house.hop("switchboard", "messenger", "route.execute", request)
    assert answer["status"] == "ok", answer


async def in_queue(house: House, message: str, **arguments: object) -> str:
    """The id of a notification whose delivery is queued; to somebody new unless told to whom."""
    if "contact_id" not in arguments and "recipient" not in arguments:
        arguments["contact_id"] = await friend(house)
    notification_id = await admitted(house, message, **arguments)
    await enqueue(house, notification_id)
    return notification_id


def new_chat() -> str:
    """A chat nobody else uses."""
    return str(next(CHATS))


async def friend(house: House, **rule: object) -> str:
    """A contact somebody may write to by a rule."""
    contact = await house.contact("Friend", telegram=new_chat(), email=f"{uuid4().hex}@example.org")
    await house.rule({"contact_id": contact}, **rule)
    return contact


async def work(worker: Worker) -> None:
    """Claim what is due and carry it to its end."""
    await loop.claim_some(worker)
    await asyncio.gather(*worker.tasks)


async def due(house: House, notification_id: str) -> None:
    """Let its time come, and nothing else stand in its way."""
    await house.sql.execute(FREE)
    await house.sql.execute(DUE, notification_id)


async def lose_lease(house: House, notification_id: str) -> None:
    """Let the lease of whoever holds its delivery run out."""
    await house.sql.execute(END_LEASE, notification_id)


async def reap(house: House) -> int:
    """Take over what silent holders left; how many there were."""
    async with house.context("messenger").db.work() as connection:
        return await reaper.reap(connection, STANDARD.lease)
