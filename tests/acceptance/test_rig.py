"""The bench itself: an edit fits once, ends are reported, and a killed run leaves nothing behind."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.rig.bench import CLAIM, Bench, free_block
from tests.rig.code import ROOT, Edit, edited
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

in_session = pytest.mark.asyncio(loop_scope="session")
HOLDER = """
import sys, time
from tests.rig import bench, cluster
with cluster.running() as made, bench.running(made) as bench:
    print(bench.folder, bench.server.pid, flush=True)
    time.sleep(60)
"""


def test_an_edit_that_does_not_fit_exactly_once_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x.py").write_text("def f():\n    a = 1\n    a = 1\n\nb = 1\n")
    for old in ("a = 1", "b = 1"):
        with pytest.raises(LookupError, match="times"):
            edited(tmp_path, [Edit("x.f", old, "c = 1")])
    with pytest.raises(LookupError, match="0 places"):
        edited(tmp_path, [Edit("x.g", "a = 1", "c = 1")])


@in_session
async def test_ends_are_reported_as_they_were(bench: Bench) -> None:
    house = await bench.house()
    assert await house.spawn(["token", "nobody"], "failing").wait() == 1
    assert await house.spawn(["no-such-command"], "usage").wait() == 2
    killed = house.spawn(["up"], "killed")
    killed.send(signal.SIGKILL)
    assert await killed.wait() == -signal.SIGKILL
    house.close()


@in_session
async def test_a_fleet_that_cannot_start_says_why_and_leaves_no_process(bench: Bench) -> None:
    house = await bench.house()
    with socket.create_server(("127.0.0.1", house.base + 1)), pytest.raises(AssertionError, match="is in use"):
        await Fleet.start(house)


def test_a_block_of_ports_is_claimed_once() -> None:
    base, claim = free_block()
    with claim, socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(("127.0.0.1", base + CLAIM))


@pytest.mark.slow
@in_session
async def test_a_killed_run_leaves_no_process_and_no_folder() -> None:
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert made.stdout is not None
    line = (await asyncio.wait_for(made.stdout.readline(), LONGEST)).decode()
    folder, pid = line.split()
    assert there(folder)
    made.kill()
    await made.wait()
    deadline = time.monotonic() + LONGEST
    while there(folder) or alive(int(pid)):
        assert time.monotonic() < deadline, "PostgreSQL or its folder outlived the run"
        await asyncio.sleep(0.05)


def there(folder: str) -> bool:
    return Path(folder).exists()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
