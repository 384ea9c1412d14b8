"""Notices at the one way out of results: what clients nobody here wrote get of them, and who is shown what, once."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ImageContent, TextContent

from butlers.butler import Butler, Components, Daemon, Result, Tool, ToolCall
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from butlers.daemon.discovery import keep_token
from butlers.sessions.notices import BEGINS, WAITED_SECONDS, begin_one, settle, taken
from butlers.sessions.prompt import worded
from shared.auth import keystore
from shared.auth.tokens import Signer, Verifier, mint_client_token, mint_session_token
from shared.errors import ButlersError, InvalidInput
from shared.storage import notices, session_list, sessions
from shared.storage.notices import Notice, Pace, Reader
from shared.storage.sessions import Claimed, Terms
from tests.integration.daemon.test_daemon import ERAS, Served, served
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIXEL: Final = base64.b64encode(b"a picture").decode()
ANY: Final = {"type": "object"}
ONE: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
OVER: Final = """
UPDATE shared.sessions SET status = 'lost', began_at = now(), ended_at = now(), holder = NULL, lease_until = NULL
"""
NONCE: Final = "0123456789abcdef"
SAID: Final = "The <build> is done."
AT_ONCE: Final = Pace(gather=timedelta(0))


async def number(_: ToolCall) -> Result:
    return Result({"n": 1})


async def told(_: ToolCall) -> Result:
    return Result(blocks=[TextContent(type="text", text="One."), TextContent(type="text", text="Two.")])


async def drawn(_: ToolCall) -> Result:
    return Result(blocks=[ImageContent(type="image", data=PIXEL, mime_type="image/png")])


async def long(_: ToolCall) -> Result:
    return Result(blocks=[TextContent(type="text", text="On and on. " * 15_000)])


async def refused(_: ToolCall) -> Result:
    raise InvalidInput("There is no dog.", "Draw a cat.")


TOOLS: Final = [
    Tool("number", "Number.", ANY, number, output=ONE),
    Tool("told", "Told.", ANY, told),
    Tool("drawn", "Drawn.", ANY, drawn),
    Tool("refused", "Refused.", ANY, refused),
]
LONG: Final = Tool("long", "Long.", ANY, long)


async def painting(house: House) -> AsyncIterator[Served]:
    """The butler with these tools, served."""

    async def waited(call: ToolCall) -> Result:
        await asyncio.sleep(WAITED_SECONDS)
        async with house.context("greeter").db.work() as connection:
            await notices.add(connection, "greeter", Notice("watch", "built", SAID))
        return await number(call)

    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        made = Butler(
            "greeter", "Paints.", build=lambda _: Components([*TOOLS, LONG, Tool("waited", "Waited.", ANY, waited)])
        )
        return build(made, context, verifier, [url.removeprefix("http://")])[0]

    async for one in served(house, "greeter", make):
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def butler(house: House) -> AsyncIterator[Served]:
    async for one in painting(house):
        yield one


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def empty(house: House) -> None:
    await house.sql.execute("DELETE FROM shared.notices; DELETE FROM shared.sessions")


async def token_for_notices(house: House) -> str:
    """A client's token that was made for notices."""
    signer = Signer(keystore.OWNER, keystore.read(house.settings.home, keystore.OWNER).private_pem, time.time)
    minted = mint_client_token(signer, "greeter", timedelta(hours=1))
    await keep_token(house.sql, minted.jti, "greeter", timedelta(hours=1), notices=True)
    return minted.token


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def token(house: House) -> str:
    return await token_for_notices(house)


async def added(house: House, text: str = SAID, kind: str = "built", **more: object) -> None:
    async with house.context("greeter").db.work() as connection:
        await notices.add(connection, "greeter", Notice("watch", kind, text, **more))  # type: ignore[arg-type]
    # The house of these tests listens to no hints.
    house.assembly.wakes[notices.TOPIC]("greeter")


async def states(house: House) -> list[str]:
    return [row["state"] for row in await house.sql.fetch("SELECT state FROM shared.notices ORDER BY created_at")]


@dataclass(frozen=True, slots=True)
class Got:
    """What a client made of a result."""

    texts: Sequence[str]
    pictures: int
    object_: Mapping[str, object] | None
    is_error: bool


def got(blocks: Sequence[object], structured: Mapping[str, object] | None, *, is_error: bool) -> Got:
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    return Got(texts, sum(isinstance(block, ImageContent) for block in blocks), structured, is_error)


async def by_fastmcp(butler: Served, token: str, tool: str, era: str) -> Got:
    async with Client(StreamableHttpTransport(f"{butler.url}/mcp", auth=token), mode=era) as client:
        answer = await client.call_tool(tool, {}, raise_on_error=False)
    return got(answer.content, answer.structured_content, is_error=answer.is_error)


async def by_the_sdk(butler: Served, token: str, tool: str) -> Got:
    """The official Python SDK's client, which checks an object against the schema that the tool publishes."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http,
        streamable_http_client(f"{butler.url}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        await session.list_tools()
        answer = await session.call_tool(tool, {})
    return got(answer.content, answer.structured_content, is_error=bool(answer.is_error))


async def gets_the_block(butler: Served, call: Callable[[], Awaitable[Got]]) -> None:
    """A client's call brings what waits, once, beside what it brings without."""
    bare = await call()
    assert "notification" not in str(bare)
    await added(butler.house)
    with_it = await call()
    block = with_it.texts[-1]
    assert block.startswith('\n\n<notification source="watch" ')
    assert block.endswith('trust="internal">\nThe &lt;build&gt; is done.\n</notification>')
    assert (with_it.texts[:-1], with_it.pictures, with_it.is_error) == (bare.texts, bare.pictures, bare.is_error)
    if bare.object_ is None:
        assert with_it.object_ is None
    else:
        assert with_it.object_ == {**bare.object_, "notifications": block.strip()}
    assert await call() == bare
    assert await states(butler.house) == ["done"]
    await butler.house.sql.execute("DELETE FROM shared.notices")


@pytest.mark.parametrize("by", [*ERAS, "sdk"])
@pytest.mark.parametrize("tool", ["number", "told", "drawn", "refused"])
async def test_clients_nobody_here_wrote_get_the_block_with_every_kind_of_result(
    butler: Served, token: str, by: str, tool: str
) -> None:
    async def call() -> Got:
        return await (by_the_sdk(butler, token, tool) if by == "sdk" else by_fastmcp(butler, token, tool, by))

    await gets_the_block(butler, call)


async def test_what_comes_while_a_call_waits_comes_with_its_result_before_any_hint(butler: Served, token: str) -> None:
    await butler.post(token, "number")
    _, body = await butler.post(token, "waited")
    assert "notification" in body


async def test_what_is_asked_for_says_it_in_full_and_takes_nothing(butler: Served, token: str) -> None:
    await added(butler.house, "long " * 500)
    answer = await by_fastmcp(butler, token, "notices", "auto")
    assert answer.object_ is not None
    assert [len(str(one["text"])) for one in answer.object_["notices"]] == [2499]  # type: ignore[attr-defined]
    assert await states(butler.house) == ["queued"]


async def test_of_calls_at_once_one_takes_what_waits(butler: Served, token: str) -> None:
    await added(butler.house)
    answers = await asyncio.gather(*(butler.post(token, "number") for _ in range(8)))
    assert sum("notification" in body for _, body in answers) == 1


async def begun(
    house: House,
    *,
    hears: bool = True,
    is_told: bool = True,
    prompt: str = "Paint.",
    cause: str = "ask",
    runtime: str = "agent",
) -> tuple[Claimed, str]:
    """A session that runs, as its runner claims it, and its token."""
    session_id, context = str(uuid4()), house.context("greeter")
    limits = {"minutes": 1.0, "turns": 1.0, "tokens": 1.0, "dollars": 1.0}
    terms = Terms(runtime, "me", 3, timedelta(minutes=1), limits, 9.0, nonce=NONCE, hears=hears, is_told=is_told)
    await sessions.enqueue(house.sql, session_id=session_id, butler="greeter", cause=cause, prompt=prompt)
    async with context.db.work() as connection:
        claimed = await sessions.claim_waiting(connection, "greeter", terms)
    assert claimed is not None
    signer = Signer("greeter", keystore.read(house.settings.home, "greeter").private_pem, time.time)
    return claimed, mint_session_token(signer, claimed.id, timedelta(minutes=1))


async def reads(butler: Served, token: str) -> str:
    """The block that comes with its next result, empty if none does."""
    _, body = await butler.post(token, "number")
    return str(json.loads(body)["result"]["structuredContent"].get("notifications", ""))


async def asked_for(butler: Served, token: str, **which: str) -> list[str]:
    """The texts that the tool `notices` answers with."""
    _, body = await butler.post(token, "notices", which)
    return [one["text"] for one in json.loads(body)["result"]["structuredContent"]["notices"]]


async def test_a_session_is_shown_it_once_with_its_nonce_and_has_read_it_with_its_next_call(butler: Served) -> None:
    _, bearer = await begun(butler.house)
    await added(butler.house)
    assert f'nonce="{NONCE}"' in await reads(butler, bearer)
    assert await states(butler.house) == ["shown"]
    assert await reads(butler, bearer) == ""
    assert await states(butler.house) == ["done"]


async def test_what_a_session_was_shown_that_broke_off_comes_once_more_and_says_so(butler: Served) -> None:
    house = butler.house
    await added(house)
    for expected in ("queued", "done"):
        claimed, bearer = await begun(house)
        assert ('again="true"' in await reads(butler, bearer)) == (expected == "done")
        async with house.context("greeter").db.work() as connection:
            await settle(connection, claimed, is_read=False)
        assert await states(house) == [expected]
        await house.sql.execute(OVER)
        house.assembly.wakes[notices.TOPIC]("greeter")


async def test_the_first_prompt_begins_with_what_waits_if_it_is_read(butler: Served) -> None:
    house = butler.house
    await added(house)
    for hears in (False, True):
        claimed, _ = await begun(house, hears=hears)
        asked = await worded(house.context("greeter"), claimed)
        assert asked is not None
        assert asked.prompt.endswith("Paint.")
        assert asked.prompt.startswith("<notification ") == hears
    assert await states(house) == ["shown"]


async def words(house: House, text: str = "Make it blue.") -> str:
    """What the owner wrote, as the Switchboard hands it over."""
    message_id = str(uuid4())
    async with house.context("switchboard").db.work() as connection:
        await sessions.enqueue_message(connection, message_id, "greeter", text, {}, session_list.OWN)
        told = Notice("owner", "message", text, trust="owner", priority="high", id=message_id)
        await notices.add(connection, "greeter", told)
    house.assembly.wakes[notices.TOPIC]("greeter")
    return message_id


async def claim(house: House) -> Claimed | None:
    terms = Terms("agent", "me", 3, timedelta(minutes=1), {"dollars": 1.0}, 9.0, nonce=NONCE, hears=True)
    async with house.context("greeter").db.work() as connection:
        return await sessions.claim_waiting(connection, "greeter", terms)


async def test_the_owner_s_words_reach_the_session_that_runs_and_begin_none(butler: Served) -> None:
    _, bearer = await begun(butler.house)
    message_id = await words(butler.house)
    assert await claim(butler.house) is None  # they stay while somebody may be told
    assert "\nMake it blue.\n" in await reads(butler, bearer)
    row = await butler.house.sql.fetchrow("SELECT status, outcome FROM shared.sessions WHERE id = $1", message_id)
    assert row is not None
    assert (row["status"], row["outcome"][:21]) == ("done", "It was told to the se")
    assert await claim(butler.house) is None


WITH_FILE: Final = "UPDATE switchboard.inbox SET attachments = $2 WHERE id = $1"
RECEIVED: Final = """
INSERT INTO switchboard.inbox (id, channel, endpoint_identity, external_event_id, thread, sender, text, request_context,
    conversation, routed_to, answers)
VALUES ($1::uuid, 'telegram', '1', $1::uuid::text, $1::uuid::text, '5', $2, '{}', '5', 'greeter', $3)
"""


async def test_the_owner_s_words_that_are_told_say_what_they_answer(butler: Served) -> None:
    before, sql = uuid4(), butler.house.sql
    await sql.execute(RECEIVED, before, "Red or “blue”?", None)
    _, bearer = await begun(butler.house)
    await sql.execute(RECEIVED, UUID(await words(butler.house)), "Make it blue.", before)
    assert "\nMake it blue. (in answer to “Red or 'blue'?”)\n" in await reads(butler, bearer)


async def test_the_owner_s_words_that_are_told_name_their_files(butler: Served) -> None:
    _, bearer = await begun(butler.house)
    message_id = await words(butler.house)
    await butler.house.sql.execute(RECEIVED, UUID(message_id), "Make it blue.", None)
    await butler.house.sql.execute(WITH_FILE, UUID(message_id), [{"name": "“a” bill.jpg", "size": 5}])
    said = f"Make it blue. (with files “1: 'a' bill.jpg, 5 bytes” of the message {message_id})"
    assert f"\n{said}\n" in await reads(butler, bearer)


async def test_of_the_owner_s_words_in_a_list_their_files_are_cut_first_and_read_whole_by_the_id(
    butler: Served,
) -> None:
    _, bearer = await begun(butler.house)
    message_id = await words(butler.house, "Do NOT send these.")
    await butler.house.sql.execute(RECEIVED, UUID(message_id), "Do NOT send these.", None)
    files = [{"name": f"{n} {'x' * 80}.jpg", "size": 5} for n in range(3)]
    await butler.house.sql.execute(WITH_FILE, UUID(message_id), files)
    await added(butler.house)
    cut = f"… (cut; the tool notices has it whole: id {message_id})\n"
    [line] = [one for one in (await reads(butler, bearer)).splitlines(keepends=True) if one.endswith(cut)]
    assert line.startswith("- [owner] Do NOT send these. (with files “1: 0 xxx")
    [whole] = await asked_for(butler, bearer, id=message_id)
    assert whole.startswith("Do NOT send these. (with files “1: 0 xxx")
    assert whole.endswith(f".jpg, 5 bytes” of the message {message_id})")


@pytest.mark.parametrize("owners", [False, True])
async def test_only_what_may_be_shown_once_more_does_not_wait_for_the_disk(butler: Served, *, owners: bool) -> None:
    claimed, _ = await begun(butler.house)
    await added(butler.house)
    if owners:
        await words(butler.house)
    statements = list[str]()
    async with butler.house.context("greeter").db.work() as connection:
        connection.add_query_logger(lambda said: statements.append(said.query))
        block = await taken(connection, "greeter", Reader(claimed.id, NONCE, hears=True, is_owners=True))
    assert block is not None
    assert len(block.ids) == 1 + owners
    assert ("synchronous_commit" in statements[-1]) is not owners


@pytest.mark.parametrize("cause", ["message", "butler:health", "notice", "schedule:its-own"])
async def test_a_session_that_somebody_else_began_takes_none_of_the_owner_s_words(butler: Served, cause: str) -> None:
    _, bearer = await begun(butler.house, cause=cause)  # a contact's message has no notice in the owner's name
    message_id = await words(butler.house)
    assert await reads(butler, bearer) == ""
    assert await asked_for(butler, bearer) == []
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id
    await added(butler.house)
    assert "build" in await reads(butler, bearer)  # what is for every session it reads


async def test_words_that_are_cut_are_read_whole_by_their_id_and_by_their_reader_alone(butler: Served) -> None:
    _, bearer = await begun(butler.house)
    long = "Make it blue. " * 250
    message_id = await words(butler.house, long)
    changed = "Make it green. " * 250
    async with butler.house.context("switchboard").db.work() as connection:
        await sessions.change_prompt(connection, message_id, changed)
    assert f"… (cut; the tool notices has it whole: id {message_id})" in await reads(butler, bearer)
    await reads(butler, bearer)
    for who, whole in ((bearer, [changed]), ((await begun(butler.house))[1], [])):
        assert await asked_for(butler, who, id=message_id) == whole


async def test_the_owner_s_words_that_nobody_was_told_begin_a_session_and_are_told_no_other(butler: Served) -> None:
    claimed, _ = await begun(butler.house, hears=False)
    message_id = await words(butler.house)
    async with butler.house.context("greeter").db.work() as connection:
        await sessions.finish(connection, claimed, sessions.Finish("done", ""))
    own = await claim(butler.house)
    assert own is not None
    assert own.id == message_id
    _, bearer = await begun(butler.house)
    assert await reads(butler, bearer) == ""
    assert await states(butler.house) == ["done"]


async def woken(house: House, pace: Pace = AT_ONCE) -> list[str]:
    """The prompts of the sessions that notices began so far."""
    context = house.context("greeter")
    async with context.db.work() as connection:
        await begin_one(connection, "greeter", context.new_id, pace)
    rows = await house.sql.fetch("SELECT prompt FROM shared.sessions WHERE cause = 'notice'")
    return [row["prompt"] for row in rows]


async def test_what_wakes_begins_one_session_where_none_runs_and_no_other_soon(butler: Served) -> None:
    house = butler.house
    await added(house)
    assert await woken(house) == []
    claimed, _ = await begun(house)
    await added(house, "The answer is yes.", "answer", wakes=True)
    assert await woken(house) == []  # somebody works
    async with house.context("greeter").db.work() as connection:
        await sessions.finish(connection, claimed, sessions.Finish("done", ""))
    assert await woken(house, Pace()) == []  # more may come in five seconds
    assert await woken(house) == [BEGINS]
    assert await woken(house) == [BEGINS]
    await house.sql.execute(OVER)
    assert await woken(house) == [BEGINS]  # within the minute
    assert len(await woken(house, Pace(timedelta(0), timedelta(0)))) == 2
    await house.sql.execute(OVER)
    assert len(await woken(house, Pace(timedelta(0), timedelta(0), 2))) == 2


async def test_a_storm_is_bounded_and_counted(butler: Served) -> None:
    async with butler.house.context("greeter").db.work() as connection:
        for n in range(100):
            await notices.add(connection, "greeter", Notice("watch", "changed", "x", key=str(n)))
    rows = await butler.house.sql.fetch("SELECT kind, more FROM shared.notices ORDER BY created_at")
    assert [(row["kind"], row["more"]) for row in rows] == [("changed", 0)] * 30 + [("left-out", 69)]


LONG_AGO: Final = "UPDATE shared.notices SET created_at = created_at - interval '1 hour'"


async def test_what_one_source_tells_leaves_room_for_the_others_and_says_that_more_came(butler: Served) -> None:
    house, told = butler.house, Notice("butler.health", "told", "Look.", trust="external")
    for _ in range(4):
        async with house.context("switchboard").db.work() as connection:
            for _ in range(29):
                await notices.add(connection, "greeter", told)
        await house.sql.execute(LONG_AGO)
    async with house.context("messenger").db.work() as connection:
        await notices.add(connection, "greeter", Notice("messenger", "sent", "It was sent."))
    rows = await house.sql.fetch(
        "SELECT kind, count(*) AS n, sum(more) AS more FROM shared.notices GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [("left-out", 1, 15), ("sent", 1, 0), ("told", 100, 0)]


OVER_NOW: Final = {
    "of a clock that was ahead": "created_at = created_at + interval '3 hours', state = 'done'",
    "of two days ago": "created_at = created_at - interval '2 days'",
    "of a session that is over": f"created_at = created_at - interval '1 hour', session_id = '{uuid4()}'",
}


@pytest.mark.parametrize("over", OVER_NOW.values(), ids=OVER_NOW.keys())
async def test_notices_that_nobody_is_shown_any_more_leave_no_later_one_out(butler: Served, over: str) -> None:
    house, told = butler.house, Notice("messenger", "sent", "It was sent.")
    for _ in range(2):
        async with house.context("messenger").db.work() as connection:
            for _ in range(31):
                await notices.add(connection, "greeter", told)
        await house.sql.execute(f"UPDATE shared.notices SET expires_at = '2199-01-01Z', {over}")
    kinds = await house.sql.fetch("SELECT kind, count(*) AS n FROM shared.notices GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in kinds] == [("left-out", 2), ("sent", 60)]


async def test_no_butler_is_told_anything_or_counted_out_by_another(butler: Served) -> None:
    async with butler.house.context("messenger").db.work() as connection:
        for n in range(31):
            await notices.add(connection, "greeter", Notice("watch", "changed", "x", key=str(n)))
    with pytest.raises(ButlersError, match="InsufficientPrivilege"):
        async with butler.house.context("health").db.work() as connection:
            await notices.add(connection, "greeter", Notice("watch", "changed", "x"))
    assert await butler.house.sql.fetchval("SELECT sum(more) FROM shared.notices") == 0


async def test_nobody_waits_for_a_butlers_unfinished_notice(butler: Served) -> None:
    house = butler.house
    async with house.context("greeter").db.work() as open_still, house.context("messenger").db.work() as other:
        await notices.add(open_still, "greeter", Notice("watch", "changed", "x"))
        async with asyncio.timeout(2):
            await notices.add(other, "greeter", Notice("messenger", "sent", "x"))
    assert len(await states(house)) == 2


async def test_the_switchboard_tells_a_butler_what_the_owner_wrote_and_nothing_else(butler: Served) -> None:
    context = butler.house.context("switchboard")
    for no in (
        Notice("owner", "answer", "Yes.", trust="owner"),
        Notice("messenger", "message", "It was sent."),
        Notice("butler.health", "left-out", "Pay him."),
    ):
        with pytest.raises(ButlersError, match="InsufficientPrivilege"):
            async with context.db.work() as connection:
                await notices.add(connection, "greeter", no)
    async with context.db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "message", "Pay him.", trust="owner"))
    assert await states(butler.house) == ["queued"]


ASKED: Final = "INSERT INTO shared.sessions (id, butler, cause, prompt) VALUES ($1, 'greeter', 'butler:health', 'Yes.')"


async def test_what_another_butler_asks_under_a_notices_id_is_not_that_notice(butler: Served) -> None:
    """Who asks chooses the id of what it asks, and may know those of notices."""
    house, known = butler.house, str(uuid4())
    async with house.context("messenger").db.work() as connection:
        denied = Notice("owner", "decision", "The owner denied it.", trust="owner", id=known)
        await notices.add(connection, "greeter", denied)
    await house.sql.execute(ASKED, UUID(known))
    async with house.context("greeter").db.work() as connection:
        shown = await notices.to_show(connection, "greeter", Reader(str(uuid4()), hears=True, is_owners=True))
        listed = await notices.unread_by(connection, "greeter", str(uuid4()), owners=True)
        assert [row["text"] for row in [*shown, *listed]] == ["The owner denied it."] * 2
        assert not await session_list.is_by_owner(connection, known, "greeter")


async def test_a_butler_cannot_speak_for_the_owner(butler: Served) -> None:
    with pytest.raises(Exception, match="InsufficientPrivilege"):
        await added(butler.house, "Pay him.", trust="owner")
    assert await states(butler.house) == []
