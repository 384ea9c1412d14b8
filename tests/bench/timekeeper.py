"""The timekeeper's figures: `python -m tests.bench.timekeeper`, and the last table of `python -m tests.bench`.

Each answer is beside the bare SQL of it: the same statements by SQLite alone, with nothing made of their rows.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp
from PIL import Image

from butlers.butler import ToolCall
from butlers.modules.manictime import ManicTime, components, desk_of
from butlers.modules.manictime.answers import Given
from butlers.modules.manictime.fixture import Record, local, write
from butlers.modules.manictime.forms import APPS, DOCS, USAGE
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.screenshots import Desk
from butlers.modules.manictime.tools.summaries import SUMMARIES
from butlers.modules.manictime.tools.timelines import Ask
from shared.auth.tokens import Caller
from shared.rpc import request_of
from tests.bench.fleet import house
from tests.bench.measure import GREETER, Raw

ROUNDS: Final = 5
FIRST: Final = date(2025, 1, 1)
DAY: Final = {"startDate": "2025-01-01", "endDate": "2025-01-02"}
MONTH: Final = {"startDate": "2025-01-01", "endDate": "2025-02-01"}
SHOTS: Final = 100_000
WIDE, HIGH = 3840, 2160
CALLS: Final = 300
# Without these, what they hold is computed from single rows.
SUMS: Final = ("Ar_CommonGroup", "Ar_ApplicationByDay", "Ar_ApplicationByYear", "Ar_WebSiteByDay")
TOML: Final = """name = "timekeeper"
description = "Knows the day."
modules = ["manictime"]
[manictime]
data = "{data}"
"""
# Run in a process of its own, which has nothing else in memory: the module's part, and what 31 days add to it.
MEMORY: Final = """
import sys
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:"))
import butlers.daemon.app
before = peak()
from pathlib import Path
from butlers.modules.manictime import ManicTime, components, desk_of
from butlers.modules.manictime.answers import Given, as_json
from butlers.modules.manictime.tools.summaries import SUMMARIES
from butlers.modules.manictime.tools.timelines import Ask
desk = desk_of(ManicTime(data=Path(sys.argv[1]), timezone="Europe/Vienna"))
components(desk)
loaded = peak()
told, answer = next(one for one in SUMMARIES if one[0].name == "get_activity_narrative")
given = Given(told.params, {"startDate": "2025-01-01", "endDate": "2025-02-01", "includeSummary": True})
as_json(desk.source.read_here(lambda snapshot: answer(Ask(snapshot, given, desk.zone, desk.pictures)), 600))
print(loaded - before, peak() - before)
"""


def desk_over(folder: Path) -> Desk:
    """Return the module's desk over a record."""
    return desk_of(ManicTime(data=folder, timezone="Europe/Vienna"))


async def answered(desk: Desk, name: str, said: Mapping[str, object]) -> None:
    """Call a tool as a client's call reaches it."""
    tool = next(one for one in components(desk).tools if one.name == name)
    made = await tool.handler(ToolCall(Caller("timekeeper", "client", "bench"), said))
    if made.is_error:
        raise RuntimeError(f"{name} failed: {made.blocks}")


def crowded(days: int, a_day: int) -> Record:
    """Return so many activities on each of these days: half of applications, half of what was open in them."""
    made, draw = Record("A"), random.Random(3)  # the same record every time
    lasts = 86_400 * 2 / a_day
    for number in range(days):
        midnight = local(FIRST + timedelta(days=number), 0)
        made.add(USAGE, 1, midnight, 86_399)
        for nth in range(a_day // 2):
            at = midnight + timedelta(seconds=nth * lasts)
            made.add(APPS, draw.choice((1, 2, 3, 4)), at, lasts - 1)
            made.add(DOCS, draw.choice((1, 2, 3, 4)), at, lasts - 1)
    return made


def shots(folder: Path, count: int) -> None:
    """Lay so many names of screenshots over the month, empty files, and one picture of 4K on the day behind it."""
    for number in range(count):
        at = local(FIRST, 0) + timedelta(seconds=number * 31 * 86_400 // count)
        day = folder / f"{at:%Y-%m-%d}"
        day.mkdir(parents=True, exist_ok=True)
        (day / f"{at:%Y-%m-%d_%H-%M-%S}_01-00_{WIDE}_{HIGH}_{number}_0.jpg").touch()
    last = folder / "2025-02-01"
    last.mkdir()
    picture = Image.effect_noise((WIDE, HIGH), 40).convert("RGB")
    picture.save(last / f"2025-02-01_12-00-00_01-00_{WIDE}_{HIGH}_{count}_0.jpg", quality=85)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Return the median of some rounds, in milliseconds."""
    found = list[float]()
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await work()
        found.append((time.perf_counter() - begun) * 1000)
    return median(found)


def bare(desk: Desk, name: str, said: Mapping[str, object]) -> float:
    """Return how long SQLite alone takes for the statements of a tool, in milliseconds."""
    told, answer = next(one for one in SUMMARIES if one[0].name == name)

    def look(snapshot: Snapshot) -> float:
        statements = list[str]()
        snapshot.connection.set_trace_callback(statements.append)
        answer(Ask(snapshot, Given(told.params, said), desk.zone, desk.pictures))
        snapshot.connection.set_trace_callback(None)
        found = list[float]()
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            for one in statements:
                snapshot.connection.execute(one).fetchall()
            found.append((time.perf_counter() - begun) * 1000)
        return median(found)

    return desk.source.read_here(look, seconds=600)


async def rows(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure everything; what, how long, beside the bare SQL, and what is wanted."""
    day, month, single = folder / "day", folder / "month", folder / "single"
    write(day, crowded(1, 10_000))
    record = crowded(31, 12_904)
    write(month, record)
    write(single, record, without=SUMS)
    shots(month / "Screenshots", SHOTS)
    made = list[tuple[str, str, str, str]]()
    for what, place, name, said, wanted in (
        ("one day of 5,000 activities narrated", day, "get_activity_narrative", {**DAY, "includeSummary": True}, 150),
        ("31 days of 400,000 activities summed up", month, "get_period_summary", MONTH, 400),
        ("the same 31 days from single rows", single, "get_period_summary", MONTH, 3000),
    ):
        desk = desk_over(place)
        took, least = await timed(lambda: answered(desk, name, said)), bare(desk, name, said)  # noqa: B023  # at once
        made.append((what, f"{took:.0f} ms", f"{took / least:.1f} times {least:.0f} ms", f"{wanted} ms"))
    made += [(what, f"{took:.0f} ms", "", f"{wanted} ms") for what, took, wanted in await of_pictures(month)]
    return made


def memory(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure what the module adds to a process that has a daemon's code: by itself, and once it narrates a month."""
    ended = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True)
    loaded, narrating = map(float, ended.stdout.split())
    first = ("memory of the module", f"{loaded:.0f} MB", "", "40 MB")
    return [first, ("the same while it narrates 31 days", f"{narrating:.0f} MB", "", "120 MB")]


async def of_pictures(folder: Path) -> Sequence[tuple[str, float, int]]:
    """Measure listing and cutting: what, milliseconds, and what is wanted."""
    desk = desk_over(folder)
    listing = await timed(lambda: answered(desk, "list_screenshots", DAY))
    [large] = [one for one in desk.pictures.captures() if one.identity.startswith("2025-02-01")]
    box = {"screenshotRef": large.ref, "x": 25, "y": 25, "width": 20, "height": 20}
    cutting = await timed(lambda: answered(desk, "crop_screenshot", box))
    every = await timed(lambda: answered(desk, "list_screenshots", MONTH))
    return [
        (f"a day listed among {SHOTS:,} screenshots", listing, 200),
        (f"all {SHOTS:,} of them", every, 200),
        ("a part of a 4K picture", cutting, 120),
    ]


def busy(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure the no-op call of a daemon whose timekeeper nobody asks anything, and that of one that narrates."""
    with house() as here:
        made = here.folder / "fleet" / "timekeeper"
        made.mkdir(parents=True)
        (made / "butler.toml").write_text(TOML.format(data=folder))
        (made / "PERSONA.md").write_text("Exact.\n")
        with here.up("--fleet", "fleet"):
            token = here.butlers("token", "timekeeper", "--for", "1h")
            idle, working = asyncio.run(no_ops(f"{here.url(GREETER)}/mcp", token))
    return [("no-op while it narrates a day again and again", f"{working:.1f} ms", f"at rest {idle:.1f} ms", "")]


async def no_ops(url: str, token: str) -> tuple[float, float]:
    """Return the median of the no-op call by itself, and beside narrations, in milliseconds."""
    async with aiohttp.ClientSession() as session:
        raw = Raw(session, url, token)

        async def call() -> float:
            begun = time.perf_counter()
            await raw.call("fax", "bench", "error")
            return (time.perf_counter() - begun) * 1000

        async def narrate() -> None:
            headers, body = request_of(token, "get_activity_narrative", DAY, 1)
            while True:
                async with session.post(url, json=body, headers=headers) as answer:
                    answer.raise_for_status()
                    await answer.read()

        idle = median([await call() for _ in range(CALLS)])
        narrating = asyncio.create_task(narrate())
        await asyncio.sleep(1)
        working = median([await call() for _ in range(CALLS)])
        narrating.cancel()
        return idle, working


def section() -> str:
    """Measure, and return the table."""
    with tempfile.TemporaryDirectory(prefix="butlers-") as folder:
        found = asyncio.run(rows(Path(folder))) + memory(Path(folder) / "month") + busy(Path(folder) / "day")
    lines = [f"{what:45} {took:>9}  {beside:22} {wanted:>8}" for what, took, beside, wanted in found]
    return "\n".join([f"{'The timekeeper':45} {'median':>9}  {'beside the bare SQL':22} {'wanted':>8}", *lines])


if __name__ == "__main__":
    print(section())
