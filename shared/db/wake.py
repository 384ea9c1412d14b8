"""Wake hints by NOTIFY, and how a flood of them is cut off: a daemon that does not listen looks at each tick.

PostgreSQL has no privileges for NOTIFY. What is queued for a listener is dropped with its connection, so that a flood
costs its listeners a second, and not the time that reading all of it would take. Everything that coordinates daemons is
a row; NOTIFY only shortens a wait and may be lost.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import asyncpg

from shared.db.pool import BREATH_SECONDS, LOST, is_away
from shared.db.proof import Unproved, connect
from shared.loops import first_of, pause
from shared.telemetry.logs import logger
from shared.telemetry.metrics import hint_floods_total

log = logger("shared.db.wake")
# Far more than a busy house sends itself in a second.
MOST_A_SECOND: Final = 1000
DEAF_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 5
WHO = "SELECT usename FROM pg_stat_activity WHERE pid = $1"
Hinted = Mapping[str, Callable[[str], None]]


class Heard:
    """The number of hints that one connection has heard in this second, by session."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = 0
        self._count = 0
        self._senders: Counter[int] = Counter()
        self.flooded = asyncio.Event()

    def __call__(self, wake: Callable[[str], None], *said: object) -> None:
        """Count one notification and call `wake` with its payload; once too many have come, call it no more.

        asyncpg calls its listeners with connection, process id, channel and payload.
        """
        if self.flooded.is_set():
            return
        _, pid, _, payload = said
        if int(self._clock()) != self._second:
            self._second, self._count = int(self._clock()), 0
            self._senders.clear()
        self._count += 1
        self._senders[int(str(pid))] += 1
        if self._count > MOST_A_SECOND:
            self.flooded.set()
            return
        wake(str(payload))

    def loudest(self) -> int:
        """Return the process id of the session that sent most."""
        return self._senders.most_common(1)[0][0]


async def listen(dsn: Callable[[], str], topics: Hinted, stopping: asyncio.Event, deaf: float = DEAF_SECONDS) -> None:
    """Call a topic's function on each NOTIFY until `stopping` is set; reconnect for ever.

    `dsn` is asked for the URL at each connection. Where too many hints come, listen to nobody for `deaf` seconds.
    """
    while not stopping.is_set():
        heard = Heard(time.monotonic)
        try:
            connection = await _connected(dsn)
        except (*LOST, asyncpg.PostgresError, Unproved) as refused:
            await pause(stopping, BREATH_SECONDS if is_away(refused) else 1)
            continue
        try:
            await _hear(connection, topics, heard, stopping)
        except (*LOST, asyncpg.PostgresError):
            await pause(stopping, 1)
        finally:
            # Close at once, and drop all that is queued; a session that only listens has nothing to finish.
            connection.terminate()
        if heard.flooded.is_set() and not stopping.is_set():
            login = await _login_of(heard.loudest(), dsn)
            hint_floods_total.labels(login=login).inc()
            log.error("wake hints are flooded: listening to none, looking at each tick", by=login, seconds=deaf)
            await pause(stopping, deaf)


async def _connected(dsn: Callable[[], str]) -> "asyncpg.Connection[asyncpg.Record]":
    return await connect(dsn(), CONNECT_SECONDS)


async def _hear(
    connection: "asyncpg.Connection[asyncpg.Record]", topics: Hinted, heard: Heard, stopping: asyncio.Event
) -> None:
    """Listen until the connection is lost, too much is heard, or this process stops."""
    lost = asyncio.Event()
    connection.add_termination_listener(partial(_set, lost))
    for topic, wake in topics.items():
        await connection.add_listener(topic, partial(heard, wake))
        wake("")
    await first_of(lost, heard.flooded, stopping)


async def _login_of(pid: int, dsn: Callable[[], str]) -> str:
    """Return whose session it is, if it is still there; the name is only reported."""
    try:
        connection = await _connected(dsn)
        try:
            found = await connection.fetchval(WHO, pid, timeout=CONNECT_SECONDS)
        finally:
            connection.terminate()
    except (*LOST, asyncpg.PostgresError, Unproved):
        found = None
    return str(found or "a session that is gone")


def _set(event: asyncio.Event, *_: object) -> None:
    event.set()


class Ticket(asyncio.Event):
    """What a waiter holds: set by the next wake, which may bring what the waiter would look for."""

    news: object = None


class Wake:
    """A hint that something may have changed; many may wait for it, and losing one costs them a tick.

    A waiter for one thing only waits under its key and is not woken for others.
    """

    def __init__(self) -> None:
        self._event = Ticket()
        # An event lives as long as somebody holds its ticket.
        self._keyed: WeakValueDictionary[str, Ticket] = WeakValueDictionary()

    def __call__(self, key: str = "", news: object = None) -> None:
        """Wake all who wait for this key and all who wait for anything; without a key, wake all.

        Who waits for this key gets the news, which is committed.
        """
        event, self._event = self._event, Ticket()
        event.set()
        for known in [key] if key else list(self._keyed):
            waited = self._keyed.pop(known, None)
            if waited is not None:
                waited.news = news
                waited.set()

    def ticket(self, key: str = "") -> Ticket:
        """Return an event that the next wake sets; take it before looking, so that nothing between is missed."""
        if not key:
            return self._event
        event = self._keyed.get(key)
        if event is None:
            event = self._keyed[key] = Ticket()
        return event
