"""What butlers with a clock and agents cost: `python -m tests.bench.hands`, the last table of `python -m tests.bench`.

A hundred butlers at rest, a thousand prompts due in one second, the way from due to the first call, and the memory of a
session's process, each beside what is wanted.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg

from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.fleet import house
from tests.bench.idle import at_rest
from tests.bench.measure import due_to_first_call
from tests.bench.runtimes import measured
from tests.integration.runtime.story import CHAT, MESSAGES, SCRIPT

MANY: Final = 1000
LATEST: Final = 180.0
DUE: Final = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, next_due_at)
SELECT 'greeter', 'many' || n, 'tool', due, 'UTC', 'Well?', 'once', due
FROM generate_series(1, $1) AS n, (SELECT clock_timestamp() + interval '1 s' AS due) AS at
RETURNING extract(epoch FROM once_at - clock_timestamp())::float8 AS ahead
"""
CLAIMED: Final = "SELECT count(*) FROM shared.occurrences WHERE schedule_id IN (SELECT id FROM shared.schedules)"
TWICE: Final = """
SELECT count(*) FROM (SELECT FROM shared.sessions WHERE occurrence_id IS NOT NULL
    GROUP BY occurrence_id HAVING count(*) > 1) twice
"""
PLAYERS: Final = (("script", SCRIPT, 60), ("agent, Messages", MESSAGES, 200), ("agent, Chat", CHAT, 200))
Row = tuple[str, str, str]


async def many_due(dsn: str) -> Row:
    """Let a thousand prompts fall due in one second, and wait until each has its session."""
    connection = await asyncpg.connect(dsn)
    try:
        ahead = (await connection.fetch(DUE, MANY))[0]["ahead"]
        began = time.monotonic() + ahead
        async with asyncio.timeout(LATEST):
            while await connection.fetchval(CLAIMED) < MANY:
                await asyncio.sleep(0.1)
        took, twice = time.monotonic() - began, await connection.fetchval(TWICE)
    finally:
        await connection.close()
    return f"{MANY:,} due in one second, claimed", f"{took:.1f} s, {twice} twice", "60 s, none"


def by_the_clock() -> list[Row]:
    """Measure what is due in a fleet of one butler."""
    with house() as here, here.up():
        server = postgres.running(here.home)
        if server is None:
            raise RuntimeError("The database is not running.")
        dsn = server.dsn_of(DATABASE)
        first = asyncio.run(due_to_first_call(dsn, 5))
        return [("from due to a script's first call", f"{first:.2f} s", "0.5 s"), asyncio.run(many_due(dsn))]


def idle() -> list[Row]:
    """Measure a hundred butlers at rest."""
    found = at_rest(100)
    return [
        ("100 butlers at rest: of a core", f"{found.share_of_a_core:.1%}", "2 %"),
        ("the same: memory", f"{found.megabytes:.0f} MB", "400 MB"),
        ("the same: connections", str(found.connections), "12"),
        ("the same: transactions a second", f"{found.transactions_per_second:.1f}", "15"),
    ]


def sessions() -> list[Row]:
    """Measure the processes of sessions."""
    made = list[Row]()
    for name, player, wanted in PLAYERS:
        with tempfile.TemporaryDirectory() as folder:
            most, _ = asyncio.run(measured(player, Path(folder).resolve()))
        made.append((f"memory of a session: {name}", f"{most} MB", f"{wanted} MB"))
    return made


def section() -> str:
    """Measure, and return the table."""
    rows = [("Butlers with hands", "measured", "wanted"), *idle(), *by_the_clock(), *sessions()]
    return "\n".join(f"{what:42} {found:>16} {wanted:>12}" for what, found, wanted in rows)


if __name__ == "__main__":
    print(section())
