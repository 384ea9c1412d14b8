"""The queue of sessions in rows: its order, its places, its fence, the dollars of a day, and who may end what."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from shared.errors import ButlersError, Forbidden, InvalidInput
from shared.storage import session_list, session_steps, sessions
from shared.storage.sessions import Claimed, Finish, Terms
from tests.integration.house import House
from tests.rig import outside_sessions

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS: Final[Mapping[str, float]] = {"minutes": 10, "turns": 30, "tokens": 200_000, "dollars": 1.0}
LEASE: Final = timedelta(seconds=10)
DONE: Final = Finish("done", "")
WAITING: Final = "SELECT id FROM shared.sessions WHERE butler = 'greeter' AND status = 'waiting'"
FORGED: Final = """
INSERT INTO shared.sessions (id, butler, cause, prompt, owners_words, request_context)
SELECT gen_random_uuid(), 'greeter', 'message', 'tell a joke', 'own', '{}' FROM generate_series(1, $1)
"""


def terms(at_once: int = 1, dollars_per_day: float = 10.0) -> Terms:
    return Terms("script", "a process", at_once, LEASE, LIMITS, dollars_per_day)


async def enqueued(
    house: House, prompt: str = "do it", butler: str = "greeter", cause: str = "test", **more: object
) -> str:
    """A session that waits, as the owner's login puts it there."""
    session_id = str(uuid4())
    asked = {"session_id": session_id, "butler": butler, "cause": cause, "prompt": prompt, **more}
    await sessions.enqueue(house.sql, **asked)  # type: ignore[arg-type]
    return session_id


async def claim(house: House, by: Terms) -> Claimed | None:
    async with house.context("greeter").db.work() as connection:
        return await sessions.claim_waiting(connection, "greeter", by)


async def finish(house: House, claimed: Claimed, how: Finish = DONE, **used: float) -> None:
    async with house.context("greeter").db.work() as connection:
        await sessions.note(connection, claimed, used)
        await sessions.finish(connection, claimed, how)


async def row(house: House, session_id: str) -> Mapping[str, object]:
    found = await house.sql.fetchrow("SELECT * FROM shared.sessions WHERE id = $1", UUID(session_id))
    assert found is not None
    return dict(found)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _empty(still_house: House) -> None:
    await still_house.sql.execute("DELETE FROM shared.sessions")


async def claimed_by(house: House, count: int, by: Terms) -> Sequence[Claimed]:
    """What so many claims of the same moment get."""
    return [one for one in await asyncio.gather(*(claim(house, by) for _ in range(count))) if one is not None]


async def test_processes_claim_one_after_the_other(still_house: House) -> None:
    for _ in range(2):
        await enqueued(still_house)
    async with still_house.context("greeter").db.work() as connection:
        assert await sessions.claim_waiting(connection, "greeter", terms())
        second = asyncio.create_task(claim(still_house, terms()))
        assert not (await asyncio.wait([second], timeout=0.5))[0]
    assert await second is None


async def test_sessions_begin_in_order_and_as_many_as_there_are_places(still_house: House) -> None:
    waiting = [await enqueued(still_house) for _ in range(4)]
    (first,) = await claimed_by(still_house, 6, terms())
    assert first.id == waiting[0]
    assert await claimed_by(still_house, 2, terms()) == []
    await finish(still_house, first)
    two = await claimed_by(still_house, 6, terms(at_once=2))
    assert {one.id for one in two} == set(waiting[1:3])


async def test_a_day_s_dollars_bound_what_runs_and_what_begins(still_house: House) -> None:
    first, second, third = [await enqueued(still_house, cause="ask") for _ in range(3)]
    one = await claim(still_house, terms(at_once=3, dollars_per_day=1.5))
    two = await claim(still_house, terms(at_once=3, dollars_per_day=1.5))
    assert one is not None
    assert two is not None
    assert [(each.id, each.limits["dollars"]) for each in (one, two)] == [(first, 1.0), (second, 0.5)]
    async with still_house.context("greeter").db.work() as connection:
        for each in (one, two):  # of what runs nobody knows yet what it will have cost
            await sessions.note(connection, each, {"dollars": each.limits["dollars"]})
    assert await claim(still_house, terms(at_once=3, dollars_per_day=1.5)) is None
    assert (await row(still_house, third))["status"] == "waiting"
    await finish(still_house, one, dollars=1.0)
    await finish(still_house, two, dollars=0.5)
    assert await claim(still_house, terms(dollars_per_day=1.5)) is None
    over = await row(still_house, third)
    assert (over["status"], over["began_at"]) == ("limit", None)
    assert "1.5 dollars a day" in str(over["untold"])
    assert "It was asked: “" in str(over["untold"])


@pytest.mark.parametrize("cause", ["message", "butler:health"])
async def test_what_the_owner_did_not_begin_leaves_half_of_a_days_dollars(still_house: House, cause: str) -> None:
    theirs = [await enqueued(still_house, "x”\n\nButlers: “y", cause=cause) for _ in range(2)]
    first = await claim(still_house, terms(dollars_per_day=1.0))
    assert first is not None
    assert first.limits["dollars"] == 0.5
    await finish(still_house, first, dollars=0.5)
    assert await claim(still_house, terms(dollars_per_day=1.0)) is None
    untold = str((await row(still_house, theirs[1]))["untold"])
    assert "as far as what you did not begin may." in untold
    assert untold.endswith("It was asked: “x' Butlers: 'y”")
    await enqueued(still_house, cause="ask")
    own = await claim(still_house, terms(dollars_per_day=1.0))
    assert own is not None
    assert own.limits["dollars"] == 0.5


async def test_the_owners_words_come_before_what_others_asked(still_house: House) -> None:
    others = [await enqueued(still_house, cause=cause) for cause in ("butler:health", "schedule:often") * 30]
    owners = [await enqueued(still_house, cause=cause) for cause in ("message", "ask")]
    begun = await claimed_by(still_house, 3, terms(at_once=3))
    assert {one.id for one in begun} == {*owners, others[0]}
    assert await claim(still_house, terms(at_once=3)) is None


async def test_the_owners_words_come_before_those_of_whom_the_owner_lets_ask(still_house: House) -> None:
    contacts = [await enqueued(still_house, cause="message") for _ in range(3)]
    own, reply = str(uuid4()), str(uuid4())
    async with still_house.context("switchboard").db.work() as connection:
        # Neither has a notice, as the one is long and the other about somebody else's conversation.
        await sessions.enqueue_message(connection, own, "greeter", "words " * 1000, {}, session_list.OWN)
        await sessions.enqueue_message(connection, reply, "greeter", "words", {}, session_list.REPLY)
    begun = await claimed_by(still_house, 3, terms(at_once=3))
    assert {one.id for one in begun} == {own, reply, contacts[0]}
    async with still_house.context("greeter").db.work() as connection:
        sees_all = [await session_list.is_by_owner(connection, one.id, "greeter") for one in begun]
    assert dict(zip((one.id for one in begun), sees_all, strict=True)) == {own: True, reply: False, contacts[0]: False}


async def test_however_many_messages_wait_the_newest_of_the_owner_s_wait_behind_few(still_house: House) -> None:
    contacts = await enqueued(still_house, cause="message")
    async with still_house.context("switchboard").db.work() as connection:
        await connection.execute(FORGED, 200)
        own = str(uuid4())
        await sessions.enqueue_message(connection, own, "greeter", "call the doctor", {}, session_list.OWN)
    assert await claim(still_house, terms()) is None, "the oldest end first"
    waiting = {str(one["id"]) for one in await still_house.sql.fetch(WAITING)}
    assert (len(waiting), {own, contacts} <= waiting) == (101, True)
    [told] = await sessions.untold(still_house.sql, "greeter")
    assert (told["status"], "the oldest began no session" in told["untold"]) == ("stopped", True)


async def test_spent_dollars_are_told_once_and_each_time_of_the_owners_words(still_house: House) -> None:
    told = list[bool]()
    for cause in ("schedule:often", "butler:health", "schedule:often", "message", "message"):
        session_id = await enqueued(still_house, cause=cause)
        assert await claim(still_house, terms(dollars_per_day=0.0)) is None
        told.append((await row(still_house, session_id))["untold"] is not None)
    assert told == [True, False, False, True, True]


async def test_an_earlier_holder_writes_nothing_more(still_house: House) -> None:
    session_id = await enqueued(still_house)
    earlier = await claim(still_house, terms())
    assert earlier is not None
    await still_house.sql.execute("UPDATE shared.sessions SET lease_until = clock_timestamp() - interval '1 s'")
    async with still_house.context("greeter").db.work() as connection:
        assert [one.id for one in await sessions.lapsed(connection, "greeter", LEASE)] == [session_id]
        assert await sessions.put_back(connection, earlier, None)
    now = await claim(still_house, terms())
    assert now is not None
    assert (now.id, now.attempt) == (session_id, 2)
    await finish(still_house, earlier, Finish("failed", "an earlier attempt"), turns=7)
    found = await row(still_house, session_id)
    assert (found["status"], found["used"]) == ("running", {})
    async with still_house.context("greeter").db.work() as connection:
        assert await sessions.keep_lease(connection, earlier, LEASE) == "gone"
        assert await sessions.keep_lease(connection, now, LEASE) == "ours"


async def test_what_has_called_a_tool_is_not_put_back(still_house: House) -> None:
    await enqueued(still_house)
    claimed = await claim(still_house, terms())
    assert claimed is not None
    async with still_house.context("greeter").db.work() as connection:
        assert await session_steps.begun(connection, "greeter", claimed.id, "notify", {}) == 1
        assert not await sessions.put_back(connection, claimed, "again")


async def test_a_session_that_ended_calls_nothing_more(still_house: House) -> None:
    await enqueued(still_house)
    claimed = await claim(still_house, terms())
    assert claimed is not None
    await finish(still_house, claimed)
    async with still_house.context("greeter").db.work() as connection:
        assert not await session_list.is_running(connection, "greeter", claimed.id)
        with pytest.raises(Forbidden):
            await session_steps.begun(connection, "greeter", claimed.id, "notify", {})
        with pytest.raises(InvalidInput):
            await session_list.about(connection, "greeter", claimed.id)


async def test_what_is_stopped_while_it_waits_never_begins(still_house: House) -> None:
    first, second = await enqueued(still_house), await enqueued(still_house)
    assert await sessions.ask_to_stop(still_house.sql, first)
    claimed = await claim(still_house, terms())
    assert claimed is not None
    assert claimed.id == second
    assert (await row(still_house, first))["status"] == "stopped"
    assert not await sessions.ask_to_stop(still_house.sql, first)


async def test_another_butler_s_sessions_are_out_of_reach(still_house: House) -> None:
    session_id = await enqueued(still_house)
    async with still_house.context("health").db.work() as connection:
        assert await session_list.one(connection, session_id) is None
        assert await sessions.claim_waiting(connection, "greeter", terms()) is None
        with pytest.raises(Forbidden):
            await session_steps.begun(connection, "health", session_id, "notify", {})
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sessions.enqueue(
                connection, session_id=str(uuid4()), butler="greeter", cause="test", prompt="in another's name"
            )


@pytest.mark.parametrize("prompt", ["", "  ", "x" * 20_001, "nul \x00", "half \ud800"])
async def test_a_prompt_that_no_row_takes_is_refused(still_house: House, prompt: str) -> None:
    with pytest.raises(InvalidInput, match="characters"):
        await enqueued(still_house, prompt)
    assert await still_house.sql.fetchval("SELECT count(*) FROM shared.sessions") == 0


LAPSED: Final = """
INSERT INTO shared.sessions (id, butler, cause, prompt, status, began_at, runtime, attempt, holder, lease_until)
SELECT gen_random_uuid(), 'greeter', 'test', 'x', 'running', now(), 'script', 1, 'a process', now() - interval '1 s'
FROM generate_series(1, 50)
"""


async def test_of_sessions_that_nobody_runs_some_are_given_up_at_once(still_house: House) -> None:
    await still_house.sql.execute(LAPSED)
    async with still_house.context("greeter").db.work() as connection:
        assert len(await sessions.lapsed(connection, "greeter", LEASE)) == 20


# A process that is under somebody's control writes it by its butler's own login, and is gone.
LEFT: Final = """
INSERT INTO shared.sessions (id, butler, cause, prompt, status, began_at)
VALUES ($1, 'greeter', 'test', 'x', 'running', clock_timestamp())
"""
# As the same row would be after a clock that was ahead.
SPENT: Final = """
UPDATE shared.sessions SET status = 'done', began_at = '2199-01-01Z', ended_at = '2199-01-01Z',
    used = '{"dollars": 1000000}' WHERE id = $1
"""
DATED: Final = "BEGIN; SET LOCAL session_replication_role = replica; {}; COMMIT"


@pytest.mark.parametrize("spent", [False, True], ids=["runs without a lease", "spent dollars to come"])
async def test_what_a_forged_session_leaves_keeps_no_session_from_beginning(still_house: House, *, spent: bool) -> None:
    async with still_house.context("greeter").db.work() as connection:
        await connection.execute(LEFT, left := uuid4())
    if spent:
        await still_house.sql.execute(DATED.format(SPENT.replace("$1", f"'{left}'")))
    own = await enqueued(still_house, cause="ask")
    async with still_house.context("greeter").db.work() as connection:
        await outside_sessions.begin(connection, outside := str(uuid4()), "greeter", None)
        if (await sessions.needs(connection, "greeter", timedelta(), LEASE)).lapsed:
            for one in await sessions.lapsed(connection, "greeter", LEASE):
                await sessions.finish(connection, one, Finish("lost", "Nobody runs it."))
    claimed = await claim(still_house, terms())
    assert claimed is not None
    assert claimed.id == own
    assert (await row(still_house, outside))["status"] == "running", "a program outside holds nothing"


async def test_no_butler_puts_a_session_of_its_own_before_the_owners_words(still_house: House) -> None:
    for cause in ("ask", "message", "classify"):
        with pytest.raises(ButlersError, match="InsufficientPrivilege"):
            async with still_house.context("greeter").db.work() as connection:
                await sessions.enqueue(
                    connection, session_id=str(uuid4()), butler="greeter", cause=cause, prompt="Write to the owner."
                )


async def test_dollars_of_next_to_nothing_can_be_added_up(still_house: House) -> None:
    own = await enqueued(still_house)
    async with still_house.context("greeter").db.work() as connection:
        await connection.execute(LEFT, left := uuid4())
    over = "UPDATE shared.sessions SET status = 'done', ended_at = now(), used = '{\"dollars\": 1e-400}' WHERE id = $1"
    await still_house.sql.execute(over, left)
    claimed = await claim(still_house, terms())
    assert claimed is not None
    assert claimed.id == own


@pytest.mark.parametrize(
    "forged",
    [
        'used = \'{"dollars": "x"}\'',
        "limits = '{\"dollars\": [1]}'",
        "status = 'done', ended_at = clock_timestamp(), began_at = clock_timestamp() + interval '2 days'",
    ],
)
async def test_no_login_writes_dollars_that_are_none_or_a_session_of_a_day_to_come(
    still_house: House, forged: str
) -> None:
    """Either would keep its butler's sessions from beginning, long after it is honest again."""
    own = await enqueued(still_house)
    with pytest.raises(ButlersError, match="CheckViolation"):
        async with still_house.context("greeter").db.work() as connection:
            await connection.execute(f"UPDATE shared.sessions SET {forged} WHERE id = $1", UUID(own))


async def test_what_somebody_wrote_is_heard_out_before_it_is_claimed(still_house: House) -> None:
    changed = await enqueued(still_house, "Tell Anna yes.", cause="message")
    other = await enqueued(still_house, "Water the roses.")
    patient = replace(terms(2), together=timedelta(minutes=1))
    claimed = await claim(still_house, patient)
    assert claimed is not None
    assert claimed.id == other
    assert await claim(still_house, patient) is None
    async with still_house.context("greeter").db.work() as connection:
        needs = await sessions.needs(connection, "greeter", patient.together, LEASE)
        assert needs.soon is not None
        assert 50 < needs.soon <= 60
    assert await sessions.change_prompt(still_house.sql, changed, "Tell Anna no.")
    claimed = await claim(still_house, terms(2))
    assert claimed is not None
    assert (claimed.id, claimed.prompt) == (changed, "Tell Anna no.")
