"""Schedules over real rows: claimed once, made up for or skipped, and the lineage of what they send."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest

from butlers.butler import Context, Result, Tool, ToolCall
from butlers.daemon.assembly import Assembly
from butlers.scheduler import Hand, Scheduler, claim, follow
from butlers.schedules import read_schedule
from shared.auth.tokens import Caller
from shared.errors import ButlersError, InvalidInput
from shared.storage import occurrences, schedules, sessions
from shared.storage.schedules import Schedule
from tests.integration.house import House
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
BUTLER = "health"


@dataclass(slots=True)
class Owned:
    """One process's scheduler with one butler, whose tool `count` counts its calls by what it was called with."""

    context: Context
    calls: list[Mapping[str, object]] = field(default_factory=list)
    hang: asyncio.Event | None = None

    @property
    def hand(self) -> Hand:
        async def call(tool: str, arguments: Mapping[str, object], _: str) -> Result:
            self.calls.append(arguments)
            if self.hang is not None:
                await self.hang.wait()
            return Result({"tool": tool})

        async def unused(_: ToolCall) -> Result:
            raise AssertionError

        return Hand(self.context, {"count": Tool("count", "Count.", {}, unused)}, call, None)


def another(house: House, **timings: float | timedelta) -> Context:
    """The butler's context as another process of it has it."""
    return replace(house.context(BUTLER, **timings), instance=f"{BUTLER}@{uuid4()}")


SOON: Final = "next_due_at < clock_timestamp() + interval '1 day'"


def counting(name: str, **more: object) -> Schedule:
    return read_schedule({"name": name, "cron": "0 9 * * *", "tool": "count", **more}, "UTC")


async def given(house: House, schedule: Schedule, due: str = "clock_timestamp()") -> None:
    """A schedule of the butler's file that is due at this SQL expression, and no other."""
    await house.sql.execute("DELETE FROM shared.schedules")
    async with house.context(BUTLER).db.work() as connection:
        await follow(connection, BUTLER, [schedule])
    await house.sql.execute(f"UPDATE shared.schedules SET next_due_at = {due}")


async def looked(hand: Hand) -> None:
    """Claim what is due, and let what was begun end."""
    scheduler = Scheduler()
    await scheduler.look(hand)
    async with asyncio.timeout(LONGEST):
        while hand.held:
            await asyncio.sleep(0.005)


async def statuses(house: House) -> list[str]:
    return [row["status"] for row in await house.sql.fetch("SELECT status FROM shared.occurrences ORDER BY due_at")]


async def test_an_occurrence_is_claimed_by_one_of_many(still_house: House) -> None:
    house = still_house
    await house.sql.execute("DELETE FROM shared.schedules")
    async with house.context(BUTLER).db.work() as connection:
        await follow(connection, BUTLER, [counting(f"s{n}") for n in range(60)])
    await house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
    processes = [Owned(another(house)) for _ in range(3)]
    await asyncio.gather(*(looked(one.hand) for one in processes))
    assert sum(len(one.calls) for one in processes) == 60
    assert await statuses(house) == ["done"] * 60
    assert await house.sql.fetchval("SELECT count(*) FROM shared.schedules WHERE next_due_at > clock_timestamp()") == 60


@pytest.mark.parametrize(("catch_up", "calls", "ends"), [("once", 1, "done"), ("skip", 0, "skipped")])
async def test_what_was_missed_for_days_is_made_up_for_once_or_not_at_all(
    still_house: House, catch_up: str, calls: int, ends: str
) -> None:
    await given(still_house, counting("daily", catch_up=catch_up), "clock_timestamp() - interval '3 days'")
    process = Owned(another(still_house))
    for _ in range(2):
        await looked(process.hand)
    assert (len(process.calls), await statuses(still_house)) == (calls, [ends])


async def test_what_a_dead_process_had_claimed_is_carried_out_and_what_it_had_begun_is_uncertain(
    still_house: House,
) -> None:
    house, briefly = still_house, timedelta(milliseconds=30)
    for begins, calls, ends in ((False, 1, "done"), (True, 0, "uncertain")):
        await given(house, counting("daily"))
        dead, other = another(house), Owned(another(house))
        async with dead.db.work() as connection:
            (one,) = await claim(connection, replace(dead, settings=_briefer(dead, briefly)), 10)
            if begins:
                assert await occurrences.start_call(connection, one.id, dead.instance, briefly)
        await asyncio.sleep(0.1)
        await looked(other.hand)
        assert (len(other.calls), await statuses(house)) == (calls, [ends])
        # Whoever was given up does not begin any more.
        async with dead.db.work() as connection:
            assert not await occurrences.start_call(connection, one.id, dead.instance, briefly)


def _briefer(context: Context, lease: timedelta):  # type: ignore[no-untyped-def]  # noqa: ANN202
    return replace(context.settings, timings=replace(context.settings.timings, renew=0.005, margin=0.001, lease=lease))


async def test_what_is_in_hand_is_kept_and_nobody_else_takes_it(still_house: House) -> None:
    await given(still_house, counting("daily"))
    slow = Owned(replace(c := another(still_house), settings=_briefer(c, timedelta(milliseconds=300))))
    slow.hang = asyncio.Event()
    scheduler, stopping = Scheduler(), asyncio.Event()
    scheduler.take(slow.hand)
    running = asyncio.create_task(scheduler.run(stopping))
    await asyncio.sleep(0.8)
    other = Owned(another(still_house))
    await looked(other.hand)
    slow.hang.set()
    stopping.set()
    await running
    assert (len(slow.calls), len(other.calls), await statuses(still_house)) == (1, 0, ["done"])


async def test_what_repeats_is_due_again_whatever_a_wrong_clock_has_written(still_house: House) -> None:
    """Of the butler's file and of its own making alike; what comes once stays as far ahead as it was set."""
    await given(still_house, counting("daily"))
    at = datetime(2199, 1, 1, tzinfo=UTC)
    once = read_schedule({"name": "once", "at": at.isoformat(), "tool": "count"}, "UTC")
    async with still_house.context(BUTLER).db.work() as connection:
        await schedules.add_own(connection, BUTLER, counting("its_own"), at)
        await schedules.add_own(connection, BUTLER, once, at)
    for moved in ("'2199-01-01Z'", "NULL"):
        await still_house.sql.execute(f"UPDATE shared.schedules SET next_due_at = {moved}")
        async with still_house.context(BUTLER).db.work() as connection:
            await follow(connection, BUTLER, [counting("daily")])
        due = await still_house.sql.fetch(f"SELECT name, {SOON} IS TRUE FROM shared.schedules ORDER BY name")
        assert list(map(tuple, due)) == [("daily", True), ("its_own", True), ("once", False)]


async def test_a_butler_that_holds_its_own_row_keeps_no_other_butlers_lease(still_house: House) -> None:
    house, renewed = still_house, set[object]()
    scheduler, stopping, hang = Scheduler(), asyncio.Event(), asyncio.Event()
    await given(house, counting("daily"))
    owned = {name: Owned(house.context(name, renew=0.005), hang=hang) for name in (BUTLER, "greeter")}
    async with owned["greeter"].context.db.work() as connection:
        await follow(connection, "greeter", [counting("daily")])
    await house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
    for one in owned.values():
        scheduler.take(one.hand)
    running = asyncio.create_task(scheduler.run(stopping))
    await until(lambda: all(one.calls for one in owned.values()))

    async def often() -> bool:
        text = "SELECT leased_until FROM shared.occurrences WHERE butler = 'greeter'"
        renewed.add(await house.sql.fetchval(text))
        # More than there would be if each of them waited for the other butler's row first.
        return len(renewed) > 40

    async with house.context(BUTLER).db.work("SET LOCAL idle_in_transaction_session_timeout = 0") as holding:
        await holding.execute("SELECT FROM shared.occurrences WHERE butler = $1 FOR UPDATE", BUTLER)
        await eventually(often)
    hang.set()
    stopping.set()
    await running
    assert await statuses(house) == ["done"] * 2


TAKEN = """
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, claimed_by, leased_until)
SELECT id, butler, next_due_at, 'claimed', 'x', clock_timestamp() + interval '1 hour' FROM shared.schedules
WHERE butler = $1
"""


async def test_a_butler_that_holds_what_it_would_claim_keeps_no_other_butlers_schedule(still_house: House) -> None:
    house, scheduler, stopping = still_house, Scheduler(), asyncio.Event()
    await given(house, counting("daily"))
    owned = {name: Owned(house.context(name)) for name in (BUTLER, "greeter")}
    async with owned["greeter"].context.db.work() as connection:
        await follow(connection, "greeter", [counting("daily")])
    await house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
    held = house.sql.transaction()
    await held.start()
    # The unique entry is there, and the key of its schedule is not locked, as while a row is being inserted.
    await house.sql.execute("SET LOCAL session_replication_role = replica")
    await house.sql.execute(TAKEN, BUTLER)
    for one in owned.values():
        scheduler.take(one.hand)
    running = asyncio.create_task(scheduler.run(stopping))
    try:
        async with asyncio.timeout(3):
            await until(lambda: owned["greeter"].calls)
        assert owned[BUTLER].calls == []
    finally:
        await held.rollback()
        stopping.set()
        await running


AHEAD = """
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, ended_at)
SELECT id, butler, clock_timestamp() + interval '1 hour', 'done', '2199-01-01Z' FROM shared.schedules WHERE butler = $1
"""
TAKEN_LATER = """
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, ended_at, claimed_at)
SELECT id, butler, '2199-01-01Z', 'done', '2199-01-01Z', '2199-01-01Z' FROM shared.schedules WHERE butler = $1
"""


async def test_no_time_of_a_schedule_is_taken_before_it_is_due(still_house: House) -> None:
    """A process that is under somebody's control would have it passed over long after that."""
    await given(still_house, counting("daily"))
    for statement, why in ((AHEAD, "no_time_is_taken_ahead"), (TAKEN_LATER, "permission denied")):
        with pytest.raises(ButlersError) as refused:
            async with still_house.context(BUTLER).db.work() as connection:
                await connection.execute(statement, BUTLER)
        assert why in str(refused.value.__cause__)
    await still_house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
    owned = Owned(another(still_house))
    await looked(owned.hand)
    assert await statuses(still_house) == ["done"]


async def test_what_is_in_hand_is_not_taken_from_itself_though_its_lease_is_over(still_house: House) -> None:
    await given(still_house, counting("daily"))
    slow = Owned(another(still_house), hang=asyncio.Event())
    hand, scheduler = slow.hand, Scheduler()
    await scheduler.look(hand)
    await until(lambda: slow.calls)
    await still_house.sql.execute("UPDATE shared.occurrences SET leased_until = clock_timestamp()")
    await scheduler.look(hand)
    assert slow.hang is not None
    slow.hang.set()
    await until(lambda: not hand.held)
    assert (len(slow.calls), await statuses(still_house)) == (1, ["done"])


async def test_a_prompt_becomes_one_waiting_session(still_house: House) -> None:
    schedule = read_schedule({"name": "morning", "cron": "0 9 * * *", "prompt": "How was the night?"}, "UTC")
    await given(still_house, schedule)
    processes = [Owned(another(still_house)) for _ in range(2)]
    await asyncio.gather(*(looked(one.hand) for one in processes))
    rows = await still_house.sql.fetch(
        "SELECT s.cause, s.prompt, s.butler FROM shared.sessions s JOIN shared.occurrences o ON o.id = s.occurrence_id"
    )
    assert [tuple(row) for row in rows] == [("schedule:morning", "How was the night?", BUTLER)]


async def test_a_prompt_that_still_waits_is_not_asked_once_more(still_house: House) -> None:
    await still_house.sql.execute("DELETE FROM shared.sessions")
    schedule = read_schedule({"name": "often", "cron": "* * * * *", "prompt": "Look again."}, "UTC")
    await given(still_house, schedule)
    process = Owned(another(still_house))
    again = "UPDATE shared.schedules SET next_due_at = clock_timestamp()"
    for wanted in (["done"], ["done", "skipped"]):
        await looked(process.hand)
        assert await statuses(still_house) == wanted
        await still_house.sql.execute(again)
    await still_house.sql.execute("UPDATE shared.sessions SET status = 'running', began_at = now()")
    await looked(process.hand)
    assert await statuses(still_house) == ["done", "skipped", "done"]


async def test_the_same_words_go_out_at_each_occurrence_and_once_at_each(house: House, message: str) -> None:
    hand = _real(house.assembly, house.context(BUTLER))
    words = {"channel": "telegram", "message": message}
    await given(house, counting("daily", tool="notify", arguments=words))
    for day in (1, 2):
        await looked(hand)
        assert len(house.sent(message)) == day
        # As after a SIGKILL: sent, and nothing written of it.
        await house.sql.execute(
            "UPDATE shared.occurrences SET status = 'running', ended_at = NULL, leased_until = clock_timestamp()"
        )
        await looked(hand)
        assert len(house.sent(message)) == day
        await house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")


def _real(assembly: Assembly, context: Context) -> Hand:
    client = assembly.local[BUTLER]

    async def call(tool: str, arguments: Mapping[str, object], occurrence: str) -> Result:
        return await client.by_clock(tool, arguments, Caller(BUTLER, "client", occurrence))

    async def unused(_: ToolCall) -> Result:
        raise AssertionError

    return Hand(context, {"notify": Tool("notify", "Tell.", {}, unused)}, call, None)


async def test_the_rows_follow_the_file_and_keep_their_time(still_house: House) -> None:
    house = still_house
    await given(house, counting("daily"), "'2001-01-01'")
    stays = "SELECT name, next_due_at = '2001-01-01' AS as_it_was FROM shared.schedules ORDER BY name"
    async with house.context(BUTLER).db.work() as connection:
        await follow(connection, BUTLER, [counting("daily", catch_up="skip"), counting("new")])
    assert [tuple(row) for row in await house.sql.fetch(stays)] == [("daily", True), ("new", False)]
    async with house.context(BUTLER).db.work() as connection:
        await follow(connection, BUTLER, [counting("daily", cron="0 10 * * *")])
    assert [tuple(row) for row in await house.sql.fetch(stays)] == [("daily", False)]


async def test_what_came_once_never_comes_again_and_what_was_missed_comes_in_another_zone(still_house: House) -> None:
    """Its row in the file was away for a while, or the computer has travelled."""
    house = still_house
    past = read_schedule({"name": "once", "at": "2001-01-01T00:00:00Z", "tool": "count"}, "UTC")
    await given(house, counting("daily"), "'2001-01-01'")
    async with house.context(BUTLER).db.work() as connection:
        for zone in ("UTC", "Asia/Tokyo"):
            await follow(connection, BUTLER, [replace(one, zone=zone) for one in (counting("daily"), past)])
    due = await house.sql.fetch("SELECT name, next_due_at = '2001-01-01' AS missed FROM shared.schedules ORDER BY name")
    assert list(map(tuple, due)) == [("daily", True), ("once", None)]


# What is due next of an `at` without an offset where the computer starts in Tokyo, as its row was before, in Honolulu.
@pytest.mark.parametrize(
    ("was", "then"),
    [("'2001-01-01'", "missed"), ("NULL", None), ("once_at", "waits"), ("NULL, zone = 'nowhere'", "waits")],
)
async def test_nine_oclock_is_kept_on_a_journey(still_house: House, was: str, then: str | None) -> None:
    once = {"name": "one", "at": "2040-07-01T09:00", "tool": "count"}
    await given(still_house, read_schedule(once, "Pacific/Honolulu"), was)
    async with still_house.context(BUTLER).db.work() as connection:
        await follow(connection, BUTLER, [read_schedule(once, "Asia/Tokyo")])
    due = """
        SELECT CASE next_due_at WHEN '2001-01-01' THEN 'missed' WHEN '2040-07-01T09:00+09' THEN 'waits'
            ELSE next_due_at::text END FROM shared.schedules
    """
    assert await still_house.sql.fetchval(due) == then


# The clocks of the one stand hours later, so that its time was missed there; those of the other earlier.
@pytest.mark.parametrize("there", ["Asia/Tokyo", "Europe/Lisbon"])
async def test_what_repeats_is_kept_on_a_journey(still_house: House, there: str) -> None:
    wall = datetime.now(ZoneInfo("Europe/Berlin")).replace(second=0, microsecond=0) + timedelta(hours=2)
    monthly = {"name": there[-5:].lower(), "cron": f"{wall.minute} {wall.hour} {wall.day} * *", "tool": "count"}
    for zone in ("Europe/Berlin", there):
        async with still_house.context(BUTLER).db.work() as connection:
            await follow(connection, BUTLER, [read_schedule(monthly, zone)])
    due = await still_house.sql.fetchval("SELECT next_due_at FROM shared.schedules WHERE name = $1", monthly["name"])
    assert due == wall.replace(tzinfo=ZoneInfo(there))


async def test_what_comes_each_day_is_not_made_up_for_where_a_zone_is_put_right(still_house: House) -> None:
    wall = datetime.now(ZoneInfo("UTC")).replace(second=0, microsecond=0) + timedelta(hours=2)
    daily = {"name": "nightly", "cron": f"{wall.minute} {wall.hour} * * *", "tool": "count"}
    for zone in ("UTC", "Asia/Tokyo"):
        async with still_house.context(BUTLER).db.work() as connection:
            await follow(connection, BUTLER, [read_schedule(daily, zone)])
    due = await still_house.sql.fetchval("SELECT next_due_at FROM shared.schedules WHERE name = 'nightly'")
    assert due == wall.replace(tzinfo=ZoneInfo("Asia/Tokyo")) + timedelta(days=1)


async def test_a_tool_that_is_not_there_or_refuses_ends_its_occurrence_with_a_sentence(still_house: House) -> None:
    await given(still_house, counting("daily", tool="cuont"))
    await looked(Owned(another(still_house)).hand)

    async def refuses(*_: object) -> Result:
        raise InvalidInput("There is no bed.", "Name one.")

    assert await still_house.sql.fetchval("SELECT outcome FROM shared.occurrences") == "The butler has no tool `cuont`."
    await given(still_house, counting("daily"))
    await looked(replace(Owned(another(still_house)).hand, call=refuses))
    assert await still_house.sql.fetchval("SELECT status || outcome FROM shared.occurrences") == (
        "failedThere is no bed. Name one."
    )


async def test_a_butler_learns_what_its_schedule_could_not_do(still_house: House) -> None:
    await still_house.sql.execute("DELETE FROM shared.notices")
    await given(still_house, counting("daily", tool="cuont"))
    for _ in range(2):
        await looked(Owned(another(still_house)).hand)
        await still_house.sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
    text = "SELECT butler, source, kind, key, trust, wakes, text FROM shared.notices ORDER BY created_at"
    rows = await still_house.sql.fetch(text)
    said = "What your schedule `daily` had due has ended as failed: “The butler has no tool `cuont`.”"
    told = (BUTLER, "schedule", "failed", "daily", "internal")
    assert list(map(tuple, rows)) == [(*told, True, said), (*told, False, said)], "what fails once more begins no other"


async def test_a_failure_that_nobody_was_told_keeps_no_later_one_from_beginning_a_session(still_house: House) -> None:
    sql, wakes = still_house.sql, []
    await sql.execute("DELETE FROM shared.notices")
    await given(still_house, counting("daily", tool="cuont"))
    newest = "(SELECT id FROM shared.notices ORDER BY created_at DESC LIMIT 1)"
    for then in (
        f"UPDATE shared.notices SET expires_at = clock_timestamp() WHERE id = {newest}",
        f"UPDATE shared.notices SET state = 'done', shown_in = 'a session' WHERE id = {newest}",
        "UPDATE shared.occurrences SET status = 'done', ended_at = clock_timestamp()",
        "DELETE FROM shared.schedules",
    ):
        await sql.execute("UPDATE shared.schedules SET next_due_at = clock_timestamp()")
        await looked(Owned(another(still_house)).hand)
        wakes.append(await sql.fetchval(f"SELECT wakes FROM shared.notices WHERE id = {newest}"))
        await sql.execute(then)
    assert wakes == [True, True, False, True], "first, untold, told, and again since it went well"


async def test_what_waits_where_nothing_thinks_any_more_is_ended_and_the_owner_told(house: House) -> None:
    said = f"forgotten {uuid4()}"
    session_id, lost = str(uuid4()), str(uuid4())
    for one in (session_id, lost):
        await sessions.enqueue(house.sql, session_id=one, butler=BUTLER, cause="test", prompt=said)
    await house.sql.execute(
        """UPDATE shared.sessions SET status = 'running', began_at = clock_timestamp(), attempt = 1, holder = 'gone',
        lease_until = clock_timestamp() - interval '1 s' WHERE id = $1""",
        UUID(lost),
    )
    await Scheduler().look(replace(Owned(house.context(BUTLER)).hand, thinks=False))
    rows = await house.sql.fetch("SELECT status, outcome FROM shared.sessions WHERE prompt = $1", said)
    assert [tuple(row.values()) for row in rows] == [("failed", f"Nothing thinks for {BUTLER} any more.")] * 2

    async def told() -> bool:
        return sum(said in str(line) for line in await house.box.journal()) == 2

    assert await eventually(told)
