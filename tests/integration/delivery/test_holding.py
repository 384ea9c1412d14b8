"""What a process may do with a delivery it may do by one claim, and by no other of its own."""

import asyncio
import time

import asyncpg
import pytest

from messenger.delivery import loop
from messenger.storage import deliveries
from shared.config.timings import STANDARD
from tests.integration.doubts import ATTEMPTS
from tests.integration.house import House
from tests.integration.workers import friend, in_queue, lose_lease, reap, work, worker_where
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_RULE = "UPDATE shared.approval_rules SET active = false WHERE arg_constraints ->> 'contact_id' = $1"
HELD_OPEN = (
    "INSERT INTO shared.pending_actions (origin_butler, tool_args, notification_id) VALUES ('greeter', '{}', $1)"
)


async def test_a_lost_claim_takes_nothing_from_the_next_of_the_same_process(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    gates, met = [asyncio.Event(), asyncio.Event()], list[str]()

    async def stands() -> None:
        met.append(message)
        await gates[len(met) - 1].wait()

    worker = worker_where(still_house, stands)
    await loop.claim_some(worker)
    [first] = worker.tasks
    await until(lambda: met or None)
    await lose_lease(still_house, told)
    assert await reap(still_house) == 1
    await loop.claim_some(worker)
    [second] = worker.tasks - {first}
    gates[0].set()
    await asyncio.wait([first])
    gates[1].set()
    await asyncio.wait([second])
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)
    assert [row["outcome"] for row in await still_house.sql.fetch(ATTEMPTS, told)] == ["sent"], "at its first try"
    assert worker.held == {}


async def test_only_the_claim_that_holds_is_renewed(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    db = still_house.context("messenger").db
    claims = []
    for _ in range(2):
        async with db.work() as connection:
            claims += await deliveries.claim(connection, "one", {"telegram": 1}, STANDARD)
        if len(claims) == 1:
            await lose_lease(still_house, told)
            await reap(still_house)
    held = [(claim.id, claim.fence) for claim in claims]
    async with db.work() as connection:
        assert await deliveries.renew(connection, "one", held[:1], STANDARD.lease) == set()
        assert await deliveries.renew(connection, "one", held, STANDARD.lease) == set(held[1:])


async def left_to_its_lease(house: House, told: str) -> float:
    """After how many seconds a Messenger gives it up; its lease is over then."""
    started = time.monotonic()
    await work(house.worker())
    spent = time.monotonic() - started
    assert (await house.delivery(told))["status"] == "claimed"
    await lose_lease(house, told)
    await reap(house)
    return spent


async def test_a_question_that_its_butler_holds_open_costs_nobody_a_lease(still_house: House, message: str) -> None:
    contact = await friend(still_house)
    told = await in_queue(still_house, message, contact_id=contact)
    await still_house.sql.execute(NO_RULE, contact)
    other = await asyncpg.connect(still_house.dsn)
    try:
        holding = other.transaction()
        await holding.start()
        await other.execute(HELD_OPEN, told)
        # A machine with too much to do is slow now and then, who waits for the butler is so each time.
        spent = [await left_to_its_lease(still_house, told) for _ in range(2)]
        assert min(spent) < STANDARD.lease.total_seconds() - STANDARD.renew
        await holding.rollback()
    finally:
        await other.close()
    await work(still_house.worker())
    assert await still_house.status(told) == "pending_approval"
