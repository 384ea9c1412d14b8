"""A3 made PostgreSQL die, or the machine's memory ran out: `butlers up` needs no person, and no advice that harms."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from fastmcp import Client

from butlers.cli.client import mint
from shared.config.settings import Settings
from shared.db import dsn
from shared.errors import ButlersError
from shared.postgres import server as postgres
from tests.rig.bench import free_block
from tests.rig.cluster import write_fleet
from tests.rig.waiting import LONGEST

ROOT: Final = Path(__file__).resolve().parents[2]
STARTS, ALL_STARTS = 4, 20
BUSY: Final = "SELECT count(*) FROM generate_series(1, 10000000000)"
BURST: Final = 10
# What is neither sent nor before the owner's eyes.
UNSETTLED: Final = "SELECT count(*) FROM shared.notifications WHERE status NOT IN ('ok', 'uncertain')"
HARMFUL: Final = re.compile(r"(?i)remove|delete|postmaster\.pid")


@dataclass(slots=True)
class Installation:
    """A home and whatever `butlers up` of it runs."""

    folder: Path
    base: int
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.env())

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "BUTLERS_HOME": str(self.folder / "home"),
            "BUTLERS_FLEET": str(self.folder / "fleet"),
            "BUTLERS_PORT_BASE": str(self.base),
        }

    def said(self) -> str:
        return (self.folder / f"{len(self.processes)}.log").read_text(errors="replace")

    def up(self) -> "subprocess.Popen[bytes]":
        """`butlers up`, once it says that it is ready."""
        with (self.folder / f"{len(self.processes) + 1}.log").open("wb") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "butlers.cli", "up"],
                cwd=ROOT,
                env=self.env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.processes.append(made)
        deadline = time.monotonic() + LONGEST
        while "Ready." not in self.said():
            assert made.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return made

    def server(self) -> postgres.Server:
        found = postgres.running(self.folder / "home")
        assert found is not None
        return found

    async def sends(self, message: str) -> None:
        """A message of the greeter's goes all the way; whoever asks while the database is away asks again."""
        async with asyncio.timeout(LONGEST):
            token = ""
            while not token:
                try:
                    token = await mint(self.settings, "greeter", timedelta(hours=1))
                except (ButlersError, asyncpg.PostgresError, OSError):
                    await asyncio.sleep(0.2)
            status = ""
            while status != "ok":
                async with Client(f"http://127.0.0.1:{self.base + 10}/mcp", auth=token) as client:
                    answer = await client.call_tool("notify", {"channel": "telegram", "message": message})
                assert answer.structured_content is not None
                status = str(answer.structured_content["status"])
                await asyncio.sleep(0.2)


@pytest.fixture
def installed() -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix="butlers-dead-"))
    folder.chmod(0o755)
    base, claim = free_block()
    made = Installation(folder, base)
    write_fleet(folder / "fleet", ("greeter",))
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()
        if (left := postgres.running(folder / "home")) is not None:
            os.kill(left.pid, signal.SIGQUIT)
            while postgres.running(folder / "home") is not None:
                time.sleep(0.01)
        claim.close()
        where = folder / "home" / "postgres" / "where"
        if where.exists():
            shutil.rmtree(where.read_text().strip(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_killed_server_comes_back_under_up_again_and_again(installed: Installation) -> None:
    up = await asyncio.to_thread(installed.up)
    for number in range(2):
        await installed.sends(f"Before the end of server {number}.")
        gone = installed.server().pid
        os.kill(gone, signal.SIGKILL)
        await installed.sends(f"After the end of server {number}.")
        assert installed.server().pid != gone
    assert up.poll() is None
    assert installed.said().count("PostgreSQL is gone and is started again") == 2
    up.terminate()
    assert await asyncio.to_thread(up.wait, LONGEST) == 0
    assert postgres.running(installed.folder / "home") is None


@pytest.mark.slow
@pytest.mark.whole
async def test_after_both_are_killed_each_next_start_succeeds_by_itself(
    installed: Installation,
    whole: bool,  # noqa: FBT001
) -> None:
    for number in range(ALL_STARTS if whole else STARTS):
        up = await asyncio.to_thread(installed.up)
        assert not HARMFUL.search("\n".join(line for line in installed.said().splitlines() if "postgres" in line))
        server = installed.server()
        connection = await asyncpg.connect(server.dsn_of(dsn.DATABASE))
        # What a session is busy with goes on for a while without its server, and holds the data's memory.
        busy = asyncio.ensure_future(connection.execute(BUSY if number % 2 else "SELECT pg_sleep(600)"))
        await asyncio.sleep(0.1)
        os.kill(server.pid, signal.SIGKILL)
        up.kill()
        await asyncio.to_thread(up.wait)
        connection.terminate()
        await asyncio.gather(busy, return_exceptions=True)
    up = await asyncio.to_thread(installed.up)
    await installed.sends("All is as it was.")
    up.terminate()
    assert await asyncio.to_thread(up.wait, LONGEST) == 0


@pytest.mark.slow
async def test_after_up_alone_is_killed_the_next_takes_its_server_over_and_loses_nothing(
    installed: Installation,
) -> None:
    up = await asyncio.to_thread(installed.up)
    await installed.sends("Before the kill.")
    server = installed.server()
    token = await mint(installed.settings, "greeter", timedelta(hours=1))
    connection = await asyncpg.connect(server.dsn_of(dsn.DATABASE))

    async def tells(number: int) -> None:
        async with Client(f"http://127.0.0.1:{installed.base + 10}/mcp", auth=token) as client:
            await client.call_tool("notify", {"channel": "telegram", "message": f"In its hands: {number}."})

    calls = [asyncio.ensure_future(tells(number)) for number in range(BURST)]
    async with asyncio.timeout(LONGEST):
        while not await connection.fetchval(UNSETTLED):
            await asyncio.sleep(0)
    up.kill()
    await asyncio.to_thread(up.wait)
    await asyncio.gather(*calls, return_exceptions=True)
    assert await connection.fetchval(UNSETTLED), "nothing was in its hands"
    await asyncio.to_thread(installed.up)
    assert installed.server().pid == server.pid
    async with asyncio.timeout(LONGEST):
        while await connection.fetchval(UNSETTLED):
            await asyncio.sleep(0.1)
    await connection.close()
    await installed.sends("After the kill.")
