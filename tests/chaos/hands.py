"""The hands' campaign: daemons and the children of sessions are killed while schedules fire and gated tools wait.

Every occurrence has exactly one session, no gated tool runs twice by a machine, and no child is left alive.
"""

import asyncio
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import asyncpg

from shared.db.pool import prepare_connection
from shared.gate.owner_decision import OwnerDecision, apply
from shared.storage import contacts
from tests.acceptance.test_gated_tools import VALVE, runs_of
from tests.rig.bench import Bench, House
from tests.rig.children import PROC, command, folder
from tests.rig.fleet import Fleet
from tests.rig.forks import Process

BUTLERS: Final = ("greeter", "health")
TABLES: Final = """modules = ["valve"]
[valve]
file = "{file}"
[runtime]
kind = "script"
at_once = 4
[[runtime.steps]]
wait = 0.2
[[runtime.steps]]
call = "open_valve"
arguments = {{ bed = "${{prompt}}", seconds = 0.3 }}
[[runtime.steps]]
say = "${{open_valve.status}}"
"""
DUE: Final = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, next_due_at)
SELECT b, 'h' || n, 'tool', due, 'UTC', b || '-' || n, 'once', due
FROM unnest($1::text[]) AS b, generate_series(1, $2) AS n,
    LATERAL (SELECT clock_timestamp() + interval '1 s' + n * interval '300 ms' AS due) AS at
"""
WAITING: Final = "SELECT id::text FROM shared.pending_actions WHERE status = 'pending' AND tool_name = 'open_valve'"
OPEN: Final = """
SELECT (SELECT count(*) FROM shared.schedules WHERE next_due_at IS NOT NULL)
    + (SELECT count(*) FROM shared.occurrences WHERE ended_at IS NULL)
    + (SELECT count(*) FROM shared.sessions WHERE ended_at IS NULL)
    + (SELECT count(*) FROM shared.pending_actions WHERE status IN ('pending', 'approved', 'executing'))
"""
SETTLES_WITHIN: Final = 120.0


@dataclass(slots=True)
class Done:
    """What was done, and what is wrong with what came of it."""

    daemons: int = 0
    children: int = 0
    ran: int = 0
    wrong: list[str] = field(default_factory=list)


async def campaign(bench: Bench, kills: int, seed: int) -> Done:
    """Kill so often, let everything end, and look."""
    house, rng, done = await bench.house(), Random(seed), Done()
    await _furnish(house)
    fleet = await Fleet.start(house, "two")
    saying = asyncio.create_task(_approve(fleet))
    try:
        await fleet.sql(DUE, list(BUTLERS), kills * 2)
        living = [(name, process) for name in BUTLERS for process in fleet.running[name]]
        while done.daemons + done.children < kills:
            await asyncio.sleep(rng.uniform(0.05, 0.8))
            await _kill_one(fleet, living, rng, done)
        await _settle(fleet, saying, SETTLES_WITHIN + kills)
        await _look(fleet, kills * 2 * len(BUTLERS), done)
    finally:
        saying.cancel()
        await asyncio.wait([saying])
        await fleet.abandon()
    return done


async def _furnish(house: House) -> None:
    """Give both butlers the valve, whose every opening needs a yes, and a script that opens it."""
    base = house.folder / "fleet"
    (base / "valve").mkdir()
    (base / "valve" / "__init__.py").write_text(VALVE)
    for name in BUTLERS:
        with (base / name / "butler.toml").open("a") as file:
            file.write(TABLES.format(file=runs_of(house)))
    code, _, err = await house.butlers("migrate")
    assert code == 0, err


async def _approve(fleet: Fleet) -> None:
    """Say yes to whatever waits, as the owner, over a connection of its own."""
    connection = await asyncpg.connect(fleet.house.dsn)
    try:
        await prepare_connection(connection)
        owner = await contacts.owner(connection)
        assert owner is not None
        while True:
            for row in await connection.fetch(WAITING):
                word = OwnerDecision(row["id"], True, owner["id"], "test", timedelta(hours=72))  # noqa: FBT003  # a yes
                async with connection.transaction():
                    await apply(connection, word)
            await asyncio.sleep(0.3)
    finally:
        await connection.close()


async def _kill_one(fleet: Fleet, living: list[tuple[str, Process]], rng: Random, done: Done) -> None:
    """Kill a child if there is one and no more of them than daemons were killed, else a daemon, which begins again."""
    there = children(fleet.house.home)
    if there and done.children <= done.daemons:
        try:
            os.kill(rng.choice(there), signal.SIGKILL)
        except ProcessLookupError:
            return
        done.children += 1
        return
    place = rng.randrange(len(living))
    name, process = living[place]
    process.send(signal.SIGKILL)
    await process.wait()
    made = fleet.house.spawn(["run", name], f"{name}-again-{len(fleet.started)}")
    fleet.started.append(made)
    living[place] = (name, made)
    done.daemons += 1


def children(home: Path) -> list[int]:
    """The programs of all sessions of this home."""
    where = f"{home}/sessions/"
    found = (int(one.name) for one in PROC.glob("[0-9]*"))
    return [pid for pid in found if folder(pid).startswith(where) and "script_child" in command(pid)]


async def _settle(fleet: Fleet, saying: "asyncio.Task[None]", seconds: float) -> None:
    """Wait until nothing is open any more."""
    async with asyncio.timeout(seconds):
        while await fleet.value(OPEN):
            assert not saying.done(), saying.exception()
            await asyncio.sleep(0.2)


async def _look(fleet: Fleet, due: int, done: Done) -> None:
    """Note everything that is not as it must be."""
    counts = [
        row["count"]
        for row in await fleet.sql(
            "SELECT (SELECT count(*) FROM shared.sessions s WHERE s.occurrence_id = o.id) FROM shared.occurrences o"
        )
    ]
    if counts != [1] * due:
        done.wrong.append(f"{due} were due; sessions of each occurrence: {Counter(counts)}")
    opened = Counter(runs_of(fleet.house).read_text().split())
    done.ran = len(opened)
    twice = [bed for bed, times in opened.items() if times > 1]
    if twice:
        done.wrong.append(f"opened twice: {twice}")
    alive = [
        one.name for one in PROC.glob("[0-9]*") if folder(int(one.name)).startswith(f"{fleet.house.home}/sessions/")
    ]
    if alive:
        done.wrong.append(f"left alive: {alive}")
