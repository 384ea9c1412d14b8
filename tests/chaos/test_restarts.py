"""PostgreSQL is ended at once, or held up by one that stands still: the others get their answers all the same."""

import asyncio
import time

import pytest

from tests.chaos.directed import Stage, play
from tests.chaos.ledger import drain, journal_of
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.failpoints import Armed
from tests.rig.fleet import Fleet

CALLERS = 6
STANDS_SECONDS = 14
# None says that it did not go: it is kept, and arrives.
ANSWERS = {"ok", "queued", "uncertain"}
WAITING = "SELECT count(*) FROM messenger.deliveries WHERE status = 'sending'"


@pytest.mark.slow
async def test_whoever_waits_while_postgresql_crashes_gets_an_answer(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_SWEEP_SECONDS="0.3"), "each")
    try:
        await fleet.outside.fault("email", "dot", "slow", value=2.5, times=1)
        text = fresh.words("crash")
        asked = {"channel": "email", "message": text, "request_context": {"request_id": text}}
        first = asyncio.create_task(fleet.notify("health", **asked))
        async with asyncio.timeout(10):
            while not await fleet.value(WAITING):
                await asyncio.sleep(0.02)
        # These wait for the first one's outcome in the rows themselves.
        others = [asyncio.create_task(fleet.notify("health", **asked)) for _ in range(CALLERS)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(bench.crash_postgres)
        answers = await asyncio.gather(first, *others)
        assert {answer["status"] for answer in answers} <= ANSWERS, answers
        await fleet.reconnect()
        assert await drain(fleet.db) == 0
        assert len([sent for sent in await journal_of(fleet) if sent.text == text]) == 1
    finally:
        await fleet.abandon()


@pytest.mark.slow
async def test_a_messenger_that_stands_still_in_its_marker_holds_nobody_up_for_long(bench: Bench) -> None:
    async def stands_still(stage: Stage) -> None:
        first = await stage.messenger(Armed("marker.locked", stop=True))
        telling = stage.telling("rule <1>", contact_id=await stage.person(1))
        await stage.stopped(first)
        await stage.messenger()
        started = time.monotonic()
        async with asyncio.timeout(2 * STANDS_SECONDS):
            other = await stage.person(2)  # the owner's write waits for the lock of the one that stands still
            answer = await stage.tell("rule <2>", contact_id=other)
        stage.demand(answer["status"] == "ok", "nothing goes out while one Messenger stands still")
        stage.demand(time.monotonic() - started < STANDS_SECONDS, "the owner waited too long")
        stage.goes_on(first)
        await telling

    assert await play(bench, stands_still, {}) == []
