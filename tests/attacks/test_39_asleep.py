"""Class 39: a Messenger that slept, or its computer, between the marker and the last byte does not write that byte.

Somebody else has taken over meanwhile and asked the owner, whose word counts. The process really stands still, at the
nearest moment to the byte that can be named; a computer that sleeps is its clocks: `boot` and `wall` go on, and what
counts only the time awake does not.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from messenger.channels.base import Channel, Prepared, Receipt, SendFailed
from messenger.delivery.lease import Worker
from shared.channels.base import Wire
from shared.config.timings import STANDARD
from shared.db.clock import Moment, moment
from tests.chaos.crew import begin, stands
from tests.integration.house import House, opened
from tests.integration.workers import DUE, in_queue, work
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL, Bench
from tests.rig.cluster import Cluster
from tests.rig.failpoints import Armed
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULE = "INSERT INTO shared.approval_rules (arg_constraints) VALUES (jsonb_build_object('contact_id', $1::text))"
IN_DOUBT = """
SELECT d.id::text FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
WHERE d.status = 'uncertain' AND n.envelope #>> '{delivery,message}' = $1
"""
AWAKE_SECONDS = 2.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apart(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet whose daemons are processes of their own."""
    made = await Fleet.start(await bench.house(), "each")
    yield made
    await made.abandon()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "stage", "word", "sendings"),
    [  # each channel and each word once: neither asks for the other
        ("telegram", "byte.telegram_unwritten", "again", 1),
        ("email", "byte.mail_unwritten", "leave", 0),
    ],
)
async def test_a_messenger_that_stood_still_does_not_write_the_last_byte(
    apart: Fleet, channel: str, stage: str, word: str, sendings: int
) -> None:
    await apart.kill("messenger")
    sleeper = begin(apart, "messenger", [Armed(stage, stop=True)])
    await apart.until_ready(sleeper)
    said, contact = fresh.words("asleep"), await apart.contact("Anna", telegram=fresh.chat(), email=fresh.address())
    await apart.sql(RULE, contact)
    telling = asyncio.ensure_future(apart.notify(channel=channel, contact_id=contact, message=said))

    async def asleep() -> bool:
        return stands(sleeper.pid)

    await eventually(asleep)
    other = begin(apart, "messenger")
    await apart.until_ready(other)
    doubt = await eventually(partial(apart.value, IN_DOUBT, said))
    code, _, err = await apart.house.butlers("deliveries", "resolve", str(doubt), word)
    assert code == 0, err

    async def sent() -> bool:
        return len(await apart.outside.having(said)) >= sendings

    await eventually(sent)
    sleeper.send(signal.SIGCONT)
    await asyncio.sleep(AWAKE_SECONDS)
    arrived = [entry for entry in await apart.outside.having(said) if entry.to not in {str(OWNER), OWNER_EMAIL}]
    assert len(arrived) == sendings
    await telling


@dataclass(slots=True)
class Asleep:
    """A part at whose finishing, after the marker, something happens first."""

    inner: Prepared
    happens: Callable[[], object]

    async def finish(self, *held: Any) -> Receipt | SendFailed:  # noqa: ANN401  # whatever it is given
        self.happens()
        return await self.inner.finish(*held)

    async def abandon(self) -> None:
        await self.inner.abandon()


@dataclass(slots=True)
class Sleeping:
    """A way out of such parts."""

    inner: Channel
    happens: Callable[[], object]
    name: str = "telegram"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        prepared = await self.inner.prepare(wire)
        return prepared if isinstance(prepared, SendFailed) else Asleep(prepared, self.happens)

    async def probe(self) -> SendFailed | None:
        return await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(cluster: Cluster) -> AsyncIterator[House]:
    async with opened(cluster, loops=False) as made:
        yield made


def asleep_for(house: House, channel: str, boot: float, wall: float) -> Worker:
    """A worker whose computer's clocks go on so far between the marker and the last byte, without it."""
    gone = [0.0, 0.0]

    def clock() -> Moment:
        now = moment()
        return Moment(now.boot + gone[0], now.wall + gone[1])

    def sleep() -> None:
        gone[:] = boot, wall

    real = house.worker()
    worker = house.worker(**{channel: Sleeping(real.channels[channel], sleep)})
    worker.clock = clock
    return worker


@pytest.mark.parametrize("channel", ["telegram", "email"])
@pytest.mark.parametrize(("boot", "wall"), [(30.0, 30.0), (30.0, 0.0), (0.0, 30.0), (0.0, -30.0)])
async def test_a_computer_that_slept_does_not_write_the_last_byte(
    house: House, channel: str, boot: float, wall: float
) -> None:
    said = fresh.words("asleep")
    told = await in_queue(house, said, channel=channel)
    await work(asleep_for(house, channel, boot, wall))
    row = await house.delivery(told)
    assert (house.sent(said), row["status"], row["reason"]) == ([], "queued", "unavailable")
    await house.sql.execute(DUE, told)
    await work(house.worker())
    assert len(house.sent(said)) == 1


async def test_who_was_away_for_a_stagewrites_it(house: House) -> None:
    said = fresh.words("awake")
    await in_queue(house, said)
    await work(asleep_for(house, "telegram", 2.0, 2.0))
    assert len(house.sent(said)) == 1


@pytest.mark.slow
async def test_what_stands_still_after_the_marker_is_seen_right_before_the_byte(house: House) -> None:
    said = fresh.words("still")
    await in_queue(house, said)
    real = house.worker().channels["telegram"]
    await work(house.worker(telegram=Sleeping(real, lambda: time.sleep(STANDARD.lease.total_seconds()))))
    assert house.sent(said) == []
