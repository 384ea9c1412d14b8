"""A daemon that is started while PostgreSQL is away waits for it, says so once, and then serves."""

import asyncio
import signal

from tests.rig.bench import Bench
from tests.rig.fleet import READY_AT
from tests.rig.waiting import until

WAITS = "the database is waited for"


async def test_daemons_that_were_started_before_the_database_serve_once_it_is_there(bench: Bench) -> None:
    house = await bench.house()
    await asyncio.to_thread(bench.lose_postgres)
    try:
        started = [house.spawn(["run", name], name) for name in ("switchboard", "messenger", "health")]
        await until(lambda: all(WAITS in one.err.read_text() or not one.alive for one in started))
    finally:
        await asyncio.to_thread(bench.bring_postgres)
    await until(lambda: all(READY_AT.search(one.out.read_text()) or not one.alive for one in started))
    said = [one.err.read_text() for one in started]
    for one in started:
        one.send(signal.SIGTERM)
    assert [await one.wait() for one in started] == [0, 0, 0], said
    assert [words.count(WAITS) for words in said] == [1, 1, 1], said
    house.close()
