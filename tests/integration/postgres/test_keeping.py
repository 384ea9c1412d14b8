"""The embedded server is started again where it is gone, and what stands in the way is said, with a breath between."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from butlers.cli.postgres_supervisor import keep_serving
from shared.postgres import server as postgres
from tests.rig.waiting import LONGEST


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    folder = Path(tempfile.mkdtemp(prefix="butlers-kept-"))
    folder.chmod(0o755)
    made = postgres.start(folder / "home", system_folder=folder / "system")
    yield made
    postgres.stop(made)
    assert postgres.running(folder / "home") is None
    shutil.rmtree(folder)


def home_of(server: postgres.Server) -> Path:
    system = server.data.parent.parent
    return system.parent / "home" if system.name == "system" else system


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_dead_server_is_started_again_and_the_last_one_out_ends_the_new_one(server: postgres.Server) -> None:
    home, stopping = home_of(server), asyncio.Event()
    system = home.parent / "system"
    with capture_logs() as lines:
        keeping = asyncio.create_task(keep_serving(home, stopping, system_folder=system))
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: (found := postgres.running(home)) is not None and found.pid != server.pid)
        await until(lambda: len(lines) > 1)
        stopping.set()
        await keeping
    assert [line["event"] for line in lines] == ["PostgreSQL is gone and is started again", "PostgreSQL serves again"]


async def test_a_server_that_does_not_start_is_said_and_tried_again(server: postgres.Server) -> None:
    home, stopping = home_of(server), asyncio.Event()
    system = home.parent / "system"
    control = server.data / "global" / "pg_control"
    with capture_logs() as lines:
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: postgres.is_gone(home))
        control.rename(server.data / "kept")
        keeping = asyncio.create_task(keep_serving(home, stopping, system_folder=system))
        await until(lambda: any(line["event"] == "PostgreSQL cannot be started" for line in lines))
        (server.data / "kept").rename(control)
        await until(lambda: lines[-1]["event"] == "PostgreSQL serves again")
        stopping.set()
        await keeping
    [failed] = [line for line in lines if line["event"] == "PostgreSQL cannot be started"]
    assert "stopped immediately" in failed["why"]
    assert "leave all files in the data folder as they are" in failed["remedy"]
    assert "remove" not in f"{failed['why']} {failed['remedy']}".lower()
