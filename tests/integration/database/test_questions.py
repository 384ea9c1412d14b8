"""Questions in rows: of answers from several surfaces the first counts, and no butler writes one."""

import asyncio
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Final
from uuid import uuid4

import asyncpg
import pytest

from shared.db.pool import prepare_connection
from shared.display.conversation import speaker
from shared.storage import questions, turns
from shared.storage.questions import Given, NewQuestion, Times
from tests.integration.database.test_privileges import logged_in
from tests.integration.house import House
from tests.integration.purged import purge
from tests.rig.bench import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHOWN_LATER = "UPDATE shared.questions SET show_at = clock_timestamp() + interval '1 hour' WHERE id = $1"

OWNER_ID: Final = "SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)"
DAY: Final = Times(lasts=timedelta(days=1), heard=timedelta(seconds=10))


async def asked(house: House, *options: str, butler: str = "greeter", allow_text: bool = False) -> str:
    """An open question's id."""
    new = NewQuestion(str(uuid4()), butler, "Merge", "Merge into main?", options, allow_text=allow_text)
    async with house.context(butler).db.work() as connection:
        assert await questions.ask(connection, new, DAY)
    return new.id


async def answered(house: House, question: str, given: Given) -> bool:
    """Whether this answer, by the login that takes presses, is the one that counts."""
    owner = await house.sql.fetchval(OWNER_ID)
    async with house.context("messenger").db.work() as connection:
        return await questions.answer(connection, question, given, "telegram", owner)


@pytest.mark.parametrize(
    ("options", "given", "found"),
    [
        ((), Given(0), ("accepted", "OK", None)),
        (("Yes", "No"), Given(0), ("accepted", "Yes", 0)),
        (("Yes", "No"), Given(1), ("dismissed", "No", 1)),
        (("Yes", "No"), Given(), ("dismissed", None, None)),
        (("a", "b", "c"), Given(1), ("accepted", "b", 1)),
        (("a", "b", "c"), Given(2), ("accepted", "c", 2)),
        (("a",), Given(text="neither"), ("accepted", "neither", None)),
    ],
)
async def test_an_answer_is_read_as_it_was_meant(
    still_house: House, options: tuple[str, ...], given: Given, found: tuple[object, ...]
) -> None:
    question = await asked(still_house, *options, allow_text=True)
    assert await answered(still_house, question, given)
    row = await questions.one(still_house.sql, question)
    assert row is not None
    assert (row["status"], row["choice"], row["option_index"]) == found
    assert not await answered(still_house, question, given)


@pytest.mark.parametrize("given", [Given(2), Given(-1), Given(text="words"), Given(0, "both")])
async def test_what_was_not_offered_is_no_answer(still_house: House, given: Given) -> None:
    question = await asked(still_house, "Yes", "No")
    assert not await answered(still_house, question, given)
    row = await questions.one(still_house.sql, question)
    assert row is not None
    assert row["open"]


RACES: Final = 1000


async def test_of_two_surfaces_at_once_one_wins_in_a_thousand_tries(still_house: House) -> None:
    """Two connections answer the same questions in the same order, at the same time."""
    owner = await still_house.sql.fetchval(OWNER_ID)
    made = [NewQuestion(str(uuid4()), "greeter", "Race", "Who is first?", ("a", "b", "c")) for _ in range(RACES)]
    async with still_house.sql.transaction():
        # More than a butler may have open at a time.
        await still_house.sql.execute("SET LOCAL session_replication_role = replica")
        for one in made:
            await still_house.sql.execute(FLOOD, *[one.id, one.origin, one.title, one.question, list(one.options)])
    wins = [list[bool](), list[bool]()]

    async def press(n: int, surface: questions.Surface) -> None:
        connection = await asyncpg.connect(still_house.dsn)
        await prepare_connection(connection)
        try:
            for one in made:
                async with connection.transaction():
                    wins[n].append(await questions.answer(connection, one.id, Given(n), surface, owner))
        finally:
            await connection.close()

    await asyncio.gather(press(0, "telegram"), press(1, "desk"))
    assert all(one != other for one, other in zip(*wins, strict=True))
    places = await still_house.sql.fetch(PLACES, [one.id for one in made])
    assert [row["option_index"] for row in places] == [0 if won else 1 for won in wins[0]]


FLOOD: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, urgency, expires_at)
VALUES ($1::text::uuid, $2, $3, $4, $5, 'OK', 'normal', clock_timestamp() + interval '1 day')
"""
PLACES: Final = """
SELECT option_index FROM shared.questions JOIN unnest($1::text[]) WITH ORDINALITY u (id, n) ON u.id::uuid = questions.id
ORDER BY n
"""
AGAIN: Final = "UPDATE shared.questions SET status = '{status}', closed_at = {moment} WHERE id = $1::text::uuid"
FORGED: Final = {
    "an answer": "UPDATE shared.questions SET surface = 'console' WHERE id = $1::text::uuid",
    "a choice": "UPDATE shared.questions SET choice = 'Yes' WHERE id = $1::text::uuid",
    "a status": "UPDATE shared.questions SET status = 'accepted', closed_at = now() WHERE id = $1::text::uuid",
    "an end nobody can read": AGAIN.format(status="withdrawn", moment="'250000-01-01Z'"),
    "other words": "UPDATE shared.questions SET question = 'x' WHERE id = $1::text::uuid",
}


LAST: Final = import_module("migrations.versions.0068_popups_without_choices")
POPUP: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, urgency, expires_at, popup)
VALUES ($1, 'greeter', 'Milk', 'Enter to go on', $2, $3, 'normal', clock_timestamp() + interval '1 day', true)
"""
UNSEEN: Final[tuple[tuple[list[str], str], ...]] = ((["Pay", "No"], "OK"), (["OK"], "OK"), ([], "Pay"))


@pytest.mark.parametrize(("options", "label"), UNSEEN)
async def test_no_popup_has_a_choice_that_enter_takes_unseen(
    still_house: House, options: list[str], label: str
) -> None:
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute(POPUP, uuid4(), [], "OK")
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(POPUP, uuid4(), options, label)


async def test_popups_with_choices_of_before_are_notifications(still_house: House) -> None:
    connection = await asyncpg.connect(still_house.dsn)
    try:
        await connection.execute("BEGIN; ALTER TABLE shared.questions DROP CONSTRAINT popups_offer_nothing")
        made = [uuid4() for _ in (*UNSEEN, "plain")]
        for key, odd in zip(made, [*UNSEEN, ([], "OK")], strict=True):
            await connection.execute(POPUP, key, *odd)
        await connection.execute(LAST.PUT_RIGHT)
        await connection.execute(LAST.CHOICES)
        found = await connection.fetch("SELECT id FROM shared.questions WHERE popup AND id = ANY ($1)", made)
    finally:
        await connection.close()
    assert [row["id"] for row in found] == made[-1:]


@pytest.mark.parametrize("what", FORGED)
async def test_no_butler_answers_or_rewrites_its_own_question(still_house: House, what: str) -> None:
    question = await asked(still_house, "Yes", "No")
    async with logged_in(still_house, "greeter") as connection:
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.CheckViolationError)):
            await connection.execute(FORGED[what], question)


@pytest.mark.parametrize(("status", "moment"), [("dismissed", "closed_at"), ("accepted", "'2021-01-01Z'")])
async def test_what_is_closed_stays_closed_as_it_was(still_house: House, status: str, moment: str) -> None:
    question = await asked(still_house, "Yes", "No")
    assert await answered(still_house, question, Given(0))
    async with logged_in(still_house, "greeter") as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(AGAIN.format(status=status, moment=moment), question)
    async with still_house.context("greeter").db.work() as connection:
        await questions.heard_out(connection, question, "greeter", taken=True)


async def test_both_halves_of_a_question_are_said_in_the_owner_s_chat_to_its_own_butler(still_house: House) -> None:
    question = await asked(still_house, "Oat", "Soy")
    assert await answered(still_house, question, Given(0))
    endpoint = await still_house.sql.fetchval("SELECT endpoint FROM shared.channels WHERE channel = 'telegram'")
    place = turns.Place("greeter", "telegram", endpoint, str(OWNER))
    later = datetime.now(UTC) + timedelta(hours=1)
    for butler, said in (("greeter", [("butler", "question"), ("owner", "answer")]), ("health", [])):
        async with logged_in(still_house, butler) as connection:
            found = await turns.before(connection, place, later, str(uuid4()))
            assert [(speaker(one), one.kind) for one in found if one.id == question] == said
            assert await turns.received(connection, question) is None  # it is no message that came in


async def test_a_question_that_is_answered_before_it_is_shown_is_said(still_house: House) -> None:
    question = await asked(still_house, "Oat", "Soy")
    await still_house.sql.execute(SHOWN_LATER, question)
    said = "SELECT count(*) FROM shared.turns WHERE id = $1::text::uuid"
    assert await still_house.sql.fetchval(said, question) == 0
    assert await answered(still_house, question, Given(0))
    assert await still_house.sql.fetchval(said, question) == 2


async def test_a_question_that_nobody_answered_in_time_is_no_turn(still_house: House) -> None:
    question = await asked(still_house, "Oat", "Soy")
    said = "SELECT count(*) FROM shared.turns WHERE id = $1::text::uuid"
    assert await still_house.sql.fetchval(said, question) == 1
    async with still_house.context("greeter").db.work() as connection:
        assert await questions.withdraw_question(connection, question, "greeter")
    assert await still_house.sql.fetchval(said, question) == 0


async def test_a_question_of_another_butler_is_neither_seen_nor_withdrawn(still_house: House) -> None:
    question = await asked(still_house, butler="health")
    async with still_house.context("greeter").db.work() as connection:
        assert await questions.own_question(connection, question, "health") is None
        assert not await questions.withdraw_question(connection, question, "health")
    async with still_house.context("health").db.work() as connection:
        assert await questions.withdraw_question(connection, question, "health")
    assert not await answered(still_house, question, Given(0))


MANY: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, action_label, urgency, expires_at)
SELECT gen_random_uuid(), 'health', 'One', 'of many', 'OK', 'low', clock_timestamp() + $1::interval
FROM generate_series(1, 1000)
"""


@pytest.mark.parametrize("lasts", [timedelta(days=3000), timedelta(days=-300)])
async def test_a_butler_has_so_many_open_questions_and_no_more_whoever_writes_them(
    still_house: House, lasts: timedelta
) -> None:
    async with still_house.context("health").db.work() as connection:
        await connection.execute(MANY, lasts)
        count = await connection.fetchval("SELECT count(*) FROM shared.questions WHERE status = 'open'")
        last = await connection.fetchval("SELECT id::text FROM shared.questions WHERE title = 'One' LIMIT 1")
    await still_house.sql.execute("UPDATE shared.questions SET expires_at = now() + interval '1 d' WHERE id = $1", last)
    async with still_house.context("health").db.work() as connection:
        asked_so = [await questions.ask(connection, NewQuestion(str(uuid4()), "health", "One", "more"), DAY)]
        assert await questions.withdraw_question(connection, last, "health")
        asked_so += [await questions.ask(connection, NewQuestion(str(uuid4()), "health", "One", "more"), DAY)]
    await still_house.sql.execute("DELETE FROM shared.questions WHERE title = 'One'")
    assert (count, asked_so) == (questions.MOST_OPEN, [False, True])


async def test_no_older_snapshot_gets_past_the_bound(still_house: House) -> None:
    async with still_house.context("health").db.work("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ") as connection:
        await connection.execute(MANY, timedelta(days=3000))
    assert await still_house.sql.fetchval("SELECT count(*) FROM shared.questions WHERE title = 'One'") == 0


BOUND: Final = import_module("migrations.versions.0070_so_many_open_questions")


async def test_open_questions_of_before_that_are_too_many_are_withdrawn_the_newest_first(still_house: House) -> None:
    async with still_house.sql.transaction():
        await still_house.sql.execute("SET LOCAL session_replication_role = replica")
        await still_house.sql.execute(MANY, timedelta(days=3000))
    await still_house.sql.execute(BOUND.PUT_RIGHT)
    told = "SELECT status, count(*), max(asked_at) FROM shared.questions WHERE title = 'One' GROUP BY status ORDER BY 1"
    open_, withdrawn = await still_house.sql.fetch(told)
    others = (
        "SELECT count(*) FROM shared.questions WHERE origin_butler = 'health' AND status = 'open' AND title <> 'One'"
    )
    room = questions.MOST_OPEN - await still_house.sql.fetchval(others)
    await still_house.sql.execute("DELETE FROM shared.questions WHERE title = 'One'")
    assert (open_["count"], withdrawn["count"]) == (room, 1000 - room)
    assert open_["max"] <= withdrawn["max"]


AGED: Final = """
UPDATE shared.questions SET asked_at = asked_at - interval '31 days', closed_at = closed_at - interval '31 days'
WHERE id = ANY ($1::text[]::uuid[])
"""
CARDED: Final = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, about, revision)
VALUES ('card', 'question', 'email', 'x', $1::text::uuid, 1)
"""


async def test_a_question_goes_thirty_days_after_its_end_with_its_cards(still_house: House) -> None:
    ended, waits = [await asked(still_house) for _ in range(2)]
    assert await answered(still_house, ended, Given(0))
    await still_house.sql.execute(CARDED, ended)
    await still_house.sql.execute(AGED, [ended, waits])
    await purge(still_house)
    assert await questions.one(still_house.sql, ended) is None
    assert await questions.one(still_house.sql, waits) is not None
    about = "SELECT count(*) FROM messenger.deliveries WHERE about = $1::text::uuid"
    assert await still_house.sql.fetchval(about, ended) == 0
