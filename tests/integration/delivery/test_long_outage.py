"""The database is away for longer than a lease while only one process knows how a message ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from butlers.daemon.assembly import acting
from messenger.channels.base import Channel, Prepared, Receipt, SendFailed, StillHeld, unconditionally
from messenger.delivery import loop
from messenger.delivery.lease import Worker
from shared.auth import keystore
from shared.channels.base import Wire
from shared.db import dsn
from shared.db.pool import Database
from tests.integration.house import House
from tests.integration.workers import due, in_queue, lose_lease, reap, work
from tests.rig.cutting import Cut, cutting
from tests.rig.gate import Gate, by_port
from tests.rig.waiting import LONGEST, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(slots=True)
class Then:
    """A part, after whose end something happens before anybody hears of that end."""

    inner: Prepared
    happens: Callable[[], Awaitable[object]]

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        result = await self.inner.finish(still_held)
        await self.happens()
        return result

    async def abandon(self) -> None:
        await self.inner.abandon()
        await self.happens()


@dataclass(slots=True)
class Ending:
    """A way out of such parts."""

    inner: Channel
    happens: Callable[[], Awaitable[object]]
    name: str = "telegram"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        prepared = await self.inner.prepare(wire)
        return prepared if isinstance(prepared, SendFailed) else Then(prepared, self.happens)

    async def probe(self) -> SendFailed | None:
        return await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()


@pytest_asyncio.fixture(loop_scope="module")
async def cut(still_house: House) -> AsyncIterator[Cut]:
    async with cutting(still_house.dsn) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def gate(cut: Cut) -> AsyncIterator[Gate]:
    """The way to PostgreSQL, open at first."""
    made = Gate(cut.port)
    await made.open()
    yield made
    made.shut()


@pytest_asyncio.fixture(loop_scope="module")
async def away(still_house: House, cut: Cut, gate: Gate) -> AsyncIterator[Worker]:
    """A Messenger's worker whose database is gone once a part has ended."""
    password = keystore.read(still_house.settings.home, keystore.UP).password
    database = await Database.open(dsn.dsn_as(by_port(still_house.dsn, gate.port), keystore.UP, password))

    async def go() -> None:
        gate.shut()

    plain = still_house.worker()
    db = acting(still_house.assembly.plan, database, "messenger")
    ways = {"telegram": Ending(plain.channels["telegram"], go)}
    yield replace(plain, context=replace(plain.context, db=db), channels=ways)
    await database.close()


async def taken_over(house: House, told: str) -> None:
    """Its lease runs out, and somebody else says what that makes of it."""
    await lose_lease(house, told)
    assert await reap(house) == 1
    assert await house.status(told) == "uncertain"


async def test_a_receipt_outlives_the_outage_and_ends_what_was_uncertain(
    still_house: House, away: Worker, gate: Gate, message: str
) -> None:
    told = await in_queue(still_house, message)
    await loop.claim_some(away)
    await until(lambda: gate.is_shut or None)
    await taken_over(still_house, told)
    await gate.open()
    async with asyncio.timeout(LONGEST):
        await asyncio.gather(*away.tasks)
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)
    assert (await still_house.delivery(told))["status"] == "sent"


async def test_a_marker_nobody_confirmed_is_known_unsent_however_long_that_takes_to_say(
    still_house: House, away: Worker, cut: Cut, gate: Gate, message: str
) -> None:
    told = await in_queue(still_house, message)
    cut.arm("LOCK TABLE shared.authority", counts=True)
    await loop.claim_some(away)
    await until(lambda: gate.is_shut or None)
    await taken_over(still_house, told)
    await gate.open()
    async with asyncio.timeout(LONGEST):
        await asyncio.gather(*away.tasks)
    assert (await still_house.status(told), still_house.sent(message)) == ("queued", [])
    await due(still_house, told)
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_a_receipt_that_is_given_up_is_logged(still_house: House, away: Worker, gate: Gate, message: str) -> None:
    told = await in_queue(still_house, message)
    with capture_logs() as lines:
        await loop.claim_some(away)
        await until(lambda: gate.is_shut or None)
        await until(lambda: any("not written yet" in line["event"] for line in lines) or None)
        [task] = away.tasks
        task.cancel()
        await asyncio.wait([task])
    await gate.open()
    [lost] = [line for line in lines if line["event"] == "an outcome is given up"]
    [sent] = still_house.sent(message)
    assert (lost["outcome"], lost["receipt"]) == ("sent", str(sent["provider_id"]))
    await taken_over(still_house, told)
