"""Where the other daemons are, as a process knows it."""

import asyncio
from dataclasses import replace

import pytest

from butlers.daemon.directory import Directory
from shared.config.timings import STANDARD
from switchboard.storage import registry
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_daemon_that_has_just_begun_is_found_at_once(still_house: House) -> None:
    timings = replace(STANDARD, directory=600, directory_unknown=0.05)
    db = still_house.context("switchboard").db
    directory, url = Directory(db, timings), "http://127.0.0.1:1"
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
    assert await directory.find("messenger") == ()
    async with db.work() as connection:
        await registry.all_seen(connection, [("messenger", url, "messenger", list[str](), "ready", False)])
    await asyncio.sleep(0.06)
    assert await directory.find("messenger") == [url]
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
    assert await directory.find("messenger") == [url]
