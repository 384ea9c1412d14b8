"""What a notify costs, and how many go at once: `python -m tests.bench.load [CALLS]`, two hundred if none is said.

For one process and for a process per daemon it prints, by the number of callers, calls a second and their times, of
notify to the owner and of the refused call beside it; then processor time of all processes, WAL and the times of what
parks, and of what was asked before. It writes build/bench-load.json.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import aiohttp
import asyncpg

from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.figures import APART, ONE_PROCESS, Spread
from tests.bench.fleet import House, house, resident_megabytes
from tests.bench.idle import cpu_seconds
from tests.bench.measure import GREETER, Raw

WRITTEN = Path(__file__).resolve().parents[2] / "build" / "bench-load.json"
# Of one caller a daemon takes 64 calls at once, and answers 503 to those beyond.
CALLERS = (1, 8, 32, 64)
WARM_UP = 20
# A chat that is nobody's.
ASKED = "5000000000000778"
WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"

Call = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Pace:
    """So many callers at once: calls a second, and the milliseconds of each."""

    callers: int
    per_second: float
    times: Spread


@dataclass(frozen=True, slots=True)
class Cost:
    """What one notify to the owner costs on all processes together."""

    cpu_ms: float
    wal_bytes: float


@dataclass(frozen=True, slots=True)
class Load:
    """What was found of one way to run the fleet."""

    notify: Sequence[Pace]
    refused: Sequence[Pace]
    cost: Cost
    kinds: Mapping[str, Spread]
    # MB of all its processes when it was up, and after so many calls.
    memory: tuple[float, float]
    called: int


async def paced(call: Call, callers: int, calls: int) -> Pace:
    """Let so many callers share the calls, each beginning its next when it has its answer."""
    numbers, found = iter(range(calls)), list[float]()

    async def one() -> None:
        for n in numbers:
            began = time.perf_counter()
            await call(n)
            found.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(callers)))
    return Pace(callers, round(calls / (time.perf_counter() - began), 1), Spread.of(found))


def spent(pids: Sequence[int], database: int) -> float:
    """Return the processor time in seconds of these processes and of all that the database's server began."""
    fields = Path(f"/proc/{database}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    reaped = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{database}/task/{database}/children").read_text(encoding="ascii").split()
    running = [*pids, database, *map(int, children)]
    return float(reaped + sum(cpu_seconds(pid) for pid in running))


async def measured(here: House, pids: Sequence[int], calls: int) -> Load:
    """Measure a fleet that is up."""
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    connection = await asyncpg.connect(server.dsn_of(DATABASE))
    raws = aiohttp.TCPConnector(limit=max(CALLERS))
    try:
        async with aiohttp.ClientSession(connector=raws) as session:
            raw = Raw(session, f"{here.url(GREETER)}/mcp", here.butlers("token", "greeter", "--for", "1h"))
            words = count()
            told = _telling(raw, words)
            await paced(told, 1, WARM_UP)
            at_first = resident_megabytes(pids)
            refused = [await paced(lambda n: raw.call("fax", f"no {n}", "error"), many, calls) for many in CALLERS]
            notify = [await paced(told, many, calls) for many in CALLERS]
            cpu, wal = spent(pids, server.pid), float(await connection.fetchval(WAL))
            await paced(told, 1, calls)
            cpu, wal = spent(pids, server.pid) - cpu, float(await connection.fetchval(WAL)) - wal
            cost = Cost(round(cpu * 1000 / calls, 2), round(wal / calls, 0))
            kinds = await _kinds(raw, words, calls)
            memory = (round(at_first, 1), round(resident_megabytes(pids), 1))
            return Load(notify, refused, cost, kinds, memory, next(words))
    finally:
        await connection.close()


def _telling(raw: Raw, words: "count[int]") -> Call:
    async def told(_: int) -> None:
        await raw.call("telegram", f"load {next(words)}", "ok")

    return told


async def _kinds(raw: Raw, words: "count[int]", calls: int) -> dict[str, Spread]:
    """The times of a notify that parks, of one that was settled before, and of eight that are one in flight."""

    async def parked(_: int) -> None:
        await raw.call("telegram", f"parks {next(words)}", "pending_approval", ASKED)

    async def again(_: int) -> None:
        await raw.call("telegram", "said before", "ok")

    async def together(n: int) -> None:
        await asyncio.gather(*(raw.call("telegram", f"eight at once {n}", "ok") for _ in range(8)))

    few = max(5, calls // 10)
    await again(0)
    # What waits for the owner is bounded, so that only a few park.
    found = {
        "parks": await paced(parked, 1, min(few, 20)),
        "a repetition of what is settled": await paced(again, 1, calls),
        "eight equal calls at once": await paced(together, 1, few),
    }
    return {name: pace.times for name, pace in found.items()}


def section(calls: int) -> str:
    """Measure both ways to run the fleet, write the figures, and return them as Markdown."""
    found, before = dict[str, Load](), os.getloadavg()[0]
    for name, start in ((ONE_PROCESS, House.up), (APART, House.apart)):
        with house() as here, start(here) as running:
            found[name] = asyncio.run(measured(here, list(running.pids.values()), calls))
    WRITTEN.parent.mkdir(exist_ok=True)
    written = {name: asdict(load) for name, load in found.items()}
    WRITTEN.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    others = f"Load average before {before:.2f}, after {os.getloadavg()[0]:.2f}."
    return "\n\n".join([others, *(_table(name, load) for name, load in found.items())])


def _table(name: str, load: Load) -> str:
    head = "| callers | notify/s | median | p99 | refused/s | median | notify / refused |"
    rows = [
        f"| {told.callers} | {told.per_second} | {told.times.median} | {told.times.p99} | {no.per_second} |"
        f" {no.times.median} | {told.times.median / no.times.median:.2f} |"
        for told, no in zip(load.notify, load.refused, strict=True)
    ]
    kinds = [f"| {kind} | {times.median} | {times.p99} |" for kind, times in load.kinds.items()]
    spends = f"{load.cost.cpu_ms} ms of processor time on all processes, and {load.cost.wal_bytes:.0f} bytes of WAL"
    table = [head, "| ---: " * 7 + "|", *rows]
    others = ["| milliseconds | median | p99 |", "| --- | ---: | ---: |", *kinds]
    kept = f"Memory is {load.memory[0]} MB at first and {load.memory[1]} MB after {load.called:,} of these calls."
    told = f"A notify takes {spends}. {kept}"
    return "\n\n".join([f"### Load, in {name}", "\n".join(table), told, "\n".join(others)])


if __name__ == "__main__":
    print(section(int(sys.argv[1]) if sys.argv[1:] else 200))
