"""Where the other daemons are, as a process knows it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from butlers.daemon.directory import Directory
from shared.config.timings import STANDARD
from switchboard.storage import registry
from tests.integration.house import House

# Of each name as many as are kept, as whoever has the Switchboard's login can write them.
HEARD_OF_IN_THE_FUTURE = """
INSERT INTO switchboard.butlers (name, url, kind, status, has_runtime, last_seen_at)
SELECT 'health', 'http://127.0.0.1:' || 20000 + n, 'butler', 'gone', false, $2::timestamptz
FROM generate_series(1, $1) n
"""
ELEVEN_MINUTES_LATER = "UPDATE switchboard.butlers SET last_seen_at = last_seen_at - interval '11 minutes'"
A_DAY_LATER = "UPDATE switchboard.butlers SET last_seen_at = last_seen_at - interval '1 day'"
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


async def test_a_butler_that_is_down_for_a_while_stays_known(still_house: House) -> None:
    """What is written to it waits for it, and goes to no other."""
    db, old, new = still_house.context("switchboard").db, "http://127.0.0.1:4", "http://127.0.0.1:5"
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
    async with db.work() as connection:
        for url in (old, new):
            await registry.all_seen(connection, [("health", url, "butler", list[str](), "ready", True)])
    await still_house.sql.execute(ELEVEN_MINUTES_LATER)
    async with db.work() as connection:
        await registry.tidy(connection, STANDARD)
        assert [name for name, _ in await registry.butlers(connection)] == ["health"]
    rows = await still_house.sql.fetch("SELECT url FROM switchboard.butlers")
    assert [row["url"] for row in rows] == [new], "of several places the last one counts"
    await still_house.sql.execute(A_DAY_LATER)
    async with db.work() as connection:
        assert await registry.butlers(connection) == [], "after a day others are written to"


async def test_what_no_heartbeat_can_write_is_forgotten(still_house: House) -> None:
    """As a login under somebody's control leaves it: words without a name went to it, and it was silent for good."""
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
    seen = [("owner", "butler"), ("messenger", "butler"), ("health", "console"), ("console", "console")]
    async with still_house.context("switchboard").db.work() as connection:
        beats = [
            (name, f"http://127.0.0.1:{n}", kind, list[str](), "ready", True) for n, (name, kind) in enumerate(seen)
        ]
        await registry.all_seen(connection, beats)
        await registry.tidy(connection, STANDARD)
    rows = await still_house.sql.fetch("SELECT name FROM switchboard.butlers")
    assert [row["name"] for row in rows] == ["console"]


@pytest.mark.parametrize("date", [datetime(2199, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_instances_heard_of_in_the_future_hide_nobody_once_they_are_tidied(
    still_house: House, date: datetime
) -> None:
    db, url = still_house.context("switchboard").db, "http://127.0.0.1:3"
    async with db.work() as connection:
        await connection.execute(HEARD_OF_IN_THE_FUTURE, registry.MOST_INSTANCES, date)
    async with db.work() as connection:
        await registry.tidy(connection, STANDARD)
        await registry.all_seen(connection, [("health", url, "butler", list[str](), "ready", True)])
        assert await registry.has_runtime(connection, "health")
    assert await Directory(db).find("health") == [url]
