"""No process takes more memory than it was given: what does not fit is refused, and it goes on with the rest."""

import asyncio
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from shared.config.settings import Settings
from tests.integration.cli.bad_input_runner import start
from tests.rig.bench import Bench
from tests.rig.forks import Process
from tests.rig.waiting import LONGEST

LEAST_MB = 256
# Of three bytes each Python makes about thirty times as much.
THINGS: list[list[str]] = [[]] * 100_000


def data_kb(process: Process) -> int:
    """How much data it holds: what counts to the limit."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:")))


def most(process: Process) -> int:
    """How much data it may hold, in bytes."""
    return resource.prlimit(process.pid, resource.RLIMIT_DATA)[0]


@asynccontextmanager
async def sandbox(bench: Bench, entry: str = "", **env: str) -> AsyncIterator[tuple[Process, str]]:
    """A real process that serves the sandbox, and where its faults are armed; it ends as it should."""
    house = await bench.house()
    process = start(house, ["run", "sandbox"], env, entry)
    try:
        async with asyncio.timeout(LONGEST):
            while " is ready at " not in process.out.read_text():
                assert process.alive, process.err.read_text()
                await asyncio.sleep(0.02)
        yield process, f"http://127.0.0.1:{house.base + 3}/api/faults"
        process.send(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        process.send(signal.SIGKILL)
        house.close()


async def arm(http: aiohttp.ClientSession, faults: str, match: object) -> tuple[int, str]:
    """Arm a fault for a text: the status of the answer, and the answer."""
    words = {"channel": "telegram", "stage": "sendMessage", "fault": "429", "times": 1, "match": match}
    async with http.post(faults, json=words) as answer:
        return answer.status, await answer.text()


@pytest.mark.slow
async def test_what_does_not_fit_into_memory_is_refused_and_the_process_lives(bench: Bench) -> None:
    once = aiohttp.TCPConnector(force_close=True)
    async with (
        sandbox(bench, BUTLERS_MEMORY_MB=str(LEAST_MB)) as (process, faults),
        aiohttp.ClientSession(connector=once) as http,
    ):
        assert most(process) == LEAST_MB * 2**20
        # As if the rest were taken: nobody can fill it from outside.
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (data_kb(process) * 1024 + 4 * 2**20, LEAST_MB * 2**20))
        assert await arm(http, faults, THINGS) == (500, "Internal Server Error")
        assert (await arm(http, faults, "short"))[0] == 201
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (LEAST_MB * 2**20, LEAST_MB * 2**20))
        assert (await arm(http, faults, THINGS))[0] == 400


@pytest.mark.slow
async def test_what_a_process_may_hold_is_four_times_what_it_needs(bench: Bench) -> None:
    async with sandbox(bench) as (process, _):
        assert most(process) == Settings.from_env({}).memory_mb * 2**20 == 2**30
        assert 4 * data_kb(process) * 1024 < 2**30
