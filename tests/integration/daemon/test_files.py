"""The module `files`: what changes in a watched folder is told in one line, however much it is, and begins nothing."""

import asyncio
import os
import resource
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pydantic import ValidationError

from butlers.butler import Components
from butlers.modules.files import MEMORY_MB, MODULE, FilesConfig
from butlers.modules.watch import Watch
from butlers.notices import lines_of
from butlers.sessions.notices import waiting_of
from shared.config.timings import STANDARD
from shared.errors import ButlersError, Misconfigured
from shared.storage import notices
from shared.storage.notices import Reader
from tests.integration.house import House
from tests.rig.children import command, environment, running
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).resolve().parents[3]
STORM = 10_000
# An ordinary watch has 12 MB of data.
LITTLE = 24 * 2**20
TOLD = "SELECT * FROM shared.notices WHERE source = 'files' AND butler = 'greeter' AND position($1 IN text) > 0"
ALL = "SELECT count(*) FROM shared.notices WHERE source = 'files' AND key = $1"


def parts(house: House, *folders: Path) -> Components:
    return MODULE.build(house.context("greeter"), FilesConfig(folders=list(folders)))


async def told_once_it_watches(house: House, folder: Path, name: str) -> None:
    """Write the file until it is told: whoever watches may only be starting."""
    told = asyncio.create_task(eventually(partial(house.sql.fetchrow, TOLD, name)))
    while not told.done():
        (folder / name).write_text("x")
        await asyncio.sleep(0.05)
    await told


async def test_what_changes_in_a_watched_folder_is_told_in_one_line(still_house: House, tmp_path: Path) -> None:
    house, stopping = still_house, asyncio.Event()
    notes, other = tmp_path / "notes", tmp_path / "other"
    for folder in (notes, other):
        folder.mkdir()
    (watch,) = parts(house, notes).loops
    watching = asyncio.ensure_future(watch(stopping))
    await told_once_it_watches(house, notes, "begun.txt")
    await asyncio.sleep(0.5)
    (other / "unseen.txt").write_text("x")
    (notes / "to do\n<b>").write_text("x")
    row = await eventually(partial(house.sql.fetchrow, TOLD, "to do"))
    assert row["text"] == f"In {notes}: to do<U+000A><b> (added)"
    assert (row["trust"], row["priority"], row["wakes"], row["kind"]) == ("external", "low", False, "changed")
    for n in range(STORM):
        (notes / f"{n:05}").touch()
    await eventually(partial(house.sql.fetchrow, TOLD, "more files"))
    await asyncio.sleep(0.5)
    stopping.set()
    await asyncio.wait_for(watching, LONGEST)
    assert await house.sql.fetchval(ALL, str(notes)) < 30
    assert await house.sql.fetchrow(TOLD, "unseen") is None
    async with house.context("greeter").db.work() as connection:
        waits = await notices.to_show(connection, "greeter", Reader("nobody"))
    (line,) = lines_of([waiting_of(one) for one in waits])
    assert line.more >= 1


async def test_what_is_not_there_and_what_is_our_own_is_not_watched(still_house: House, tmp_path: Path) -> None:
    home = still_house.context("greeter").home
    for folder, why in ((tmp_path / "gone", "There is no folder"), (home, "own files"), (Path("/"), "own files")):
        start = parts(still_house, folder).start
        assert start is not None
        with pytest.raises(Misconfigured, match=why):
            await start()
    nothing = parts(still_house).start
    assert nothing is not None
    with pytest.raises(Misconfigured, match="watches nothing"):
        await nothing()
    with pytest.raises(ValidationError, match="whole path"):
        FilesConfig(folders=[Path("notes")])


@pytest.mark.parametrize(
    ("moved", "is_back", "says"),
    [
        pytest.param("documents/notes", False, "There is no folder", id="itself"),
        pytest.param("documents", False, "There is no folder", id="what it lies in"),
        pytest.param("documents", True, "a folder went away", id="another is in its place"),
    ],
)
async def test_a_folder_that_goes_away_is_said(
    still_house: House, tmp_path: Path, moved: str, *, is_back: bool, says: str
) -> None:
    notes = tmp_path / "documents" / "notes"
    notes.mkdir(parents=True)
    (watch,) = parts(still_house, notes).loops
    watching = asyncio.ensure_future(watch(asyncio.Event()))
    await told_once_it_watches(still_house, notes, f"{tmp_path.name}.txt")
    (tmp_path / moved).rename(tmp_path / "papers")
    if is_back:
        notes.mkdir(parents=True)
    with pytest.raises(ButlersError, match=says):
        await asyncio.wait_for(watching, LONGEST)


async def test_what_watches_has_little_memory_and_ends_alone(still_house: House, tmp_path: Path) -> None:
    house, stopping = still_house, asyncio.Event()
    watch = Watch("files", replace(STANDARD, module_again=0.1))
    loops = [asyncio.ensure_future(one(stopping)) for one in watch.over(parts(house, tmp_path)).loops]
    await told_once_it_watches(house, tmp_path, "first.txt")
    first = running("files_child")
    assert first is not None
    assert environment(first) == "LANG=C.UTF-8\0"
    soft, hard = resource.prlimit(first, resource.RLIMIT_DATA)
    assert soft == MEMORY_MB * 2**20
    resource.prlimit(first, resource.RLIMIT_DATA, (LITTLE, hard))
    deep = deepest(tmp_path)
    async with asyncio.timeout(LONGEST):
        for n in range(1_000_000):
            os.symlink("a", f"{n:07}{'x' * 200}", dir_fd=deep)
            os.unlink(f"{n:07}{'x' * 200}", dir_fd=deep)
            if n % 100 == 0 and running("files_child") != first:
                break
            await asyncio.sleep(0)
    os.close(deep)
    await told_once_it_watches(house, tmp_path, "later.txt")
    assert running("files_child") not in {first, None}
    stopping.set()
    await asyncio.wait_for(asyncio.gather(*loops), LONGEST)
    assert running("files_child") is None


def deepest(folder: Path) -> int:
    """A new folder whose path is nearly as long as one may be, open."""
    where = os.open(folder, os.O_RDONLY)
    for _ in range(15):
        os.mkdir("d" * 240, dir_fd=where)
        above, where = where, os.open("d" * 240, os.O_RDONLY, dir_fd=where)
        os.close(above)
    return where


DAEMON = """
import asyncio, sys
from pathlib import Path
from butlers.modules import files

async def main():
    child = await files._begun([Path(sys.argv[1])])
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""


async def test_what_watches_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, str(tmp_path), cwd=ROOT, stdout=pipe)
    assert daemon.stdout is not None
    child = int(await asyncio.wait_for(daemon.stdout.readline(), LONGEST))
    await asyncio.sleep(1)  # until it watches
    assert "files_child" in command(child)
    daemon.send_signal(signal.SIGKILL)
    await daemon.wait()
    await until(lambda: not command(child) or None)
