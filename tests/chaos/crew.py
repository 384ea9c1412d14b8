"""The processes of a campaign: who runs in which place, how each of them died, and what it had in hand then."""

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import asyncpg

from shared.db.pool import Record
from tests.rig.bench import Bench
from tests.rig.failpoints import BY_NAME, Armed
from tests.rig.fleet import READY_AT, Fleet, Rows
from tests.rig.forks import Order, Process

LOOK_SECONDS: Final = 0.02
# How long a process with an armed failpoint may live without reaching it, from when it was started; longer where
# all that is missing is armed, so that another try would wait for the same.
ARMED_SECONDS: Final = 8.0
MOPPING_SECONDS: Final = 25.0
# A lease lasts seven seconds: whoever stands still for longer has lost it.
STILL_SECONDS: Final = 8.5
# A daemon that is started while PostgreSQL is away says so, waits half a minute, and then only ends.
WAITED: Final = "the database is waited for"
STOPPABLE: Final = (
    "claim.taken_after_commit",
    "check.asked_after_commit",
    "prepare.telegram",
    "prepare.mail",
    "marker.written",
    "marker.set_after_commit",
    "byte.telegram_unwritten",
    "byte.telegram_written",
    "byte.mail_unwritten",
    "byte.mail_written",
    "answer.telegram",
    "answer.mail",
    "settle.written_before_commit",
)
STOPS: Final = 0.15
HOLDS_AS: Final = re.compile(r"^holds as (\S+)$", re.MULTILINE)
REACHED: Final = re.compile(r"^(ends|stands) at (\S+)$", re.MULTILINE)
IN_HAND: Final = """
SELECT class || ' ' || status AS state, count(*) FROM messenger.deliveries WHERE claimed_by = $1
    AND status IN ('claimed', 'sending') GROUP BY 1
"""
# Of the dead only: time alone is made shorter by these, the rows are what they would be seconds later.
LEASE_IS_OVER: Final = """
UPDATE messenger.deliveries SET lease_until = clock_timestamp()
WHERE claimed_by = $1 AND status IN ('claimed', 'sending') AND lease_until > clock_timestamp()
"""
POLL_IS_OVER: Final = "UPDATE messenger.pollers SET lease_until = clock_timestamp() WHERE holder = $1"
T = TypeVar("T")


@dataclass(slots=True)
class Place:
    """One process that is to run, whoever it is at the moment."""

    name: str
    arms: bool
    process: Process | None = None
    armed: Sequence[Armed] = ()
    since: float = 0.0
    still_until: float | None = None
    up: bool = False

    @property
    def is_up(self) -> bool:
        """Whether it has begun its work, and lives."""
        if not self.up and self.process is not None:
            self.up = bool(READY_AT.search(self.process.out.read_text()))
        return self.up and self.process is not None and self.process.alive

    @property
    def kind(self) -> str:
        """Which failpoints fit: butlers share theirs."""
        return self.name if self.name in {"messenger", "switchboard", "console"} else "butler"


@dataclass(slots=True)
class Deaths:
    """Who died how, at which failpoint, with what in hand; times are seconds since 1970."""

    daemons: Counter[str] = field(default_factory=Counter)
    failpoints: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    in_hand: Counter[str] = field(default_factory=Counter)
    at: list[float] = field(default_factory=list)
    restarts_at: list[float] = field(default_factory=list)
    by_themselves: list[str] = field(default_factory=list)
    aimed_since: float = inf


class Schedule:
    """Which failpoint is armed next: those hit least come first, in an order that the seed decides."""

    def __init__(self, rng: Random, names: Iterable[str], least: int = 1) -> None:
        self._rng, self._least = rng, least
        self.mopping = False
        self._hits: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._names = sorted(names)
        rng.shuffle(self._names)

    def next(self, kind: str) -> tuple[Armed, ...]:
        """The next for a daemon of this kind, and whatever is rare and missing; in mopping up all that is missing."""
        fitting = [name for name in self._names if BY_NAME[name].daemon == kind]
        missing = [name for name in self.missing(self._least) if name in fitting]
        if self.mopping or not fitting:
            return tuple(Armed(name) for name in missing)
        name = min(fitting, key=lambda one: (self._hits[one] + 0.5 * self._tried[one], self._names.index(one)))
        self._tried[name] += 1
        often = 1 if self._hits[name] == 0 or BY_NAME[name].rare else self._rng.randint(1, 3)
        stop = name in STOPPABLE and self._hits[name] > 0 and self._rng.random() < STOPS
        rare = (Armed(one) for one in missing if BY_NAME[one].rare and one != name)
        return Armed(name, often, stop), *rare

    def hit(self, name: str) -> None:
        """It was reached."""
        self._hits[name] += 1
        self._tried[name] = 0

    def missing(self, least: int = 1) -> list[str]:
        """Those that were not hit so often, in the order of this seed."""
        return [name for name in self._names if self._hits[name] < least]


class Crew:
    """All places of one fleet; `keep` starts again whoever died, until it is told to let them live."""

    def __init__(self, fleet: Fleet, bench: Bench, counts: Mapping[str, int], schedule: Schedule) -> None:
        self.fleet, self.bench, self.schedule = fleet, bench, schedule
        self.deaths = Deaths()
        self.calm = False
        self._asking = asyncio.Lock()
        self._askers: set[asyncio.Task[None]] = set()
        self.places = [Place(name, arms=n > 0) for name, count in counts.items() for n in range(count)]

    def of(self, name: str) -> list[Place]:
        """All places of one daemon."""
        return [place for place in self.places if place.name == name]

    async def begin(self) -> None:
        """Take over what the fleet has started, and start what is missing."""
        for process in [one for name in {p.name for p in self.places} for one in self.fleet.running[name]]:
            process.send(signal.SIGTERM)
            await process.wait()
        for name in {place.name for place in self.places}:
            self.fleet.running[name] = []
        for place in self.places:
            self._start(place, armed=())
        await self._all_said_ready()

    async def _all_said_ready(self) -> None:
        async with asyncio.timeout(30):
            while any(len(self.fleet.urls(place.name)) == 0 for place in self.places):
                await asyncio.sleep(LOOK_SECONDS)

    def _start(self, place: Place, armed: Sequence[Armed]) -> None:
        place.process = begin(self.fleet, place.name, armed)
        place.armed, place.since = armed, time.monotonic()
        place.still_until, place.up = None, False

    async def keep(self) -> None:
        """For ever: find the dead and the standing, count them, and put others in their places."""
        while True:
            for place in self.places:
                await self._look_after(place)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_after(self, place: Place) -> None:
        process = place.process
        assert process is not None
        if not process.alive:
            self.fleet.running[place.name].remove(process)
            self._count(place, process)
            arms = (place.arms or self.schedule.mopping) and not self.calm
            self._start(place, self.schedule.next(place.kind) if arms else ())
            # Beside this loop: whoever holds up the database may be one that only this loop lets go on.
            asking = asyncio.create_task(self._left_by(process))
            self._askers.add(asking)
            asking.add_done_callback(self._askers.discard)
        elif place.still_until is not None:
            if self.calm or time.monotonic() > place.still_until:
                place.still_until = None
                process.send(signal.SIGCONT)
        elif any(one.stop for one in place.armed) and stands(process.pid):
            self.deaths.stops.update(self._reached(process, "stands"))
            place.armed, place.still_until = (), time.monotonic() + STILL_SECONDS
        elif place.armed and time.monotonic() > place.since + self._patience and not self.calm:
            self.strike(place)

    @property
    def _patience(self) -> float:
        return MOPPING_SECONDS if self.schedule.mopping else ARMED_SECONDS

    def mop_up(self) -> None:
        """From here on everybody, whoever it is, ends at the first failpoint that is missing; all begin anew."""
        self.schedule.mopping, self.deaths.aimed_since = True, time.time()
        for place in self.places:
            if self.schedule.next(place.kind):
                self.strike(place)

    def _reached(self, process: Process, how: str) -> list[str]:
        """The failpoint at which it says it ends, or stands: one or none; it is hit by that."""
        found = [said[2] for said in REACHED.finditer(process.out.read_text()) if said[1] == how]
        for name in found:
            self.schedule.hit(name)
        return found

    def strike(self, place: Place) -> None:
        """SIGKILL from outside."""
        assert place.process is not None
        place.process.send(signal.SIGKILL)

    def stand(self, place: Place) -> None:
        """SIGSTOP from outside, past the lease."""
        assert place.process is not None
        place.process.send(signal.SIGSTOP)
        place.still_until = time.monotonic() + STILL_SECONDS
        self.deaths.stops["at random"] += 1

    def _count(self, place: Place, process: Process) -> None:
        deaths = self.deaths
        was_up = place.is_up or place.up
        if process.code == 1 and not was_up and WAITED in process.err.read_text(errors="replace"):
            deaths.daemons["not started: no database"] += 1
            return
        if process.code != -signal.SIGKILL:
            deaths.by_themselves.append(f"{place.name} ended by itself with {process.code}: {_last_words(process)}")
            return
        deaths.at.append(time.time())
        deaths.daemons[place.name] += 1
        deaths.failpoints.update(self._reached(process, "ends"))

    async def _left_by(self, process: Process) -> None:
        """Count what the dead one had in hand, and let its leases run out at once."""
        said = HOLDS_AS.search(process.out.read_text())
        if said is None:
            self.deaths.in_hand["nothing yet"] += 1
            return
        held = await self.ask(partial(_left, holder=said[1], name=process.order.argv[1]))
        self.deaths.in_hand.update([row["state"] for row in held] or ["nothing"])

    async def ask(self, what: Callable[[Rows], Awaitable[T]]) -> T:
        """Ask the database as the superuser, one after the other, and again and again while it is away."""
        deadline = time.monotonic() + 20
        while True:
            try:
                async with self._asking:
                    return await what(self.fleet.db)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
                with suppress(asyncpg.PostgresError, OSError):
                    async with self._asking:
                        if self.fleet.db.is_closed():  # else another that asks has connected again
                            await self.fleet.reconnect()

    async def crash_postgres(self) -> None:
        """An immediate restart of PostgreSQL under everybody's feet."""
        self.deaths.restarts_at.append(time.time())
        await asyncio.to_thread(self.bench.crash_postgres)


def begin(fleet: Fleet, name: str, armed: Sequence[Armed] = ()) -> Process:
    """One more process of that daemon, with failpoints or none; it is known by its URL as soon as it says it."""
    house = fleet.house
    log = house.folder / "logs" / f"{name}-{len(fleet.started) + 1}"
    log.parent.mkdir(exist_ok=True)
    words = [word for one in armed for word in one.words]
    process = house.forks.spawn(Order(["run", name], house.env, house.folder, log, house.code, chaos=words))
    fleet.running.setdefault(name, []).append(process)
    fleet.started.append(process)
    return process


def stands(pid: int) -> bool:
    """Whether a process is stopped, by the kernel's word."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


async def _left(rows: Rows, *, holder: str, name: str) -> list[Record]:
    who = f"{name}@{holder}"
    held = list(await rows.fetch(IN_HAND, who)) if name == "messenger" else []
    if name == "messenger":
        await rows.execute(LEASE_IS_OVER, who)
        await rows.execute(POLL_IS_OVER, who)
    return held


def _last_words(process: Process) -> str:
    lines = process.err.read_text(errors="replace").splitlines()
    return " / ".join(lines[-3:])
