"""A call that is waited for is queued, claimed and checked in one transaction, while its Messenger is at work."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest

from messenger.delivery.lease import Worker
from messenger.delivery.loop import begin_at_once, run
from messenger.route_execute import Asked, take
from messenger.storage import deliveries, targets
from messenger.storage.deliveries import Enqueued
from shared.contracts import NotifyEnvelope, NotifyResponse
from shared.db.pool import Connection
from shared.errors import ButlersError
from shared.gate.evaluate import Held
from shared.storage import brakes, contacts, notifications
from shared.storage.brakes import Scope
from tests.integration.house import House
from tests.integration.workers import admitted, enqueue, friend, in_queue, work

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def brought(house: House, worker: Worker, message: str, *, wait: bool = True) -> tuple[str, NotifyResponse]:
    """A message brought to this worker, for which nothing claims by itself: its id, and the answer."""
    told = await admitted(house, message, contact_id=await friend(house))
    row = await house.row("SELECT envelope FROM shared.notifications WHERE id = $1", told)
    request = NotifyEnvelope.model_validate({**row["envelope"], "notification_id": told})
    return told, await take(worker, request, Asked(wait, again=False))


def at_work(house: House, instance: str = "") -> Worker:
    """A worker that begins what it queues, and waits for half a second only."""
    worker = house.worker()
    context = house.context("messenger", messenger_wait=0.5)
    worker.context, worker.at_work = replace(context, instance=instance or worker.holder), True
    return worker


async def test_it_leaves_without_a_look_into_the_queue(still_house: House, message: str) -> None:
    _, answer = await brought(still_house, at_work(still_house), message)
    assert answer.status == "ok"
    assert len(still_house.sent_to_others(message)) == 1


@pytest.mark.parametrize("wait", [True, False])
async def test_what_nobody_waits_for_or_nobody_claims_stays_queued(
    still_house: House, message: str, *, wait: bool
) -> None:
    worker = at_work(still_house)
    worker.at_work = not wait
    told, answer = await brought(still_house, worker, message, wait=wait)
    assert answer.status == "queued"
    assert (await still_house.delivery(told))["fence"] == 0


async def test_what_the_owner_stopped_does_not_leave(still_house: House, message: str) -> None:
    scope, owner = Scope(butler="greeter"), await contacts.owner(still_house.sql)
    assert owner is not None
    await brakes.put_on(still_house.sql, scope, str(owner["id"]))
    told, answer = await brought(still_house, at_work(still_house), message)
    await brakes.lift(still_house.sql, scope, str(owner["id"]))
    assert answer.status == "queued"
    assert (await still_house.delivery(told))["reason"] == "braked"
    assert still_house.sent_to_others(message) == []


async def test_what_breaks_is_undone_and_the_delivery_queued_alone(still_house: House, message: str) -> None:
    # PostgreSQL takes no such name, so that claiming breaks.
    told, answer = await brought(still_house, at_work(still_house, "\0"), message)
    row = await still_house.delivery(told)
    assert (answer.status, row["status"], row["fence"]) == ("queued", "queued", 0)
    await work(still_house.worker())
    assert len(still_house.sent_to_others(message)) == 1


async def begun(connection: Connection, worker: Worker, told: str, *, made: bool = True) -> None:
    """Queue what was admitted and begin it, as a route does."""
    row = await notifications.locked(connection, told)
    assert row is not None
    target = await targets.target_now(connection, row)
    new = Enqueued(told, "third_party", "telegram", target.address, row["realm"], row["not_after"], "greeter", "l")
    assert await deliveries.enqueue(connection, new) == "made"
    assert await begin_at_once(connection, worker, "telegram", Held(row, target), made=made)
    assert not worker.tasks, "it is begun already"


async def test_it_leaves_only_once_it_is_committed(still_house: House, message: str) -> None:
    worker = at_work(still_house)
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    with suppress(ButlersError):
        async with worker.context.db.work() as connection:
            await begun(connection, worker, told)
            raise ButlersError("The transaction is undone.")
    assert not worker.tasks
    assert still_house.sent_to_others(message) == []


@pytest.mark.parametrize(("made", "others"), [(True, False), (False, False), (True, True)])
async def test_only_a_commit_that_may_be_forgotten_does_not_wait_for_the_disk(
    still_house: House, message: str, *, made: bool, others: bool
) -> None:
    worker, statements = at_work(still_house), list[str]()
    if others:
        await in_queue(still_house, f"before {message}")
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    async with worker.context.db.work() as connection:
        connection.add_query_logger(lambda said: statements.append(said.query))
        await begun(connection, worker, told, made=made)
    await asyncio.gather(*worker.tasks)
    commit = next(said for said in statements if said.endswith("COMMIT"))
    assert ("synchronous_commit" in commit) is (made and not others)
    assert len(still_house.sent_to_others(message)) == 1 + others


async def test_a_claim_that_a_server_forgot_sends_nothing_and_is_made_again(still_house: House, message: str) -> None:
    worker = at_work(still_house)
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    async with worker.context.db.work() as connection:
        await begun(connection, worker, told)
        await connection.execute("DELETE FROM messenger.deliveries WHERE notification_id = $1", UUID(told))
    await asyncio.gather(*worker.tasks)
    assert still_house.sent_to_others(message) == []
    await enqueue(still_house, told)
    await work(worker)
    assert len(still_house.sent_to_others(message)) == 1


async def test_a_worker_that_stops_lets_what_is_being_claimed_finish_first(still_house: House) -> None:
    worker, stopping = at_work(still_house), asyncio.Event()
    stopping.set()
    async with worker.claiming:  # as a route that queues a delivery at this moment
        stops = asyncio.create_task(run(worker, stopping))
        await asyncio.sleep(0.05)
        assert (worker.at_work, stops.done()) == (True, False)
    await stops
    assert not worker.at_work
