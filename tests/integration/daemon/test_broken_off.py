"""What becomes of the notices of a session that broke off: whose words begin what, and what the owner hears."""

import asyncio
import time
from datetime import timedelta
from importlib import import_module
from typing import Final
from uuid import UUID

import pytest

from butlers.runtime.agent import AgentSettings
from butlers.runtime.base import Limits
from butlers.runtime.registry import RUNTIMES
from butlers.sessions.course import Place, lose, untold_of
from butlers.sessions.notices import BEGINS, Showing, opening, settle, taken
from butlers.sessions.settings import Setup
from shared.auth.tokens import Caller
from shared.storage import notices, sessions
from shared.storage.notices import Notice, Pace, Reader
from shared.storage.sessions import Finish
from tests.integration.daemon.test_daemon import Served
from tests.integration.daemon.test_notices import (
    OVER,
    added,
    asked_for,
    begun,
    butler,
    claim,
    empty,
    reads,
    states,
    woken,
    words,
)
from tests.integration.sessions.test_course import QUICK, Run, enqueue, signer, told, until_it_is
from tests.rig.model_server import Call, Words, model_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
BEGIN: Final[str] = import_module("migrations.versions.0099_words_told_in_vain").BEGIN
OVER_NOW: Final = f"{OVER} WHERE id::text = $1"
NOTIFIED: Final = "UPDATE shared.session_steps SET tool = 'notify' WHERE session_id = $1 AND seq = $2"
__all__ = ["butler", "empty"]


async def test_what_the_owner_wrote_begins_its_own_session_where_the_one_that_was_told_broke_off(
    butler: Served,
) -> None:
    _, contacts = await begun(butler.house, cause="message")
    claimed, bearer = await begun(butler.house)
    message_id = await words(butler.house)
    assert "Make it blue." in await reads(butler, bearer)
    async with butler.house.context("greeter").db.work() as connection:
        await settle(connection, claimed, is_read=False)
    await butler.house.sql.execute(OVER_NOW, claimed.id)
    assert "Make it blue." not in await reads(butler, contacts)
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id


async def test_what_the_owner_writes_is_not_told_to_a_session_that_has_ended(butler: Served) -> None:
    """What its last call waited for may end later than the session itself."""
    context = butler.house.context("greeter")
    showing, (claimed, _) = Showing(context), await begun(butler.house)
    caller = Caller("greeter", "session", claimed.id)
    assert await showing.block_for(caller, "number", time.monotonic()) is None
    message_id = await words(butler.house)
    async with context.db.work() as connection:
        await sessions.count_step(connection, "greeter", claimed.id)
        await lose(connection, claimed, "Its daemon was stopped.", await sessions.course(connection, claimed))
    assert await showing.block_for(caller, "number", time.monotonic()) is None
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id


async def test_words_are_read_by_the_next_call_also_where_an_older_one_ended_meanwhile(butler: Served) -> None:
    context = butler.house.context("greeter")
    showing, (claimed, _) = Showing(context), await begun(butler.house)
    caller = Caller("greeter", "session", claimed.id)

    async def call(began: float) -> str | None:
        async with context.db.work() as connection:
            await sessions.count_step(connection, "greeter", claimed.id)
        return await showing.block_for(caller, "number", began)

    older = time.monotonic()
    await words(butler.house)
    assert "Make it blue." in str(await call(time.monotonic()))
    assert await showing.block_for(caller, "number", older) is None
    assert await call(time.monotonic()) is None
    async with context.db.work() as connection:
        await settle(connection, claimed, is_read=False)
    assert await claim(butler.house) is None
    assert await states(butler.house) == ["done"]


async def test_an_answer_that_a_session_began_with_and_acted_on_begins_no_other(butler: Served) -> None:
    context = butler.house.context("greeter")
    async with butler.house.context("messenger").db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "answer", "Yes.", trust="owner", wakes=True))
    claimed, bearer = await begun(butler.house)
    assert "Yes." in await opening(context, claimed)
    assert await reads(butler, bearer) == ""
    async with context.db.work() as connection:
        settled = await settle(connection, claimed, is_read=False)
    assert (settled.heard, await states(butler.house)) == ("It was told: “Yes.”", ["done"])


@pytest.mark.parametrize("cause", ["message", "butler:health", "schedule:walk"])
async def test_what_the_owner_answers_reaches_no_session_that_works_for_somebody_else(
    butler: Served, cause: str
) -> None:
    context, claimed, bearer = butler.house.context("greeter"), *await begun(butler.house, cause=cause)
    async with butler.house.context("messenger").db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "answer", "Room 9.", trust="owner", wakes=True))
    assert await opening(context, claimed) == ""
    assert await reads(butler, bearer) == ""
    assert await asked_for(butler, bearer) == []
    assert await woken(butler.house, Pace(timedelta(0), timedelta(0))) == [BEGINS]
    await butler.house.sql.execute("DELETE FROM shared.sessions WHERE cause = 'notice'")
    owners, bearer = await begun(butler.house, cause="notice")
    assert await asked_for(butler, bearer) == ["Room 9."]
    assert "Room 9." in await opening(context, owners)


async def test_words_whose_session_the_owner_stopped_are_told_to_no_other(butler: Served) -> None:
    _, bearer = await begun(butler.house)
    await sessions.ask_to_stop(butler.house.sql, await words(butler.house))
    assert await reads(butler, bearer) == ""


async def test_a_session_ends_after_what_it_is_being_told(butler: Served) -> None:
    context = butler.house.context("greeter")
    claimed, _ = await begun(butler.house)

    async def end() -> None:
        async with context.db.work() as connection:
            await lose(connection, claimed, "It was killed.", await sessions.course(connection, claimed))

    async with context.db.work() as connection:
        assert await notices.reader(connection, "greeter", claimed.id, "session")
        ending = asyncio.create_task(end())
        assert not (await asyncio.wait([ending], timeout=0.5))[0]
        assert await claim(butler.house) is None
    await ending


async def test_words_that_an_earlier_program_put_back_begin_their_own_session(butler: Served) -> None:
    claimed, bearer = await begun(butler.house)
    message_id = await words(butler.house)
    assert "Make it blue." in await reads(butler, bearer)
    await butler.house.sql.execute("UPDATE shared.notices SET state = 'queued', shown_in = NULL, again = true")
    await butler.house.sql.execute(OVER_NOW, claimed.id)
    await butler.house.sql.execute(BEGIN)
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id
    assert await states(butler.house) == ["done"]


async def test_what_the_owner_wrote_to_a_session_and_then_stopped_begins_no_other(butler: Served) -> None:
    claimed, bearer = await begun(butler.house)
    await words(butler.house)
    assert "Make it blue." in await reads(butler, bearer)
    await sessions.ask_to_stop(butler.house.sql, claimed.id)
    async with butler.house.context("greeter").db.work() as connection:
        settled = await settle(connection, claimed, is_read=False)
    assert await claim(butler.house) is None
    assert await states(butler.house) == ["done"]
    said = untold_of(claimed, Finish("stopped", "You stopped it."), None, settled)
    assert said is not None
    assert "was stopped, and nothing comes of what it was told." in said
    assert said.endswith("It was told: “Make it blue.”")


async def test_an_answer_that_a_session_was_shown_before_the_owner_stopped_it_is_named(butler: Served) -> None:
    claimed, bearer = await begun(butler.house)
    async with butler.house.context("messenger").db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "answer", "Room 9.", trust="owner", wakes=True))
    await added(butler.house)
    assert "Room 9." in await reads(butler, bearer)
    await sessions.ask_to_stop(butler.house.sql, claimed.id)
    async with butler.house.context("greeter").db.work() as connection:
        settled = await settle(connection, claimed, is_read=False)
    assert "was stopped" in str(untold_of(claimed, Finish("stopped", "You stopped it."), None, settled))
    assert settled.given_up == "It was shown in vain, and is shown no more: “Room 9.”"
    assert await woken(butler.house, Pace(timedelta(0), timedelta(0))) == []


async def test_what_the_owner_writes_after_a_stop_is_not_told_to_what_is_being_stopped(butler: Served) -> None:
    claimed, bearer = await begun(butler.house)
    await sessions.ask_to_stop(butler.house.sql, claimed.id)
    await words(butler.house)
    assert await reads(butler, bearer) == ""
    assert await states(butler.house) == ["queued"]


async def test_what_no_session_would_be_shown_begins_none(butler: Served) -> None:
    """The Switchboard tells a butler the owner's words, and a session that a notice begins is shown none of those."""
    async with butler.house.context("switchboard").db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "message", "x", trust="owner", wakes=True))
    assert await woken(butler.house, Pace(timedelta(0), timedelta(0))) == []


async def test_an_answer_that_two_sessions_were_shown_in_vain_is_named_to_the_owner(butler: Served) -> None:
    house = butler.house
    async with house.context("messenger").db.work() as connection:
        answer = Notice("owner", "answer", "The one to Rotterdam.", trust="owner", priority="high", wakes=True)
        await notices.add(connection, "greeter", answer)
    for is_last in (False, True):
        claimed, _ = await begun(house)
        async with house.context("greeter").db.work() as connection:
            await sessions.count_step(connection, "greeter", claimed.id)
            shown = await taken(connection, "greeter", Reader(claimed.id, claimed.nonce or "", is_owners=True))
            assert "Rotterdam" in (shown.text if shown is not None else "")
            await lose(connection, claimed, "It was killed.", None)
        untold = await house.sql.fetchval("SELECT untold FROM shared.sessions WHERE id = $1", UUID(claimed.id))
        assert ("“The one to Rotterdam.”" in untold) == is_last


async def test_a_program_that_need_not_see_to_them_is_told_no_words_of_the_owners(butler: Served) -> None:
    assert not RUNTIMES["command"].is_told
    _, bearer = await begun(butler.house, is_told=False, runtime="command")
    message_id = await words(butler.house)
    async with butler.house.context("messenger").db.work() as connection:
        answer = Notice("owner", "answer", "The one to Rotterdam.", trust="owner", priority="high", wakes=True)
        await notices.add(connection, "greeter", answer)
    await added(butler.house)
    block = await reads(butler, bearer)
    assert ('source="watch"' in block, "Rotterdam" in block, "blue" in block) == (True, False, False)
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id


async def test_what_the_owner_wrote_to_a_session_that_ends_without_an_answer_is_told(butler: Served) -> None:
    house = butler.house
    async with model_server() as models:
        models.play(Call("waited"), Call("number"), Words("Good morning. And yes, I will tell Chloe."))
        setup = Setup(RUNTIMES["agent"], AgentSettings(model="anthropic:claude-sonnet-4-5"), 1, Limits(), 10.0)
        keys = {"BUTLERS_ANTHROPIC_API_KEY": "sk-ant-x" * 4, "BUTLERS_MODEL_BASE_URL": models.url}
        at = Place(house.context("greeter", **QUICK), signer(house), "Brief.", butler.url, setup, keys)
        async with Run(at):
            session_id = await enqueue(house, "Say good morning.", "ask")
            await until_it_is(house, session_id, "running")
            await words(house, "Tell Chloe dinner is at eight.")
            # Of a busy machine an agent's libraries alone take half a minute.
            assert (await until_it_is(house, session_id, "done", 150))["told_nobody"]
            said = "did not answer what it was told. It was asked: “Say good morning.” It was told: “Tell Chloe dinner"
            assert await told(house, said) == 1


@pytest.mark.parametrize("notified", [1, 3], ids=["before", "after"])
async def test_what_the_owner_told_a_session_that_broke_off_later_is_named(butler: Served, notified: int) -> None:
    house = butler.house
    claimed, bearer = await begun(house)
    await reads(butler, bearer)
    await words(house)
    async with house.context("messenger").db.work() as connection:
        answer = Notice("owner", "answer", "The one to Rotterdam.", trust="owner", priority="high")
        await notices.add(connection, "greeter", answer)
    assert "Make it blue." in await reads(butler, bearer)
    await reads(butler, bearer)
    await house.sql.execute(NOTIFIED, UUID(claimed.id), notified)
    async with house.context("greeter").db.work() as connection:
        await lose(connection, claimed, "It was killed.", await sessions.course(connection, claimed))
    row = await house.row("SELECT untold, told_nobody FROM shared.sessions WHERE id::text = $1", claimed.id)
    assert row["untold"].endswith("It was told: “Make it blue.”, “The one to Rotterdam.”")
    assert row["told_nobody"] == (notified == 1)
