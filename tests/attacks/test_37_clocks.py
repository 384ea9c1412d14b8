"""Class 37: whoever sets the computer's clock, on or back, makes no message go twice and keeps nothing back.

The database's own clock is set while it runs, as by a time server that lies or a battery that dies: each test is an
attempt, on a house of this module's own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers import scheduler
from butlers.cli.audit import Report, judge
from butlers.console.storage import sessions
from butlers.daemon import discovery
from messenger.delivery.lease import Worker
from messenger.maintenance import purger, reaper, sealer
from messenger.storage import attempts, deliveries, mailboxes, updates
from shared.config.settings import Secret
from shared.config.timings import STANDARD
from shared.storage import occurrences, pairings, pending_actions, schedules
from shared.storage import sessions as queue
from shared.storage.pending_actions import Event
from shared.storage.schedules import Schedule
from shared.storage.sessions import Terms
from tests.integration.doubts import card_of
from tests.integration.house import House, opened
from tests.integration.workers import admitted, friend, in_queue, new_chat, reap, work
from tests.rig.clocks import DAY, HOUR, Clock, clock_of
from tests.rig.cluster import Cluster, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of a Messenger that is there, as its heartbeat has it.
UP: Final = """
INSERT INTO switchboard.butlers (name, url, kind, tools, status)
VALUES ('messenger', 'http://127.0.0.1:9', 'messenger', '{}', 'ready')
ON CONFLICT (name, url) DO UPDATE SET last_seen_at = clock_timestamp()
"""
GONE: Final = "DELETE FROM switchboard.butlers"
IN_HALF_AN_HOUR: Final = datetime.now(UTC) + timedelta(minutes=30)
SPAN: Final = 1.0
"""Seconds between two rounds of taking away, in place of an hour."""


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Cluster, Clock]]:
    with running() as cluster, clock_of(cluster.server, cluster.folder) as made:
        yield cluster, made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened_house(place: tuple[Cluster, Clock]) -> AsyncIterator[House]:
    async with opened(place[0], loops=False) as made:
        yield made


@pytest.fixture
def clock(place: tuple[Cluster, Clock]) -> Clock:
    """The database's, which is right when a test begins."""
    place[1].off_by(0)
    return place[1]


@pytest.fixture
def house(opened_house: House, clock: Clock) -> House:  # it is to be right first
    return opened_house


@pytest.fixture
def message() -> str:
    """Words that no other test says."""
    return f"words {uuid4()}"


async def tidied(worker: Worker) -> None:
    """What the Messenger does by itself every few seconds, for a moment."""
    stopping = asyncio.Event()
    tidying = asyncio.ensure_future(reaper.tidy(worker, stopping))
    await asyncio.sleep(0.5)
    stopping.set()
    await tidying


async def line(house: House) -> None:
    async with house.context("messenger").db.work() as connection:
        await pending_actions.record(connection, Event("told", "messenger", reason="a line"), n=1)


async def verified(house: House) -> Report:
    return await judge(replace(house.settings, database_url=Secret(house.dsn)), None)


async def test_a_clock_that_is_wrong_for_a_moment_takes_no_fence_away(house: House, clock: Clock, message: str) -> None:
    asked = {"contact_id": await friend(house), "request_context": {"request_id": uuid4().hex}}
    told = await in_queue(house, message, **asked)
    await work(house.worker())
    stopping = asyncio.Event()
    clock.off_by(401 * DAY)
    running = asyncio.ensure_future(purger.run(house.context("messenger"), 0.0, stopping, purger.Pace(SPAN / 10, SPAN)))
    await asyncio.sleep(SPAN * 0.6)
    clock.off_by(0)
    await asyncio.sleep(SPAN * 2)
    stopping.set()
    await running
    assert await admitted(house, message, **asked) == told, "its fence is gone, and it goes out once more"
    await work(house.worker())
    assert len(house.sent(message)) == 1


async def test_a_seal_of_the_future_holds_up_no_other(house: House, clock: Clock) -> None:
    context = house.context("messenger")
    clock.off_by(401 * DAY)
    await line(house)
    assert await sealer.seal(context)
    clock.off_by(0)
    await line(house)
    assert await sealer.seal(context), "sealing stands still"
    assert (await verified(house)).count == 0


async def test_who_verifies_is_told_of_lines_that_nobody_seals(house: House, clock: Clock) -> None:
    await house.sql.execute(GONE)
    await sealer.seal(house.context("messenger", seal=0.0))
    await line(house)
    clock.off_by(11 * 60)
    assert (await verified(house)).count == 0, "no Messenger is up that could seal them"
    await house.sql.execute(UP)
    assert [flaw.what for flaw in (await verified(house)).flaws] == ["unsealed"]
    assert await sealer.seal(house.context("messenger"))
    assert (await verified(house)).count == 0


async def test_a_bots_lease_of_the_future_keeps_nobody_from_polling(house: House, clock: Clock) -> None:
    async with house.context("messenger").db.work() as connection:
        clock.off_by(HOUR)
        assert await updates.take_lease(connection, "1", "who fell silent", STANDARD.poll_lease)
        clock.off_by(0)
        assert await updates.take_lease(connection, "1", "another", STANDARD.poll_lease)
        assert not await updates.take_lease(connection, "1", "a third", STANDARD.poll_lease)


async def test_a_mailboxs_lease_of_the_future_keeps_nobody_from_reading(house: House, clock: Clock) -> None:
    async with house.context("messenger").db.work() as connection:
        clock.off_by(HOUR)
        assert await connection.fetchrow(mailboxes.TAKE_LEASE, "a mailbox", "who fell silent", STANDARD.mailbox_lease)
        clock.off_by(0)
        assert await connection.fetchrow(mailboxes.TAKE_LEASE, "a mailbox", "another", STANDARD.mailbox_lease)
        assert not await connection.fetchrow(mailboxes.TAKE_LEASE, "a mailbox", "a third", STANDARD.mailbox_lease)


async def test_what_a_silent_holder_claimed_in_the_future_is_taken_over(
    house: House, clock: Clock, message: str
) -> None:
    clock.off_by(HOUR)
    told = await in_queue(house, message)
    async with house.context("messenger").db.work() as connection:
        assert await deliveries.claim(connection, "who fell silent", {"telegram": 16}, STANDARD)
    clock.off_by(0)
    assert await reap(house) == 1
    worker = house.worker()
    await tidied(worker)
    await work(worker)
    assert (await house.delivery(told))["status"] == "sent"


async def test_a_doubt_of_the_future_is_shown_at_once(house: House, clock: Clock, message: str) -> None:
    clock.off_by(HOUR)
    told = await in_queue(house, message)
    async with house.context("messenger").db.work() as connection:
        [held] = await deliveries.claim(connection, "who fell silent", {"telegram": 16}, STANDARD)
        await attempts.keep_parts(connection, held.id, ["0" * 64])
        assert await deliveries.mark(connection, held, (1, "0" * 64), STANDARD.lease, None)
    clock.off_by(0)
    await tidied(house.worker())
    assert (await house.delivery(told))["status"] == "uncertain"
    assert await card_of(house, told)


async def test_what_was_sent_in_the_future_leaves_no_limit_behind(house: House, clock: Clock, message: str) -> None:
    contact, worker = await friend(house), house.worker()
    worker.limited = frozenset({"telegram"})
    clock.off_by(HOUR)
    for n in range(2):
        await in_queue(house, f"{message} {n}", contact_id=contact)
        await work(worker)
        clock.off_by(0)
        await tidied(worker)
    assert len(house.sent(message)) == 2


async def test_what_was_asked_for_in_the_future_is_forgotten_after_five_minutes(
    house: House, clock: Clock, message: str
) -> None:
    contact = await house.contact("Friend", telegram=new_chat())
    await house.rule({"contact_id": contact})
    clock.off_by(HOUR)
    first = await admitted(house, message, contact_id=contact)
    clock.off_by(0)
    assert await admitted(house, message, contact_id=contact) == first
    clock.off_by(6 * 60)
    assert await admitted(house, message, contact_id=contact) != first, "equal words are swallowed for an hour"


async def test_a_rule_that_has_expired_stays_so_when_the_clock_is_put_back(
    house: House, clock: Clock, message: str
) -> None:
    allowed, forbidden = await friend(house, expires_at=IN_HALF_AN_HOUR), new_chat()
    await house.rule({"recipient": forbidden})
    await house.rule({"recipient": forbidden}, effect="deny", expires_at=IN_HALF_AN_HOUR)
    clock.off_by(HOUR)
    await tidied(house.worker())
    clock.off_by(0)
    assert await house.status(await admitted(house, f"{message} allowed", contact_id=allowed)) == "pending_approval"
    assert await house.status(await admitted(house, f"{message} denied", recipient=forbidden)) == "error"
    lines = await house.sql.fetch("SELECT actor FROM shared.approval_events WHERE event_type = 'rule_expired'")
    assert [line["actor"] for line in lines] == ["messenger"]


async def test_a_pairing_code_that_has_expired_stays_so_when_the_clock_is_put_back(house: House, clock: Clock) -> None:
    async with house.context("messenger").db.work() as connection:
        await pairings.offer(house.sql, "a code", STANDARD.pairing)
        clock.off_by(HOUR)
        await tidied(house.worker())
        clock.off_by(0)
        assert not await pairings.use(connection, "a code")


@pytest.mark.slow
async def test_a_sign_in_link_that_has_expired_stays_so_when_the_clock_is_put_back(house: House, clock: Clock) -> None:
    daemon = house.assembly.daemon("console", "http://127.0.0.1:1")
    assert daemon.context is not None
    stopping = asyncio.Event()
    beside = [asyncio.ensure_future(loop(stopping)) for loop in daemon.loops]
    async with daemon.context.db.work() as connection:
        await sessions.make_sign_in_link(connection, "", "a code")
    clock.off_by(HOUR)
    await asyncio.sleep(daemon.context.settings.timings.unhurried + SPAN)
    clock.off_by(0)
    async with daemon.context.db.work() as connection:
        assert not await sessions.use_link(connection, "a code")
    stopping.set()
    await asyncio.gather(*beside)
    await daemon.context.daemons.close()


async def test_a_daemon_last_heard_of_in_the_future_is_not_called(house: House, clock: Clock) -> None:
    await house.sql.execute(GONE)
    clock.off_by(HOUR)
    await house.sql.execute(UP)
    clock.off_by(0)
    assert await house.sql.fetch(discovery.INSTANCES, STANDARD.instance_counts) == []
    await house.sql.execute(GONE)


async def test_a_session_claimed_while_the_clock_was_ahead_is_given_up_once_it_is_right(
    house: House, clock: Clock
) -> None:
    lease, session_id = STANDARD.session_lease, str(uuid4())
    terms = Terms("agent", "who fell silent", 1, lease, {"minutes": 1.0, "dollars": 1.0}, 9.0)
    clock.off_by(HOUR)
    await queue.enqueue(house.sql, session_id=session_id, butler="greeter", cause="ask", prompt="Paint.")
    async with house.context("greeter").db.work() as connection:
        assert await queue.claim_waiting(connection, "greeter", terms)
    clock.off_by(0)
    async with house.context("greeter").db.work() as connection:
        assert (await queue.needs(connection, "greeter", timedelta(), lease)).lapsed
        assert [one.id for one in await queue.lapsed(connection, "greeter", lease)] == [session_id]


async def test_what_was_due_while_the_clock_was_ahead_is_taken_over_once_it_is_right(
    house: House, clock: Clock
) -> None:
    lease = timedelta(seconds=7)
    own = Schedule(name="water", zone="UTC", at=datetime(2027, 1, 1, tzinfo=UTC), prompt="Water the roses.")
    async with house.context("greeter").db.work() as connection:
        await schedules.add_own(connection, "greeter", own, datetime(2026, 1, 1, tzinfo=UTC))
    clock.off_by(HOUR)
    async with house.context("greeter").db.work() as connection:
        [due] = await schedules.due(connection, "greeter", 10)
        await schedules.move(connection, due.id, None)
        assert await occurrences.claim_due(connection, "greeter", due, "who fell silent", lease)
    clock.off_by(0)
    async with house.context("greeter").db.work() as connection:
        assert len(await occurrences.take_over(connection, "greeter", "another", lease, 10, [])) == 1


async def test_a_start_while_the_clock_is_behind_makes_no_schedule_run_once_more(house: House, clock: Clock) -> None:
    daily = Schedule(name="daily", zone="UTC", cron="0 9 * * *", tool="count")
    context = house.context("health")

    async def started() -> None:
        async with context.db.work() as connection:
            await scheduler.follow(connection, "health", [daily])

    async def claimed() -> list[str]:
        async with context.db.work() as connection:
            return [one.id for one in await scheduler.claim(connection, context, 10)]

    await started()
    await house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp() WHERE name = 'daily'")
    [done] = await claimed()
    await occurrences.write_end(house.sql, done, context.instance, "done", "It counted.")
    clock.off_by(-60 * DAY)
    await started()
    clock.off_by(0)
    assert await claimed() == [], "what was done today is taken for missed"


async def test_a_start_before_the_clock_is_set_makes_nothing_due(house: House, clock: Clock) -> None:
    """A computer without a battery may start years back, and has run no time of what comes once a year."""
    yearly = Schedule(name="yearly", zone="UTC", cron=f"0 9 1 {datetime.now(UTC).month % 12 + 1} *", tool="count")
    context = house.context("health")
    for days in (0, -1000, 0):
        clock.off_by(days * DAY)
        async with context.db.work() as connection:
            await scheduler.follow(connection, "health", [yearly])
    assert await house.sql.fetchval(
        "SELECT next_due_at > clock_timestamp() FROM shared.schedules WHERE name = 'yearly'"
    )


async def test_the_clock_was_off(house: House, clock: Clock) -> None:
    """Else this file would prove nothing."""
    before = await house.sql.fetchval("SELECT clock_timestamp()")
    clock.off_by(HOUR)
    off = await house.sql.fetchval("SELECT clock_timestamp()") - before
    clock.off_by(0)
    assert timedelta(minutes=59) < off < timedelta(minutes=61)
