"""Compare this commit with the kept figures: `python -m tests.bench.quick`, half a minute.

It compares a notify in one process, as times the refused call of the same rounds, with docs/benchmarks.json. It gives
no verdict where that was taken on another machine, or where this one is busy before or after. Of three tries the best
counts; it ends with 1 if that is more than 15 % worse.
"""

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.bench.figures import ONE_PROCESS, Run, Spread, read
from tests.bench.fleet import house
from tests.bench.measure import times

KEPT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.json"
ROUNDS, WARM_UP, TRIES = 60, 20, 3
WORSE: Final = 1.15
# Of all cores; what a desktop does by itself is less.
BUSY: Final = 0.15
LOOKED_SECONDS: Final = 1.0


def machine() -> dict[str, str]:
    """What figures must have in common to be compared."""
    system = f"{platform.system()} {platform.machine()}"
    return {"cores": str(os.cpu_count()), "Python": platform.python_version(), "system": system}


def ratio(calls: Mapping[str, Spread]) -> float:
    """How many times the median of the refused call that of a notify is, both as one HTTP request."""
    return calls["notify, raw"].median / calls["no-op, raw"].median


def no_verdict(kept: Run, here: Mapping[str, str], busy: float) -> str | None:
    """Why nothing can be said, as a sentence; None if something can."""
    if {name: kept.machine.get(name) for name in here} != dict(here):
        return "The kept figures are another machine's: no verdict. Take them anew by `python -m tests.bench --record`."
    if busy > BUSY:
        return f"Others use {busy:.0%} of this machine: no verdict."
    return None


def verdict(kept: float, found: float) -> str | None:
    """What is worse than it was, as a sentence; None if nothing is."""
    if found <= kept * WORSE:
        return None
    return f"A notify is {found:.2f} times the refused call, {found / kept - 1:.0%} more than the kept {kept:.2f}."


def share_in_use() -> float:
    """The share of all cores that was in use during a second."""
    used, idle = _jiffies()
    time.sleep(LOOKED_SECONDS)
    used_now, idle_now = _jiffies()
    return (used_now - used) / max(1, used_now - used + idle_now - idle)


def _jiffies() -> tuple[int, int]:
    fields = [int(one) for one in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle


def main() -> int:
    """Measure, print, and return the exit code."""
    kept, before = read(json.loads(KEPT.read_text(encoding="utf-8"))), share_in_use()
    why = no_verdict(kept, machine(), before)
    if why is not None:
        print(why)
        return 0
    wanted, tries = ratio(kept.modes[ONE_PROCESS].calls), list[float]()
    with house() as here, here.up():
        while len(tries) < TRIES and (not tries or verdict(wanted, min(tries)) is not None):
            found = asyncio.run(times(here, ROUNDS, WARM_UP))
            tries.append(ratio({name: Spread.of(one) for name, one in found.items()}))
    after, worse = share_in_use(), verdict(wanted, min(tries))
    print(f"A notify is {min(tries):.2f} times the refused call; kept are {wanted:.2f}.")
    print(f"In use by others: {before:.0%} before, {after:.0%} after.")
    why = no_verdict(kept, machine(), after)
    if worse is not None:
        print(why or worse)
    return int(worse is not None and why is None)


if __name__ == "__main__":
    sys.exit(main())
