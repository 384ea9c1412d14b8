"""What a fleet costs that has nothing to do: `python -m tests.bench.idle [BUTLERS]`, a hundred if none is said.

Each butler has a schedule that is not due. A minute and a quarter after the start, when what the start opened is closed
again, it counts half a minute: transactions, the process's share of a core, connections, memory.
"""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.fleet import House, house, resident_megabytes
from tests.bench.measure import COMMITS

SETTLES, COUNTED = 75.0, 30.0
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
TOML = """name = "b{n}"
description = "Waits."
[[schedules]]
name = "new-year"
cron = "0 9 1 1 *"
tool = "notify"
arguments = {{ channel = "telegram", message = "A happy new year." }}
"""


def furnish(here: House, count: int) -> None:
    """Write so many butlers."""
    for n in range(count):
        folder = here.folder / "fleet" / f"b{n}"
        folder.mkdir(parents=True)
        (folder / "butler.toml").write_text(TOML.format(n=n))
        (folder / "PERSONA.md").write_text("Patient.\n")


def cpu_seconds(pid: int) -> float:
    """The time that a process has been on a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True, slots=True)
class AtRest:
    """What a fleet costs that has nothing to do."""

    transactions_per_second: float
    share_of_a_core: float
    connections: int
    megabytes: float

    def __str__(self) -> str:
        """The figures, in a line."""
        per_second, share = f"{self.transactions_per_second:.1f}", f"{self.share_of_a_core:.1%}"
        held, memory = self.connections, f"{self.megabytes:.0f}"
        return f"{per_second} transactions a second, {share} of a core, {held} connections, {memory} MB"


async def counted(here: House, pid: int) -> AtRest:
    """Count after a while."""
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    connection = await asyncpg.connect(server.dsn_of(DATABASE))
    try:
        await asyncio.sleep(SETTLES)
        commits, cpu, began = await connection.fetchval(COMMITS), cpu_seconds(pid), time.monotonic()
        await asyncio.sleep(COUNTED)
        spent = time.monotonic() - began
        per_second = (await connection.fetchval(COMMITS) - commits) / spent
        share = (cpu_seconds(pid) - cpu) / spent
        held = await connection.fetchval(CONNECTIONS)
    finally:
        await connection.close()
    return AtRest(per_second, share, held, resident_megabytes([pid]))


def at_rest(butlers: int) -> AtRest:
    """Start a fleet of so many butlers, and count."""
    with house() as here:
        furnish(here, butlers)
        with here.up("--fleet", "fleet") as running:
            return asyncio.run(counted(here, running.pids["up"]))


def main() -> None:
    """Print the line."""
    print(at_rest(int(sys.argv[1]) if sys.argv[1:] else 100))


if __name__ == "__main__":
    main()
