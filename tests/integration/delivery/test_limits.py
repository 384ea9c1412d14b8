"""Limits hold whoever sends and however many Messengers there are, and one butler's flood is not another's wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import cast
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.cards import kinds
from messenger.delivery import loop
from messenger.delivery.lease import Worker
from messenger.storage import rate_limits
from shared.channels import email, telegram
from shared.channels.base import Limit
from shared.config.timings import STANDARD
from shared.db.pool import Connection, Record
from tests.integration.house import House, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import FREE, admitted, due, enqueue, friend, in_queue, new_chat, work, worker_where
from tests.rig.cluster import Cluster
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = frozenset({"telegram", "email"})
NOW = "SELECT clock_timestamp()"
START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
LEFT = "SELECT extract(epoch FROM send_at - clock_timestamp())::float AS wait, * FROM messenger.deliveries"
SEED = """
INSERT INTO messenger.rate_limits (key, burst, every, free_at) VALUES ($1, $2, $3, clock_timestamp() - $4::interval)
"""


@pytest_asyncio.fixture(loop_scope="module")
async def own_house(cluster: Cluster) -> AsyncIterator[House]:
    """A house whose limits no other test has drawn on."""
    async with opened(cluster, loops=False) as made:
        yield made


@dataclass(slots=True)
class Overheard:
    """A connection of which every argument is noted."""

    inner: Connection
    arguments: list[object] = field(default_factory=list)

    async def fetch(self, text: str, *values: object) -> list[Record]:
        self.arguments += [one for value in values for one in (value if isinstance(value, list) else [value])]
        return list(await self.inner.fetch(text, *values))


def limited_worker(house: House) -> Worker:
    worker = house.worker()
    worker.limited = BOTH
    return worker


def most_within(moments: Sequence[datetime], window: timedelta) -> int:
    """The most of these that lie within any window of that length."""
    return max(sum(first <= other < first + window for other in moments) for first in moments)


def times(house: House, words: str) -> list[datetime]:
    return sorted(datetime.fromisoformat(str(line["at"])) for line in house.sent(words))


async def flat_out(house: House, words: str, count: int, *workers: Worker) -> None:
    """Let these workers work until so many have arrived."""
    stopping = asyncio.Event()
    loops = [asyncio.create_task(loop.run(worker, stopping)) for worker in workers]

    async def arrived() -> bool:
        return len(house.sent(words)) >= count

    try:
        async with asyncio.timeout(LONGEST):
            while not await arrived():
                await asyncio.sleep(0.02)
    finally:
        stopping.set()
        await asyncio.gather(*loops)


@pytest.mark.parametrize("seed", range(6))
async def test_a_bucket_never_gives_more_than_its_burst_and_what_ran_in(still_house: House, seed: int) -> None:
    """The statement as it is, at moments of our choosing instead of the clock's."""
    lots, statement = Random(seed), rate_limits.SPEND.replace("clock_timestamp()", "$4::timestamptz")
    limit = Limit(lots.randint(1, 6), timedelta(seconds=lots.choice((0.04, 1.0, 3.5))))
    at, given, key = START, list[datetime](), f"bucket:{uuid4()}"
    for _ in range(80):
        at += limit.every * lots.choice((0.0, 0.05, 0.3, 1.0, 1.0, 4.0))
        if await still_house.sql.fetch(statement, [key], [limit.burst], [limit.every], at):
            given.append(at)
    for window in (limit.every * spans for spans in (0.5, 1, 3, 10)):
        assert most_within(given, window) <= limit.burst + window / limit.every
    assert len(given) > limit.burst, "it gives at all"
    idle = [await still_house.sql.fetch(statement, [key], [limit.burst], [limit.every], at + timedelta(days=1))]
    idle += [
        await still_house.sql.fetch(statement, [key], [limit.burst], [limit.every], at + timedelta(days=1))
        for _ in range(limit.burst)
    ]
    assert [bool(one) for one in idle] == [True] * limit.burst + [False], "a day idle fills it, and no more than fills"


async def test_the_clock_of_the_process_has_no_say(still_house: House) -> None:
    overheard = Overheard(still_house.sql)
    assert await rate_limits.spend(cast("Connection", overheard), "telegram", new_chat(), "greeter", BOTH)
    spans = {telegram.BOT.every, telegram.CHAT.every}
    assert overheard.arguments, "something is spent"
    assert {one for one in overheard.arguments if not isinstance(one, str | int)} == spans


@pytest.mark.parametrize(
    ("limit", "window", "most"),
    [
        (telegram.BOT, timedelta(seconds=1), 30),
        (telegram.GROUP, timedelta(minutes=1), 20),
        (email.MAIL_MINUTE, timedelta(minutes=1), 30),
        (email.MAIL_DAY, timedelta(days=1), 500),
        (email.MAIL_BUTLER, timedelta(days=1), 350),
    ],
)
async def test_burst_and_refill_together_stay_within_what_is_promised(
    limit: Limit, window: timedelta, most: int
) -> None:
    assert most - 1 < limit.burst + window / limit.every <= most + 1e-6


async def test_two_desks_together_stay_below_thirty_in_a_second(own_house: House, message: str) -> None:
    for _ in range(70):
        await in_queue(own_house, message)
    await flat_out(own_house, message, 70, limited_worker(own_house), limited_worker(own_house))
    moments = times(own_house, message)
    assert len(moments) == 70
    # The marker counts; on the way to the provider some may close up, but two buckets would let sixty through.
    assert most_within(moments, timedelta(seconds=1)) <= 40
    assert moments[-1] - moments[0] >= timedelta(seconds=2.2)


async def test_one_chat_gets_a_small_burst_and_then_one_a_second_in_order(own_house: House, message: str) -> None:
    contact = await friend(own_house)
    for n in range(5):
        await in_queue(own_house, f"{message} {n}", contact_id=contact)
    await flat_out(own_house, message, 5, limited_worker(own_house), limited_worker(own_house))
    # From the first marker on: the way from there to the provider may take long, and the next ones catch up.
    first_marked = await own_house.sql.fetchval("SELECT min(marked_at) FROM messenger.attempts")
    assert times(own_house, message)[-1] - first_marked >= timedelta(seconds=1.8)
    texts = [str(line["payload"]["text"]) for line in own_house.sent(message)]  # type: ignore[index]
    assert texts == [f"{message} {n}" for n in range(5)]


async def test_a_group_waits_at_its_fourth_message_without_an_attempt_counted(still_house: House, message: str) -> None:
    group = f"-100{new_chat()}"
    await still_house.rule({"recipient": group})
    told = [await in_queue(still_house, f"{message} {n}", recipient=group) for n in range(4)]
    worker = limited_worker(still_house)
    for _ in range(6):
        await work(worker)
    assert len(still_house.sent(message)) == 3
    row = await still_house.row(f"{LEFT} WHERE notification_id = $1", told[3])
    assert (row["status"], row["attempt"]) == ("queued", 0)
    await due(still_house, told[3])
    await work(worker)
    assert len(still_house.sent(message)) == 4


@pytest.mark.parametrize(
    ("key", "counted"),
    [("email:day", BOTH), ("email:of:greeter", BOTH), ("email:day", frozenset[str]())],
    ids=["counted", "of_butler", "uncounted"],
)
async def test_the_marker_decides_and_puts_it_back_as_a_delay(
    still_house: House, message: str, key: str, counted: frozenset[str]
) -> None:
    await still_house.sql.execute(FREE)
    told = await in_queue(still_house, message, channel="email")
    used_up = (SEED, key, 100, timedelta(seconds=216), timedelta(hours=-1))
    worker = worker_where(still_house, lambda: still_house.sql.execute(*used_up))
    worker.limited = counted
    await work(worker)
    row = await still_house.row(f"{LEFT} WHERE notification_id = $1", told)
    assert (row["status"], row["reason"], row["attempt"]) == ("queued", "rate_limited", 0)
    assert 3500 < row["wait"] <= 3600
    assert still_house.sent(message) == []
    marked = "SELECT count(*) AS n FROM messenger.attempts WHERE delivery_id = $1"
    assert (await still_house.row(marked, row["id"]))["n"] == 0, "the marker is undone with it"
    await due(still_house, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_what_is_left_of_the_day_is_sent_and_the_rest_not_even_prepared(still_house: House, message: str) -> None:
    await still_house.sql.execute(FREE)
    await still_house.sql.execute(SEED, "email:day", 100, timedelta(seconds=216), timedelta(seconds=217))
    told = [await in_queue(still_house, f"{message} {n}", channel="email") for n in range(4)]
    worker = limited_worker(still_house)
    for _ in range(4):
        await work(worker)
    assert len(still_house.sent(message)) == 2
    rows = [await still_house.delivery(one) for one in told]
    assert sorted(row["status"] for row in rows) == ["queued", "queued", "sent", "sent"]
    assert {row["reason"] for row in rows if row["status"] == "queued"} == {None}
    await still_house.sql.execute(FREE)
    await work(worker)


async def test_one_butlers_mails_leave_half_of_the_days_burst_to_the_others(still_house: House) -> None:
    async def left(butler: str) -> int:
        spent, place = 0, ("email", "anna@example.test", butler, BOTH)
        while await rate_limits.spend(connection, *place):
            await connection.execute("DELETE FROM messenger.rate_limits WHERE key = 'email:minute'")
            spent += 1
        return spent

    await still_house.sql.execute(FREE)
    async with still_house.context("messenger").db.work() as connection:
        # The one that greeter does not get is spent from the day, since nothing undoes it here.
        assert [await left(butler) for butler in ("greeter", "health", "")] == [50, 49, 0]
    await still_house.sql.execute(FREE)


async def test_whose_butler_has_mailed_enough_is_not_prepared_and_another_butlers_leaves(
    still_house: House, message: str
) -> None:
    await still_house.sql.execute(FREE)
    await still_house.sql.execute(SEED, "email:of:greeter", 50, timedelta(seconds=288), timedelta(seconds=-100))
    to = {"channel": "email", "contact_id": await friend(still_house)}
    told = [await in_queue(still_house, f"{message} {n}", **to) for n in range(3)]
    other = await admitted(still_house, message, "health", **to)
    await enqueue(still_house, other)
    await work(limited_worker(still_house))
    rows = [await still_house.delivery(one) for one in told]
    assert ([(row["status"], row["reason"]) for row in rows], await still_house.status(other)) == (
        [("queued", None)] * 3,
        "ok",
    )
    await still_house.sql.execute(FREE)
    for _ in told:
        await work(still_house.worker())


async def test_a_flood_of_one_butler_does_not_make_another_wait(still_house: House, message: str) -> None:
    for _ in range(60):
        await in_queue(still_house, f"{message} flood")
    context = still_house.context("health")
    told = await admitted(still_house, f"{message} single", context.name, contact_id=await friend(still_house))
    await enqueue(still_house, told)
    worker = limited_worker(still_house)
    before = 0
    while await still_house.status(told) == "queued":
        before = len(still_house.sent(f"{message} flood"))
        await work(worker)
        await asyncio.sleep(0.02)
    assert before <= 10
    await flat_out(still_house, message, 61, still_house.worker())


async def test_an_address_keeps_its_order_whichever_butler_spoke(still_house: House, message: str) -> None:
    contact = await friend(still_house)
    for n, butler in enumerate(("greeter", "health", "greeter", "health")):
        told = await admitted(still_house, f"{message} {n}", butler, contact_id=contact)
        await enqueue(still_house, told)
    await flat_out(still_house, message, 4, still_house.worker())
    texts = [str(line["payload"]["text"]) for line in still_house.sent(message)]  # type: ignore[index]
    assert texts == [f"{message} {n}" for n in range(4)]


async def test_what_a_chat_was_told_to_wait_its_next_message_waits_too(own_house: House, message: str) -> None:
    """A card is the next: it goes before any message."""
    first = await in_queue(own_house, f"{message} first", recipient=str(OWNER))
    await own_house.fault(message, "429", times=1, value=600)
    worker, asked_for = own_house.worker(), timedelta(seconds=600)
    before = await own_house.sql.fetchval(NOW)
    await work(worker)
    row, after = await own_house.delivery(first), await own_house.sql.fetchval(NOW)
    assert row["reason"] == "rate_limited"
    assert before + asked_for <= row["send_at"] <= after + asked_for
    asked = await own_house.contact("Asked", telegram=new_chat())
    await admitted(own_house, f"{message} card", contact_id=asked)
    async with own_house.context("messenger").db.work() as connection:
        assert await kinds.write_missing(connection, 1000, STANDARD) >= 1
    await work(worker)
    assert own_house.cards(message) == []
    other = await in_queue(own_house, f"{message} other")
    await work(worker)
    assert (await own_house.status(other), own_house.cards(message)) == ("ok", []), "other chats do not wait"
    await due(own_house, first)
    for _ in range(4):
        await work(worker)
    assert (len(own_house.cards(message)), await own_house.status(first)) == (1, "ok")


async def test_two_chats_told_to_wait_make_the_whole_bot_wait_and_an_hour_is_the_most(
    own_house: House, message: str
) -> None:
    await own_house.sql.execute(FREE)
    told = [await in_queue(own_house, f"{message} {n}") for n in range(2)]
    await own_house.fault(message, "429", times=2, value=86_000)
    worker = own_house.worker()
    await work(worker)
    later = await in_queue(own_house, f"{message} later")
    await work(worker)
    assert own_house.sent(message) == []
    assert (await own_house.delivery(later))["attempt"] == 0
    most = "SELECT max(extract(epoch FROM free_at - clock_timestamp()))::float AS wait FROM messenger.rate_limits"
    assert 3500 < (await own_house.row(most))["wait"] <= 3600
    mail = await in_queue(own_house, f"{message} mail", channel="email")
    await work(worker)
    assert await own_house.status(mail) == "ok"
    for one in told:
        await due(own_house, one)
    for _ in range(3):
        await work(worker)
    assert len(own_house.sent(f"{message} ")) == 4


async def test_two_chats_told_to_wait_at_the_same_moment_make_the_whole_bot_wait(own_house: House) -> None:
    await own_house.sql.execute(FREE)
    db = own_house.context("messenger").db

    async def told(chat: str) -> None:
        async with db.work() as connection:
            await rate_limits.obey(connection, "telegram", chat, timedelta(seconds=60), STANDARD.asked_together)

    async with db.work() as connection:
        await rate_limits.obey(connection, "telegram", new_chat(), timedelta(seconds=60), STANDARD.asked_together)
        other = asyncio.create_task(told(new_chat()))
        await asyncio.wait([other], timeout=0.3)
    await other
    async with db.work() as connection:
        assert await rate_limits.free_at(connection, "telegram", new_chat(), "greeter") is not None


async def test_others_wait_as_long_as_the_provider_says_and_no_longer(own_house: House, message: str) -> None:
    """A message that failed nine times waits for minutes by itself; its chat and the bot for what was asked."""
    await own_house.sql.execute(FREE)
    told = [await in_queue(own_house, f"{message} {n}") for n in range(2)]
    await own_house.sql.execute("UPDATE messenger.deliveries SET attempt = 9 WHERE status = 'queued'")
    await own_house.fault(message, "429", times=2, value=20)
    await work(own_house.worker())
    waits = "SELECT extract(epoch FROM free_at - clock_timestamp())::float AS wait FROM messenger.rate_limits"
    asked = [row["wait"] for row in await own_house.sql.fetch(f"{waits} WHERE told_at IS NOT NULL")]
    assert len(asked) == 3
    assert max(asked) <= 20
    for one in told:
        assert (await own_house.row(f"{LEFT} WHERE notification_id = $1", one))["wait"] > 120


async def test_a_full_bucket_is_forgotten_and_one_in_use_is_not(own_house: House) -> None:
    await own_house.sql.execute(FREE)
    await own_house.sql.execute(SEED, "telegram:1", 3, timedelta(seconds=1), timedelta(hours=1))
    await own_house.sql.execute(SEED, "email:day", 100, timedelta(seconds=216), timedelta(hours=1))
    async with own_house.context("messenger").db.work() as connection:
        await rate_limits.forget(connection, STANDARD.bucket_kept, STANDARD.longest_wait)
    assert [row["key"] for row in await own_house.sql.fetch("SELECT key FROM messenger.rate_limits")] == ["email:day"]
