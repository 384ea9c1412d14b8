"""The module `files`: what changes in a watched folder is told in one line, however much it is, and begins nothing."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from pydantic import ValidationError

from butlers.butler import Components
from butlers.modules.files import MODULE, FilesConfig
from butlers.notices import lines_of
from butlers.sessions.notices import waiting_of
from shared.errors import Misconfigured
from shared.storage import notices
from shared.storage.notices import Reader
from tests.integration.house import House
from tests.rig.waiting import LONGEST, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
STORM = 10_000
TOLD = "SELECT * FROM shared.notices WHERE source = 'files' AND butler = 'greeter' AND position($1 IN text) > 0"
ALL = "SELECT count(*) FROM shared.notices WHERE source = 'files' AND key = $1"


def parts(house: House, *folders: Path) -> Components:
    return MODULE.build(house.context("greeter"), FilesConfig(folders=list(folders)))


async def test_what_changes_in_a_watched_folder_is_told_in_one_line(still_house: House, tmp_path: Path) -> None:
    house, stopping = still_house, asyncio.Event()
    notes, other = tmp_path / "notes", tmp_path / "other"
    for folder in (notes, other):
        folder.mkdir()
    (watch,) = parts(house, notes).loops
    watching = asyncio.ensure_future(watch(stopping))
    first = asyncio.create_task(eventually(partial(house.sql.fetchrow, TOLD, "begun.txt")))
    while not first.done():  # until the watch has begun
        (notes / "begun.txt").write_text("x")
        await asyncio.sleep(0.05)
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


async def test_a_folder_that_goes_away_is_said(still_house: House, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (watch,) = parts(still_house, notes).loops
    stopping = asyncio.Event()
    watching = asyncio.ensure_future(watch(stopping))
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(watching), 0.5)
    notes.rmdir()
    with pytest.raises(Misconfigured, match="There is no folder"):
        await asyncio.wait_for(watching, LONGEST)
