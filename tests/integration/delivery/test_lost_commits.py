"""The connection is cut at a COMMIT: nobody can know whether it counted, and nothing is lost or repeated."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from butlers.daemon.assembly import acting
from butlers.daemon.assembly import database as start
from messenger.delivery.lease import Worker
from shared.auth import keystore
from shared.db import dsn
from shared.db.pool import Database
from shared.errors import Unavailable
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from tests.integration.house import House
from tests.integration.workers import due, enqueue, in_queue, lose_lease, reap, work
from tests.rig.cutting import Cut, cutting

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMITTED = "SELECT id::text FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
BOTH = pytest.mark.parametrize("counts", [True, False], ids=["it counted", "it did not"])


@pytest_asyncio.fixture(loop_scope="module")
async def cut(still_house: House) -> AsyncIterator[Cut]:
    async with cutting(still_house.dsn) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def database(still_house: House, cut: Cut) -> AsyncIterator[Database]:
    """The pool of a process whose way to PostgreSQL goes through the relay."""
    password = keystore.read(still_house.settings.home, keystore.UP).password
    made = await Database.open(dsn.dsn_as(cut.dsn(still_house.dsn), keystore.UP, password))
    yield made
    await made.close()


def desk_by(house: House, database: Database) -> Worker:
    """A Messenger's worker whose rows go by that pool."""
    worker = house.worker()
    return replace(worker, context=replace(worker.context, db=acting(house.assembly.plan, database, "messenger")))


@BOTH
async def test_at_admission_the_same_call_again_makes_one_message(
    still_house: House, database: Database, cut: Cut, message: str, *, counts: bool
) -> None:
    plan, context = still_house.assembly.plan, still_house.context("greeter")
    by = Admitter("greeter", acting(plan, database, "greeter"), context.settings.approval_ttl, context.new_id)
    call = accept("greeter", {"channel": "telegram", "message": message, "request_context": {"request_id": message}})
    cut.arm("INSERT INTO shared.notifications", counts=counts)
    with pytest.raises(Unavailable):
        await admit(by, call)
    assert cut.cuts == 1
    kept = await still_house.sql.fetch(ADMITTED, message)
    assert len(kept) == (1 if counts else 0)
    told = await admit(by, call)
    assert told.first is not counts
    assert [row["id"] for row in await still_house.sql.fetch(ADMITTED, message)] == [told.notification_id]
    await enqueue(still_house, told.notification_id)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


@BOTH
async def test_at_the_marker_the_last_byte_is_not_written(
    still_house: House, database: Database, cut: Cut, message: str, *, counts: bool
) -> None:
    told = await in_queue(still_house, message)
    cut.arm("LOCK TABLE shared.authority", counts=counts)
    await work(desk_by(still_house, database))
    assert cut.cuts == 1
    assert still_house.sent(message) == []
    row = await still_house.delivery(told)
    # Whoever did not write the last byte says so; a marker that does not count leaves nothing to be said.
    assert row["status"] == ("queued" if counts else "claimed")
    await lose_lease(still_house, told)
    assert await reap(still_house) == (0 if counts else 1)
    assert await still_house.status(told) == "queued"
    await due(still_house, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


@BOTH
async def test_at_the_end_the_receipt_is_written_all_the_same(
    still_house: House, database: Database, cut: Cut, message: str, *, counts: bool
) -> None:
    told = await in_queue(still_house, message)
    cut.arm("UPDATE messenger.parts SET status = $6", counts=counts)
    await work(desk_by(still_house, database))
    assert cut.cuts == 1
    assert (await still_house.delivery(told))["status"] == "sent"
    assert await still_house.status(told) == "ok"
    assert len(still_house.sent(message)) == 1


async def test_who_gives_up_on_a_connection_that_is_lost_meets_no_other_error(database: Database, cut: Cut) -> None:
    begun = asyncio.Event()

    async def waits_for_ever() -> None:
        async with database.work() as connection:
            await connection.execute("SELECT 'given up'")
            begun.set()
            await asyncio.Event().wait()

    cut.arm("SELECT 'given up'", counts=False)
    waiting = asyncio.create_task(waits_for_ever())
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cut.cuts == 1
    async with database.work() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_start_that_loses_its_first_connection_tries_again(still_house: House, cut: Cut) -> None:
    plan = replace(still_house.assembly.plan, dsn=cut.dsn(still_house.dsn))
    cut.arm("schema_version", counts=False)
    async with start(plan, asyncio.Event()) as made, made.work() as connection:
        assert await connection.fetchval("SELECT 1") == 1
    assert cut.cuts == 1
