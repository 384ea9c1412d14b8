"""Quiet recoveries: one daemon or PostgreSQL vanishes, and what is told after that is sent within ten seconds.

The rig starts again at once what was killed, as a supervisor would, by a fork that has imported the libraries before.
Somebody goes on telling third parties something all the while, five times a second. The figures are in
build/figures/recovery.json.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Final

import aiohttp
import asyncpg
import pytest
import pytest_asyncio

from shared.rpc import request_of
from tests.chaos.ledger import all_ready
from tests.chaos.load import People, people
from tests.rig import figures, fresh
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

TELLS: Final = "health"
ALSO_TELLS: Final = "greeter"
# Who vanishes, by the name it has in the figures.
KILLED: Final = {"messenger": "messenger", "switchboard": "switchboard", "butler": TELLS}
BLOWS: Final = 5
GOAL_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.2
# So long a caller waits: then so few are at it at once that none is turned away.
HANGS_UP_SECONDS: Final = 4.0
SLOW_SECONDS: Final = 9
NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
IN_HAND: Final = """
SELECT count(*) FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
WHERE d.status = 'sending' AND n.envelope #>> '{delivery,message}' = $1
"""
# Seconds until the first receipt of something that was told after that moment.
FIRST_SENT: Final = """
SELECT extract(epoch FROM min(d.settled_at))::float8 - $1 FROM messenger.deliveries d
JOIN shared.notifications n ON n.id = d.notification_id
WHERE d.status = 'sent' AND d.channel = 'telegram' AND n.created_at > to_timestamp($1)
"""
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Caller:
    """Somebody on one fleet who tells one after the other something, and waits for no answer."""

    def __init__(self, fleet: Fleet, who: People, tokens: Mapping[str, str]) -> None:
        self.fleet, self.who = fleet, who
        self._doors = {name: (f"{fleet.url(name)}/mcp", token) for name, token in tokens.items()}
        self._calls: set[asyncio.Task[None]] = set()

    async def tell_for_ever(self) -> None:
        """By Telegram, until it is cancelled."""
        for contact in itertools.cycle(self.who.ruled):
            self.begin(TELLS, channel="telegram", contact_id=contact, message=fresh.words("on"))
            await asyncio.sleep(PAUSE_SECONDS)

    def begin(self, name: str, **arguments: str) -> None:
        """Tell it by that butler, beside everything else."""
        call = asyncio.create_task(self._tell(*self._doors[name], arguments))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _tell(self, url: str, token: str, arguments: Mapping[str, str]) -> None:
        headers, body = request_of(token, "notify", arguments, 1)
        with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            async with (
                asyncio.timeout(HANGS_UP_SECONDS),
                self.fleet.http.post(url, json=body, headers=headers) as answer,
            ):
                await answer.read()

    async def end(self) -> None:
        """Wait for no answer any more."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(bench: Bench) -> AsyncIterator[Caller]:
    """A fleet with a process per daemon, and somebody who calls."""
    fleet = await Fleet.start(await bench.house(), "each")
    made = Caller(fleet, await people(fleet), {name: await fleet.token(name) for name in (TELLS, ALSO_TELLS)})
    telling = asyncio.create_task(made.tell_for_ever())
    yield made
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    await made.end()
    await fleet.stop()


async def seconds_to_the_first(fleet: Fleet, since: float) -> float:
    """From that moment to the first receipt of what was told after it."""

    async def look() -> object:
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            if fleet.db.is_closed():
                await fleet.reconnect()
            return await fleet.value(FIRST_SENT, since)
        return None

    return float(str(await eventually(look)))


async def takes_something_along(caller: Caller, nth: int) -> None:
    """Wait until the Messenger waits for the receipt of a mail, which only the end of its lease sets free."""
    said = fresh.words("in hand")
    await caller.fleet.outside.fault("email", "dot", "slow", value=SLOW_SECONDS, times=1)
    caller.begin(ALSO_TELLS, channel="email", contact_id=caller.who.ruled[nth], message=said)

    async def held() -> object:
        return await caller.fleet.value(IN_HAND, said)

    await eventually(held)


@pytest.mark.parametrize("kind", KILLED)
async def test_a_daemon_that_is_killed(caller: Caller, kind: str) -> None:
    fleet, name, took = caller.fleet, KILLED[kind], []
    for nth in range(BLOWS):
        if kind == "messenger":
            await takes_something_along(caller, nth)
        await fleet.kill(name)
        since = float(str(await fleet.value(NOW)))
        await fleet.restart(name)
        took.append(await seconds_to_the_first(fleet, since))
        judge(kind, took)


async def test_postgresql_that_crashes(caller: Caller, bench: Bench) -> None:
    fleet, took, alone = caller.fleet, list[float](), list[float]()
    for _ in range(BLOWS):
        since = float(str(await fleet.value(NOW)))
        started = time.monotonic()
        await asyncio.to_thread(bench.crash_postgres)
        alone.append(time.monotonic() - started)
        took.append(await seconds_to_the_first(fleet, since))
        judge("postgresql", took, it_alone=round(median(alone), 2))
        await all_ready(fleet)


def judge(kind: str, took: Sequence[float], **more: float) -> None:
    """Keep the figures so far, whatever they say; `it_alone` is the median until it took connections again."""
    told = {"blows": len(took), "median": round(median(took), 2), "most": round(max(took), 2), **more}
    figures.keep("recovery", {kind: told})
    assert max(took) <= GOAL_SECONDS, took
