"""The desk at the console: a code signs it in once, its token opens its own door alone, the first answer counts."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers import fleet
from butlers.console.storage.sessions import make_desk_code, make_sign_in_link
from butlers.daemon import discovery
from butlers.desk.console import Console, Question
from butlers.setup import migrate
from shared.auth.tokens import Unauthorized
from shared.errors import InvalidInput, Unavailable
from shared.storage import calls, questions
from shared.storage.questions import Given, NewQuestion, Times
from tests.integration.console_runner import Running, browsing
from tests.integration.house import House, opened
from tests.integration.signed_in import page, plain, signed_in
from tests.rig.cluster import BUTLERS, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")
TIMES = Times(timedelta(hours=1), timedelta(seconds=10))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(house: House) -> AsyncIterator[Running]:
    async with signed_in(house) as running:
        yield running


async def paired(house: House, console: Running) -> Console:
    """A desk that has signed in."""
    code = uuid4().hex
    await make_desk_code(house.sql, code)
    return await Console(console.url).sign_in(code)


async def asked(house: House, **more: object) -> str:
    """A question of the greeter's that is open; its id."""
    new = NewQuestion(str(uuid4()), "greeter", "Milk", "Which milk?", **more)  # type: ignore[arg-type]
    assert await questions.ask(house.sql, new, TIMES)
    return new.id


async def seen(desk: Console, wanted: str) -> Question:
    """The question as the stream first brings it."""
    async with contextlib.aclosing(desk.questions()) as stream:
        async for found in stream:
            for one in found:
                if one.id == wanted:
                    return one
    raise AssertionError("the stream ended")


async def test_a_code_signs_in_one_desk_and_no_browser(house: House, console: Running) -> None:
    code, link = uuid4().hex, uuid4().hex
    await make_desk_code(house.sql, code)
    await make_sign_in_link(house.sql, console.url, link)
    assert (await console.post("/sign-in", code=code)).status == 403
    desk = Console(console.url)
    with pytest.raises(Unauthorized, match="used or has expired"):
        await desk.sign_in(link)
    # This process is the console too.
    assert os.getuid() in (await desk.sign_in(code)).users
    with pytest.raises(Unauthorized):
        await desk.sign_in(code)
    [*_, made] = await discovery.tokens(house.sql)
    assert (made["kind"], made["butler"], made["counts"]) == ("desk", "console", True)


async def test_an_open_question_comes_by_the_stream_and_the_first_answer_counts(house: House, console: Running) -> None:
    desk = await paired(house, console)
    question = await asked(house, options=["Oat", "Soy"], allow_text=True, urgency="high")
    assert replace(await seen(desk, question), history=()) == Question(
        question, "greeter", "Milk", "Which milk?", ["Oat", "Soy"], allow_text=True, urgency="high"
    )
    assert await desk.answer(question, {"option_index": 0})
    assert not await desk.answer(question, {"text": "Cow"})
    row = await questions.one(house.sql, question)
    assert row is not None
    assert (row["status"], row["choice"], row["surface"]) == ("accepted", "Oat", "desk")


async def test_the_settings_show_each_token_that_counts_and_how_to_end_it(house: House, console: Running) -> None:
    await paired(house, console)
    [*_, made] = await discovery.tokens(house.sql)
    shown = plain(await page(console, "/settings"))
    assert f"A desk, which answers questions and approves nothing. since {made['made_at']:%Y-%m-%d}" in shown
    assert f"butlers tokens revoke {made['id'][:8]}" in shown
    await discovery.revoke_token(house.sql, made["id"])
    await discovery.keep_token(house.sql, "a command's own", "greeter", discovery.ONE_COMMAND)
    await discovery.keep_token(house.sql, "a client's token", "greeter", timedelta(minutes=6))
    shown = plain(await page(console, "/settings"))
    assert (made["id"][:8] in shown, "revoke a client" in shown, "revoke a comman" in shown) == (False, True, False)
    assert "1 more was made by the command line for a single command, and ends within five minutes" in shown


async def test_a_popup_shows_what_was_said_on_every_surface(house: House, console: Running) -> None:
    await calls.write_popups(house.sql, ["greeter"])
    desk = await paired(house, console)
    owner = str(await house.sql.fetchval("SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)"))
    in_the_chat = await asked(house, options=["Oat", "Soy"])
    assert await questions.answer(house.sql, in_the_chat, Given(1), "telegram", owner)
    plain_one, popup = await asked(house), await asked(house, popup=True)
    assert (await seen(desk, plain_one)).history == []
    shown = await seen(desk, popup)
    assert list(shown.history)[-2:] == [("Milk: Which milk?", "Soy"), ("Milk: Which milk?", "")]
    assert len(shown.history) <= 5
    for one in (plain_one, popup):
        await questions.withdraw_question(house.sql, one, "greeter")


async def test_a_popup_opens_only_for_a_butler_that_the_owner_s_files_give_a_desk(
    house: House, console: Running
) -> None:
    desk, opened = await paired(house, console), list[bool]()
    for has_desk in (False, True):
        entries = [replace(one, has_desk=has_desk) for one in fleet.load(None) if one.name in BUTLERS]
        await migrate.migrate(house.settings, house.dsn, entries)
        question = await asked(house, popup=True)
        opened.append((await seen(desk, question)).popup)
        await questions.withdraw_question(house.sql, question, "greeter")
    assert opened == [False, True]


async def test_beyond_its_burst_a_butler_s_popup_is_a_notification(cluster: Cluster) -> None:
    async with opened(cluster, loops=False, BUTLERS_CARD_BURST="3") as house, signed_in(house) as console:
        await calls.write_popups(house.sql, ["greeter", "health"])
        desk, popups = await paired(house, console), list[bool]()
        for n in range(6):
            question = await asked(house, popup=True)
            popups.append((await seen(desk, question)).popup)
            if n == 0:  # what the owner answers gives its place back
                assert await desk.answer(question, {"option_index": 0})
            elif n == 1:
                assert await desk.answer(question, {"dismissed": True})
            else:
                await questions.withdraw_question(house.sql, question, "greeter")
        assert popups == [True, True, True, True, False, False]
        other = NewQuestion(str(uuid4()), "health", "Dentist", "Which day?", popup=True)
        assert await questions.ask(house.sql, other, TIMES)
        assert (await seen(desk, other.id)).popup
        await house.sql.execute("UPDATE shared.questions SET asked_at = asked_at - interval '10 minutes'")
        late = await seen(desk, other.id)
        assert (late.popup, (await seen(desk, await asked(house, popup=True))).popup) == (False, True)


async def test_butlers_take_turns_on_the_screen(house: House, console: Running) -> None:
    desk = await paired(house, console)
    many = [await asked(house, options=[str(n)], urgency="high") for n in range(10)]
    calm = NewQuestion(str(uuid4()), "health", "Dentist", "Which day?", urgency="low")
    assert await questions.ask(house.sql, calm, TIMES)
    async with contextlib.aclosing(desk.questions()) as stream:
        first = await anext(stream)
    assert [one.id for one in first] == [many[0], calm.id, *many[1:3]]
    assert [row["id"] for row in await questions.open_questions(house.sql, 2)] == [many[0], calm.id]
    for one in many:
        await questions.withdraw_question(house.sql, one, "greeter")
    await questions.withdraw_question(house.sql, calm.id, "health")


async def test_what_is_answered_elsewhere_leaves_the_stream(house: House, console: Running) -> None:
    desk = await paired(house, console)
    question = await asked(house)
    standing = list[set[str]]()

    async def follow() -> None:
        async for found in desk.questions():
            standing.append({one.id for one in found})

    following = asyncio.create_task(follow())
    async with asyncio.timeout(5):
        while not standing or question not in standing[-1]:
            await asyncio.sleep(0.02)
    owner = await house.sql.fetchval("SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)")
    assert await questions.answer(house.sql, question, Given(), "cli", owner)
    async with asyncio.timeout(5):
        while question in standing[-1]:
            await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.wait([following])


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"option_index": 10},
        {"option_index": -1},
        {"option_index": True},
        {"text": " "},
        {"text": "x" * 10_001},
        {"text": "\0"},
        {"text": "\ud800"},
        {"option_index": 0, "text": "both"},
        {"dismissed": "yes"},
    ],
    ids=lambda said: json.dumps(said)[:30],
)
async def test_an_answer_without_sense_answers_nothing(house: House, console: Running, said: dict[str, object]) -> None:
    desk = await paired(house, console)
    question = await asked(house, allow_text=True)
    with pytest.raises(InvalidInput):
        await desk.answer(question, said)
    row = await questions.one(house.sql, question)
    assert row is not None
    assert row["status"] == "open"
    await questions.withdraw_question(house.sql, question, "greeter")


async def test_a_question_that_is_none_and_a_console_that_is_none(house: House, console: Running) -> None:
    desk = await paired(house, console)
    for strange in (str(uuid4()), "'; --"):
        with pytest.raises(InvalidInput, match="no such question"):
            await desk.answer(strange, {"dismissed": True})
    with pytest.raises(Unavailable):
        await Console("http://127.0.0.1:1", desk.token).answer(str(uuid4()), {"dismissed": True})
    with pytest.raises(Unavailable):
        await seen(Console("http://127.0.0.1:1", desk.token), "none")


async def test_a_desks_token_opens_no_other_door(house: House, console: Running) -> None:
    desk = await paired(house, console)
    headers = {"Authorization": f"Bearer {desk.token}", "Origin": console.url}
    inside = ("/", "/approvals", "/contacts", "/rules", "/deliveries", "/audit", "/events")
    async with browsing() as stranger:
        for path in inside:
            answer = await stranger.get(f"{console.url}{path}", headers=headers, allow_redirects=False)
            assert answer.status == 303, path
        for path in (f"/approvals/{uuid4()}", "/contacts", "/rules", "/brake", f"/deliveries/{uuid4()}"):
            assert (await console.send(path, {"verb": "approve"}, headers, stranger)).status == 303, path
    for local in house.assembly.local.values():
        with pytest.raises(Unauthorized):
            await local.call(desk.token, "notify", {"channel": "telegram", "message": "x"})


async def test_other_tokens_and_a_revoked_one_open_no_desks_door(house: House, console: Running) -> None:
    desk = await paired(house, console)
    for token in ("", "x", house.tokens["greeter"], desk.token[:-1] + ("A" if desk.token[-1] != "A" else "Q")):
        with pytest.raises(Unauthorized):
            await Console(console.url, token).answer(str(uuid4()), {"dismissed": True})
        with pytest.raises(Unauthorized):
            await seen(Console(console.url, token), "none")
    [*_, made] = await discovery.tokens(house.sql)
    await discovery.revoke_token(house.sql, made["id"])
    with pytest.raises(Unauthorized, match="revoked"):
        await desk.answer(str(uuid4()), {"dismissed": True})
