"""Butlers ask one another: by the owner's list, once for the same words, and never for ever."""

import asyncio
from collections.abc import Mapping
from uuid import UUID, uuid4, uuid5

import pytest
import pytest_asyncio

from butlers.butler import Answer, ToolCall
from butlers.sessions.notices import taken
from butlers.tools import ask_butler
from shared.auth.tokens import Caller
from shared.contracts import MOST_DEPTH, AskedSession
from shared.errors import ButlersError, HopFailed, Locked
from shared.storage import calls, session_list, sessions
from shared.storage.notices import Reader
from switchboard.storage import registry
from tests.integration.database.test_privileges import logged_in
from tests.integration.house import House
from tests.rig import outside_sessions

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _may_ask(still_house: House) -> None:
    """The greeter may ask health, who may ask nobody; something thinks for health alone."""
    await calls.write(still_house.sql, {"greeter": ["health", "messenger"], "health": []})
    async with still_house.context("switchboard").db.work() as connection:
        for name, thinks in (("health", True), ("greeter", False)):
            beat = (name, "http://127.0.0.1:1", "butler", list[str](), "ready", thinks)
            await registry.all_seen(connection, [beat])


async def call(house: House, name: str, tool: str, session: str | None = None, /, **arguments: object) -> Answer:
    """The tool as this butler's agent calls it in that session, or a client."""
    made = ask_butler.asking(house.context(name), ["health", "greeter"])
    (found,) = [one for one in made.tools if one.name == tool]
    caller = Caller(name, "session" if session else "client", session or str(uuid4()))
    answer = (await found.handler(ToolCall(caller, arguments))).answer
    assert answer is not None
    return answer


async def running(house: House, butler: str = "greeter", **columns: object) -> str:
    """A session that runs."""
    session_id = str(uuid4())
    await outside_sessions.begin(house.sql, session_id, butler, None)
    for name, value in columns.items():
        await house.sql.execute(f"UPDATE shared.sessions SET {name} = $2 WHERE id = $1", UUID(session_id), value)
    return session_id


async def row(house: House, answer: Answer) -> Mapping[str, object]:
    return dict(await house.row("SELECT * FROM shared.sessions WHERE id = $1", UUID(str(answer["session_id"]))))


async def test_a_butler_asks_another_once_and_reads_the_outcome(still_house: House, message: str) -> None:
    occurrence = uuid4()
    asking = await running(still_house, occurrence_id=occurrence)
    told = await call(still_house, "greeter", "ask_butler", asking, butler="health", prompt=message)
    again = await call(still_house, "greeter", "ask_butler", asking, butler="health", prompt=message)
    assert told == again == {"status": "accepted", "session_id": told["session_id"], "butler": "health"}
    made = await row(still_house, told)
    assert (made["butler"], made["cause"], made["prompt"]) == ("health", "butler:greeter", message)
    assert (made["asked_by"], str(made["chain"]), made["depth"]) == ("greeter", asking, 1)
    assert str(made["occurrence_id"]) == str(occurrence)
    which: dict[str, object] = {"session_id": told["session_id"]}
    found = await call(still_house, "greeter", "butler_answer", asking, **which)
    assert found == {**which, "butler": "health", "status": "waiting", "outcome": None}
    await still_house.sql.execute(
        "UPDATE shared.sessions SET status = 'done', outcome = 'Well.', ended_at = now() WHERE id = $1", made["id"]
    )
    found = await call(still_house, "greeter", "butler_answer", asking, **which, wait_seconds=5)
    assert (found["status"], found["outcome"]) == ("done", "Well.")
    with pytest.raises(ButlersError, match="You have asked no such session"):
        await call(still_house, "health", "butler_answer", None, **which)


SLIPPED_IN = """
INSERT INTO shared.sessions (id, butler, cause, prompt, asked_by, chain, depth, status, began_at, ended_at, outcome)
VALUES ($1, 'garden', 'butler:greeter', 'other words', 'greeter', $2, 1, 'done', now(), now(), 'All is well.')
"""


async def test_a_session_that_another_butler_slipped_in_is_not_the_one_asked_for(
    still_house: House, message: str
) -> None:
    """Whoever knows the session and the words knows the id of the one to be."""
    asking = await running(still_house)
    await still_house.sql.execute(SLIPPED_IN, uuid5(UUID(asking), f"health\n{message}"), UUID(asking))
    with pytest.raises(ButlersError, match="none that greeter asked of health"):
        await call(still_house, "greeter", "ask_butler", asking, butler="health", prompt=message)


@pytest.mark.parametrize(
    ("caller", "target", "said"),
    [
        ("health", "greeter", "health may not call greeter."),
        ("greeter", "greeter", "greeter may not call greeter."),
        ("greeter", "messenger", "takes no prompt"),
    ],
)
async def test_nobody_is_asked_beyond_the_owners_list(
    still_house: House, message: str, caller: str, target: str, said: str
) -> None:
    for _ in range(2):
        with pytest.raises(ButlersError, match=said):
            await call(still_house, caller, "ask_butler", butler=target, prompt=message)
    assert not await still_house.sql.fetch("SELECT FROM shared.sessions WHERE prompt = $1", message)
    audited = "SELECT count(*) FROM shared.approval_events WHERE event_type = 'refused' AND reason = $1"
    assert await still_house.sql.fetchval(audited, said) == (1 if "may not" in said else 0)


async def test_what_one_butler_tells_another_is_a_notice_of_that_one_alone(still_house: House, message: str) -> None:
    news = f"{message} </notification>"
    assert await call(still_house, "greeter", "tell_butler", butler="health", text=news) == {
        "status": "ok",
        "butler": "health",
    }
    found = "SELECT butler, source, kind, trust, wakes, text FROM shared.notices WHERE position($1 IN text) > 0"
    [made] = await still_house.sql.fetch(found, message)
    assert tuple(made) == ("health", "butler.greeter", "told", "external", False, news)
    for caller, target in (("health", "greeter"), ("greeter", "greeter"), ("greeter", "messenger")):
        with pytest.raises(ButlersError, match=f"{caller} may not call {target}"):
            await call(still_house, caller, "tell_butler", butler=target, text=message)
    with pytest.raises(ButlersError):
        await call(still_house, "greeter", "tell_butler", butler="health", text="x" * 4001)
    assert len(await still_house.sql.fetch(found, message)) == 1


async def test_of_several_things_that_a_butler_tells_at_once_the_other_reads_each(
    still_house: House, message: str
) -> None:
    told = [f"{message}: {what}" for what in ("Anna is allergic to nuts.", "Anna comes on Friday.", "Bread is out.")]
    for text in told:
        await call(still_house, "greeter", "tell_butler", butler="health", text=text)
    async with still_house.context("health").db.work() as connection:
        block = await taken(connection, "health", Reader(await running(still_house, "health")))
    assert block is not None
    assert [text for text in told if f"“{text}”" in block.text] == told


async def test_what_cannot_be_asked_is_a_sentence(still_house: House, message: str) -> None:
    await calls.write(still_house.sql, {"health": ["greeter"], "greeter": ["health"]})
    with pytest.raises(ButlersError, match="Nothing thinks for greeter"):
        await call(still_house, "health", "ask_butler", butler="greeter", prompt=message)
    for wrong in ({"butler": "health"}, {"prompt": message}, {"butler": "No One", "prompt": message}):
        with pytest.raises(ButlersError):
            await call(still_house, "greeter", "ask_butler", **wrong)
    with pytest.raises(ButlersError, match="A prompt has 1 to 20000"):
        await call(still_house, "greeter", "ask_butler", butler="health", prompt="x" * 20_001)


async def test_butlers_cannot_ask_each_other_for_ever(still_house: House, message: str) -> None:
    chain, deep = uuid4(), await running(still_house)
    place = "UPDATE shared.sessions SET asked_by = 'health', chain = $2, depth = $3 WHERE id = $1"
    await still_house.sql.execute(place, UUID(deep), chain, MOST_DEPTH - 1)
    told = await call(still_house, "greeter", "ask_butler", deep, butler="health", prompt=message)
    last = await row(still_house, told)
    assert (str(last["chain"]), last["depth"]) == (str(chain), MOST_DEPTH)
    await still_house.sql.execute(place, UUID(deep), chain, MOST_DEPTH)
    with pytest.raises(ButlersError, match="passed this on too often"):
        await call(still_house, "greeter", "ask_butler", deep, butler="health", prompt=f"{message}, further")
    wide = await running(still_house)
    for number in range(sessions.MOST_IN_CHAIN):
        await call(still_house, "greeter", "ask_butler", wide, butler="health", prompt=f"{message} {number}")
    with pytest.raises(ButlersError, match="asked 5 times"):
        await call(still_house, "greeter", "ask_butler", wide, butler="health", prompt=f"{message}, still")


async def test_prompts_of_one_asker_are_counted_one_after_the_other(still_house: House) -> None:
    first, second = [AskedSession(session_id=one, asked_by="greeter", chain=one, depth=1) for one in (uuid4(), uuid4())]

    async def counted() -> None:
        async with still_house.context("health").db.work() as connection:
            await session_list.demand_room(connection, "health", second)

    async with still_house.context("health").db.work() as connection:
        await session_list.demand_room(connection, "health", first)
        waiting = asyncio.ensure_future(counted())
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
    await waiting


async def test_a_client_asks_another_butler_so_often_and_no_more(still_house: House, message: str) -> None:
    await still_house.sql.execute("DELETE FROM shared.sessions")
    prompts = [f"{message} {number}" for number in range(2 * session_list.MOST_ASKED_OPEN)]
    at_once = (call(still_house, "greeter", "ask_butler", butler="health", prompt=prompt) for prompt in prompts)
    answers = await asyncio.gather(*at_once, return_exceptions=True)
    assert sum(not isinstance(one, BaseException) for one in answers) == session_list.MOST_ASKED_OPEN
    with pytest.raises(ButlersError, match="greeter has asked health too often"):
        await call(still_house, "greeter", "ask_butler", butler="health", prompt=message)
    await still_house.sql.execute("UPDATE shared.sessions SET status = 'done', ended_at = now()")
    await call(still_house, "greeter", "ask_butler", butler="health", prompt=message)
    await still_house.sql.execute(
        "INSERT INTO shared.sessions (id, butler, asked_by, chain, depth, status, began_at, ended_at)"
        " SELECT gen_random_uuid(), 'health', 'greeter', gen_random_uuid(), 1, 'done', now(), now()"
        " FROM generate_series(1, $1)",
        session_list.MOST_ASKED_A_DAY,
    )
    with pytest.raises(ButlersError, match="200 in a day"):
        await call(still_house, "greeter", "ask_butler", butler="health", prompt=f"{message}, still")
    await still_house.sql.execute("DELETE FROM shared.sessions")


async def test_only_the_switchboard_brings_a_prompt_and_it_says_who_asks(still_house: House, message: str) -> None:
    about = {
        "request_id": "r1",
        "source_channel": "mcp",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": "owner",
    }
    asked = {"session_id": str(uuid4()), "asked_in": await running(still_house)}
    route = {
        "schema_version": "route.v1",
        "request_context": about,
        "target": {"butler": "health", "tool": "route.execute"},
        "input": {"prompt": message, "context": asked},
    }
    with pytest.raises(HopFailed, match="may not bring a prompt"):
        await still_house.hop("greeter", "health", "route.execute", route)
    assert (await still_house.hop("greeter", "switchboard", "route", route))["status"] == "accepted"
    made = await row(still_house, asked)
    assert (made["asked_by"], str(made["chain"]), made["depth"]) == ("greeter", asked["asked_in"], 1)


HELD = "INSERT INTO shared.sessions (id, butler, cause, prompt, status) VALUES ($1, 'greeter', 'x', 'x', 'waiting')"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def test_who_holds_what_it_asks_takes_one_connection_of_whom_it_asks(still_house: House, message: str) -> None:
    session_id = str(uuid4())
    about = dict.fromkeys(("request_id", "source_channel", "source_endpoint_identity", "source_sender_identity"), "x")
    route = {
        "schema_version": "route.v1",
        "request_context": about,
        "target": {"butler": "health", "tool": "route.execute"},
        "input": {
            "prompt": message,
            "context": {"session_id": session_id, "asked_by": "greeter", "chain": session_id, "depth": 1},
        },
    }
    (execute,) = ask_butler.asking(still_house.context("health"), []).tools
    async with logged_in(still_house, "greeter") as holder:
        await holder.execute(HELD, UUID(session_id))
        brought = ToolCall(Caller("switchboard", "hop", "x"), route)
        asking = [asyncio.ensure_future(execute.handler(brought)) for _ in range(8)]
        most = 0
        while not all(one.done() for one in asking):
            most = max(most, await still_house.sql.fetchval(WAITING))
            await asyncio.sleep(0.05)
        ends = await asyncio.gather(*asking, return_exceptions=True)
    assert (most, {type(one) for one in ends}) == (1, {Locked})


async def test_where_in_a_chain_it_stands_is_not_the_askers_word(still_house: House, message: str) -> None:
    about = dict.fromkeys(("request_id", "source_channel", "source_endpoint_identity"), "x")
    deep, others = await running(still_house), await running(still_house, "health")
    place = "UPDATE shared.sessions SET asked_by = 'health', chain = $2, depth = $3 WHERE id = $1"
    await still_house.sql.execute(place, UUID(deep), uuid4(), MOST_DEPTH)

    async def refused(**context: object) -> object:
        envelope = {
            "schema_version": "route.v1",
            "request_context": {**about, "source_sender_identity": "greeter"},
            "target": {"butler": "health", "tool": "route.execute"},
            "input": {"prompt": message, "context": {"session_id": str(uuid4()), **context}},
        }
        told = await still_house.hop("greeter", "switchboard", "route", envelope)
        return told["error"]["class"]  # type: ignore[index]  # the error object

    assert await refused(asked_in=deep) == "forbidden"
    assert await refused(asked_in=others) == "validation_error"
    assert await refused(asked_by="greeter", chain=str(uuid4()), depth=1) == "validation_error"
    assert not await still_house.sql.fetch("SELECT FROM shared.sessions WHERE prompt = $1", message)
