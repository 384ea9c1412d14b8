"""Measure: `python -m tests.bench [--rounds N] [--record]`; prints tables and writes build/bench.json.

After them come load, growth, the installation, the timekeeper, clocks and sessions, and conversations.
`--record` also puts the run where the documentation quotes it: docs/benchmarks.json and
docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

from shared.db import dsn
from shared.postgres import server as postgres
from tests.bench import conversations, growth, hands, installed, load, timekeeper
from tests.bench.figures import APART, ONE_PROCESS, Mode, Run, Spread, table, with_figures
from tests.bench.fleet import House, Running, house, resident_megabytes
from tests.bench.measure import due_to_first_call, times, transactions
from tests.run import commit

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ROOT / "build" / "bench.json"
RECORD = ROOT / "docs" / "benchmarks.json"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
WARM_UP = 20
LOAD_CALLS = 200
SECTIONS: tuple[Callable[[], str], ...] = (
    partial(load.section, LOAD_CALLS),
    growth.section,
    installed.section,
    timekeeper.section,
    hands.section,
    conversations.section,
)
# Prompts that fall due, two seconds apart.
DUE = 5

Start = Callable[[House], AbstractContextManager[Running]]
MODES: dict[str, Start] = {ONE_PROCESS: House.up, APART: House.apart}


def measure(start: Start, rounds: int, starts: int) -> Mode:
    """Everything about one way to run the fleet."""
    cold = [_start_once(start) for _ in range(starts - 1)]
    with house() as here:
        with start(here) as running:
            cold.append(running.seconds)
        warm = []
        for _ in range(starts - 1):
            with start(here) as running:
                warm.append(running.seconds)
        with start(here) as running:
            warm.append(running.seconds)
            found = asyncio.run(times(here, rounds, WARM_UP))
            each, at_rest = asyncio.run(transactions(here, _dsn(here), rounds))
            called = round(asyncio.run(due_to_first_call(_dsn(here), DUE)), 3)
            resident = {name: round(resident_megabytes([pid]), 1) for name, pid in running.pids.items()}
    if len(resident) > 1:
        resident["all of them"] = round(sum(resident.values()), 1)
    calls = {name: Spread.of(found[name]) for name in found}
    begun = round(median(cold), 2), round(median(warm), 2)
    return Mode(*begun, calls, round(each, 2), round(at_rest, 2), resident, called)


def _start_once(start: Start) -> float:
    with house() as here, start(here) as running:
        return running.seconds


def _dsn(here: House) -> str:
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    return server.dsn_of(dsn.DATABASE)


def main() -> None:
    """Measure both modes, print, write."""
    asked = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure.")
    asked.add_argument("--rounds", type=int, default=300)
    asked.add_argument("--starts", type=int, default=3)
    asked.add_argument("--record", action="store_true", help="take the run over into the documentation")
    options = asked.parse_args()
    before = os.getloadavg()[0]
    modes = {name: measure(start, options.rounds, options.starts) for name, start in MODES.items()}
    machine = {
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load average before": f"{before:.2f}",
        "after": f"{os.getloadavg()[0]:.2f}",
    }
    run = Run(datetime.now(UTC).date().isoformat(), commit(), machine, options.rounds, modes)
    written = json.dumps(run.as_json(), indent=1) + "\n"
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(written, encoding="utf-8")
    if options.record:
        RECORD.write_text(written, encoding="utf-8")
        DOCUMENT.write_text(with_figures(DOCUMENT.read_text(encoding="utf-8"), run), encoding="utf-8")
    print(table(run))
    for section in SECTIONS:
        print(f"\n{section()}")


if __name__ == "__main__":
    main()
