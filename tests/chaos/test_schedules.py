"""Two processes of one butler share what is due: nothing twice, nothing lost, whoever is killed meanwhile."""

import asyncio
import signal
from random import Random

import pytest

from tests.rig.bench import OWNER_EMAIL, Bench
from tests.rig.fleet import Fleet
from tests.rig.forks import Process

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
BUTLER = "health"
MANY = 1000
WITHIN = 60.0
PROMPTS = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, next_due_at)
SELECT $1, 's' || n, 'tool', due, 'UTC', 'Well?', 'once', due
FROM generate_series(1, $2) AS n, (SELECT date_trunc('second', clock_timestamp()) + interval '2 s' AS due) AS at
"""
REMINDERS = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, tool, arguments, catch_up, next_due_at)
SELECT $1, 'r' || n, 'tool', due, 'UTC', 'notify',
    jsonb_build_object('channel', 'email', 'subject', 'r', 'message', 'reminder <' || n || '>'), 'once', due
FROM generate_series(1, $2) AS n,
    LATERAL (SELECT clock_timestamp() + n * interval '150 ms' AS due) AS at
"""
ENDED = "SELECT count(*) FROM shared.occurrences WHERE status = 'done'"
KILLS = 12
REMINDED = 60


async def until_ended(fleet: Fleet, count: int, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while await fleet.db.fetchval(ENDED) < count:
            await asyncio.sleep(0.1)


async def test_a_thousand_due_in_one_second_are_claimed_within_a_minute_and_none_twice(bench: Bench) -> None:
    house = await bench.house()
    fleet = await Fleet.start(house, "two")
    try:
        await fleet.db.execute(PROMPTS, BUTLER, MANY)
        await until_ended(fleet, MANY, WITHIN)
        causes = await fleet.db.fetch("SELECT occurrence_id, count(*) FROM shared.sessions GROUP BY 1")
        assert [row["count"] for row in causes] == [1] * MANY
        assert await fleet.db.fetchval("SELECT count(*) FROM shared.occurrences") == MANY
    finally:
        await fleet.stop()


async def killed_and_started(fleet: Fleet, process: Process) -> Process:
    process.send(signal.SIGKILL)
    await process.wait()
    made = fleet.house.spawn(["run", BUTLER], f"{BUTLER}-again-{len(fleet.started)}")
    fleet.started.append(made)
    return made


async def test_what_is_due_is_told_once_whoever_is_killed(bench: Bench) -> None:
    fleet, rng = await Fleet.start(await bench.house(), "two"), Random(15)
    try:
        await fleet.db.execute(REMINDERS, BUTLER, REMINDED)
        living = list(fleet.running[BUTLER])
        for number in range(KILLS):
            await asyncio.sleep(rng.uniform(0.05, 1.2))
            living[number % 2] = await killed_and_started(fleet, living[number % 2])
        await until_ended(fleet, REMINDED, 120)
        for number in range(1, REMINDED + 1):
            words = f"reminder <{number}>"
            await fleet.outside.arrived(words, OWNER_EMAIL)
            assert len(await fleet.outside.having(words)) == 1, words
    finally:
        await fleet.abandon()
