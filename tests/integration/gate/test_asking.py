"""Questions to the owner: asked and waited for through real MCP, shown in Telegram, answered once."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from butlers.butler import Butler, Context, Daemon, Tool, ToolCall
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from butlers.tools import ask_user
from messenger.inbound import messages
from messenger.storage.kinds import question_cards
from shared.auth.tokens import Caller, Verifier
from shared.config.quiet_hours import quiet_hours
from shared.db.pool import Record
from shared.storage import questions
from tests.integration.daemon.test_daemon import ERAS, Era, Served, served
from tests.integration.daemon.test_notices import OVER, begun, token_for_notices
from tests.integration.daemon.test_shown_to_nobody import REVOKE_LAST
from tests.integration.database.test_questions import OWNER_ID
from tests.integration.house import House, button_data, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import new_chat
from tests.rig.cluster import Cluster
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOTICE: Final = "SELECT * FROM shared.notices WHERE key = $1"


@dataclass(frozen=True, slots=True)
class Desk:
    """The greeter on a port, in a house at work whose bursts have no end."""

    house: House
    at: Served

    async def call(self, tool: str, era: Era = "auto", /, **arguments: object) -> Mapping[str, object]:
        async with self.at.client(era) as client:
            answer: Mapping[str, object] | None = (await client.call_tool(tool, arguments)).structured_content
        assert answer is not None
        return answer

    async def asks(self, words: str, *options: str, **more: object) -> str:
        """A question nobody waits for; its id."""
        asked = await self.call("ask_user", title="Asked", question=words, options=[*options], **more)
        assert asked == {"sent": True, "message": "Question envoyee", "question_id": asked["question_id"]}
        return str(asked["question_id"])

    async def card(self, words: str, least: int = 1) -> Mapping[str, object]:
        async def look() -> Mapping[str, object] | None:
            found = self.house.cards(words)
            return found[-1] if len(found) >= least else None

        return await eventually(look)

    async def row(self, question: str) -> Record:
        found = await questions.one(self.house.sql, question)
        assert found is not None
        return found

    async def notice(self, question: str) -> Record:
        return await eventually(partial(self.house.sql.fetchrow, NOTICE, question))

    async def shown(self, card: Mapping[str, object], words: str) -> None:
        """Wait until the card's message says so, and has no button any more."""

        async def look() -> bool:
            edits = [
                line["payload"]
                for line in self.house.box.sandbox.lines
                if isinstance(line["payload"], Mapping) and line["payload"].get("method") == "editMessageText"
            ]
            number = int(str(card["provider_id"]))
            return any(one.get("message_id") == number and words in str(one.get("text")) for one in edits)

        assert await eventually(look)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(cluster: Cluster) -> AsyncIterator[Desk]:
    made: list[Daemon] = []
    stopping = asyncio.Event()
    async with opened(cluster, BUTLERS_CARD_BURST="1000") as house:

        def make(url: str) -> Daemon:
            context, directory = house.context("greeter"), house.assembly.directory
            verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
            made.append(build(Butler("greeter", "Asks."), context, verifier, [url.removeprefix("http://")])[0])
            return made[0]

        async for at in served(house, "greeter", make):
            tasks = [asyncio.ensure_future(loop(stopping)) for loop in made[0].loops]
            yield Desk(house, at)
            stopping.set()
            await asyncio.gather(*tasks)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("options", "verb", "answer"),
    [
        ([], "q0", {"response": "accepted", "choice": "OK"}),
        (["Yes", "No"], "q1", {"response": "dismissed", "choice": "No", "option_index": 1}),
        (["a", "b", "c"], "q2", {"response": "accepted", "choice": "c", "option_index": 2}),
        (["Yes", "No"], "qd", {"response": "dismissed", "choice": None}),
    ],
)
async def test_a_call_that_waits_gets_what_was_pressed(
    desk: Desk, message: str, era: Era, options: list[str], verb: str, answer: Mapping[str, object]
) -> None:
    asked = {"title": "Asked", "question": message, "options": options, "wait_for_response": True}
    call = asyncio.ensure_future(desk.call("ask_user", era, **asked))
    card = await desk.card(message)
    await desk.house.press(card, verb)
    said = await call
    assert said == {**answer, "question_id": said["question_id"], "channel": "telegram"}
    assert (await desk.row(str(said["question_id"])))["told"]
    await desk.shown(card, "Answered in Telegram" if answer["choice"] else "Dismissed in Telegram")
    assert await desk.house.sql.fetchrow(NOTICE, said["question_id"]) is None


async def test_a_card_says_what_it_is_and_has_no_approve(desk: Desk, message: str) -> None:
    forged = f"{message}\n\n\u25a3 Greeter wants to write to Anna. Approve or deny with the buttons."
    await desk.asks(forged, "Approve", "Deny", repo="butlers", branch="main", agent="claude")
    card = await desk.card(message)
    payload = card["payload"]
    assert isinstance(payload, Mapping)
    first, *rest = str(payload["text"]).splitlines()
    assert first.startswith("\u25a3 Greeter asks you a question (ref ")
    assert first.endswith("It is not an approval request.")
    assert not [line for line in rest[:-1] if line.startswith("\u25a3")]
    assert "butlers @ main, agent: claude" in rest
    assert [one.split(":")[2] for one in button_data(card)] == ["q0", "q1", "qd"]
    labels = [one["text"] for row in payload["reply_markup"]["inline_keyboard"] for one in row]
    assert labels == ["\u201cApprove\u201d", "\u201cDeny\u201d", "Dismiss"]


async def test_an_answer_nobody_waits_for_becomes_one_waking_notice(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", "No")
    await desk.house.press(await desk.card(message), "q0")
    notice = await desk.notice(question)
    assert (notice["butler"], notice["source"], notice["priority"]) == ("greeter", "owner", "high")
    assert notice["wakes"]
    assert "“Yes”" in notice["text"]
    stands = {"status": "answered", "response": "accepted", "choice": "Yes", "option_index": 0}
    assert await desk.call("question_status", question_id=question) == {
        **stands,
        "question_id": question,
        "channel": "telegram",
    }


async def test_an_answer_after_its_token_was_revoked_is_not_read_by_the_client(desk: Desk, message: str) -> None:
    asked = {"title": "Asked", "question": message, "options": ["Yes", "No"], "wait_for_response": True}
    call = asyncio.ensure_future(desk.at.post(await token_for_notices(desk.house), "ask_user", asked))
    card = await desk.card(message)
    await desk.house.sql.execute(REVOKE_LAST)
    await desk.house.press(card, "q0")
    assert "does not count any more" in (await call)[1]
    question = await desk.house.sql.fetchval("SELECT id::text FROM shared.questions WHERE question = $1", message)
    assert "“Yes”" in (await desk.notice(question))["text"]


@pytest.mark.parametrize("over", [OVER, "UPDATE shared.sessions SET stop_asked_at = now()"], ids=["over", "stopping"])
async def test_an_answer_after_its_session_was_stopped_becomes_a_notice(desk: Desk, message: str, over: str) -> None:
    claimed, token = await begun(desk.house)
    asked = {"title": "Asked", "question": message, "options": ["Yes", "No"], "wait_for_response": True}
    call = asyncio.ensure_future(desk.at.post(token, "ask_user", asked))
    card = await desk.card(message)
    await desk.house.sql.execute(f"{over} WHERE id = $1", UUID(claimed.id))
    await desk.house.press(card, "q0")
    assert "does not count any more" in (await call)[1]
    question = await desk.house.sql.fetchval("SELECT id::text FROM shared.questions WHERE question = $1", message)
    assert "“Yes”" in (await desk.notice(question))["text"]


async def test_what_the_owner_decides_after_its_token_was_revoked_is_not_read_by_the_client(
    desk: Desk, message: str
) -> None:
    asked = await desk.call("notify", channel="telegram", message=message, recipient=str(new_chat()))
    about = {"notification_id": asked["notification_id"], "wait_seconds": 20}
    call = asyncio.ensure_future(desk.at.post(await token_for_notices(desk.house), "notification_status", about))
    await asyncio.sleep(0.5)
    await desk.house.sql.execute(REVOKE_LAST)
    assert (await desk.house.decide(asked["action_id"], approve=False, reason="Zoe is ill.")).code == "denied"
    told = (await call)[1]
    assert ("Zoe is ill." in told, "does not count any more" in told, "retryable" in told) == (False, True, False)


async def test_an_answer_after_the_deadline_is_late_and_becomes_a_notice(desk: Desk, message: str) -> None:
    asked = {"title": "Asked", "question": message, "options": ["a", "b", "c"], "wait_for_response": True, "timeout": 5}
    said = await desk.call("ask_user", **asked)
    assert said == {"response": "timeout", "choice": None, "question_id": said["question_id"]}
    await desk.house.press(await desk.card(message), "q1")
    await desk.notice(str(said["question_id"]))
    stands = await desk.call("question_status", question_id=said["question_id"])
    assert (stands["choice"], stands["late"]) == ("b", True)


async def test_the_answer_to_what_a_schedule_asked_becomes_a_notice(desk: Desk, message: str) -> None:
    asked = {"title": "Asked", "question": message, "options": ["a", "b"], "wait_for_response": True}
    client, occurrence = desk.house.assembly.local["greeter"], Caller("greeter", "client", str(uuid4()))
    call = asyncio.ensure_future(client.by_clock("ask_user", asked, occurrence))
    await desk.house.press(await desk.card(message), "q1")
    result = await call
    assert result.answer is not None
    await desk.notice(str(result.answer["question_id"]))


async def reply(desk: Desk, card: Mapping[str, object], text: str) -> Record:
    number = int(str(card["provider_id"]))
    told = await desk.house.box.api("say", as_=OWNER, chat=OWNER, text=text, reply_to=number)
    return await desk.house.handled(told["update_id"])


async def test_words_answer_where_they_are_allowed(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", allow_text=True)
    handled = await reply(desk, await desk.card(message), "Ask me tomorrow")
    row = await desk.row(question)
    assert (handled["outcome"], row["status"], row["choice"], row["typed"]) == (
        "answered",
        "accepted",
        "Ask me tomorrow",
        True,
    )
    stands = await desk.call("question_status", question_id=question)
    assert stands["text"] == "Ask me tomorrow"


MARKED: Final = """
INSERT INTO messenger.updates (bot, update_id, body) SELECT bot, $2::bigint, jsonb_build_object('update_id', $2::bigint,
    'message', (body -> 'message') || jsonb_build_object('message_id', $2::bigint) || $3::jsonb)
FROM messenger.updates WHERE update_id = $1
"""
CHANGED: Final = """
INSERT INTO messenger.updates (bot, update_id, body) SELECT bot, $2::bigint, jsonb_build_object('update_id', $2::bigint,
    'edited_message', (body -> 'message') || jsonb_build_object('text', $3::text, 'edit_date', $2::bigint))
FROM messenger.updates WHERE update_id = $1
"""


async def test_the_owner_is_told_once_that_an_answer_stays_as_it_was_first(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", allow_text=True)
    handled = await reply(desk, await desk.card(message), "At 8 pm")
    stays = messages.ANSWER_STAYS.format(name="Greeter")
    # What one of them is answered has been sent when the next is handled.
    for n, text in enumerate(("At 8 pm", "At 8 am", "At 9 am", "At 8 am"), start=1):
        number = handled["update_id"] + 1000 * n
        await desk.house.sql.execute(CHANGED, handled["update_id"], number, text)
        await desk.house.handled(number)
    assert len(desk.house.sent(stays)) == 1
    assert (await desk.row(question))["choice"] == "At 8 pm"


async def test_the_part_that_is_marked_of_a_card_goes_with_the_answer(desk: Desk, message: str) -> None:
    question = await desk.asks(f"{message}\n- milk\n- bread", allow_text=True)
    card, other = await desk.card(message), await desk.asks(f"other {message}", allow_text=True)
    handled = await reply(desk, await desk.card(f"other {message}"), "First")
    marked = {"reply_to_message": {"message_id": int(str(card["provider_id"]))}, "quote": {"text": "- bread"}}
    number = handled["update_id"] + 1000
    await desk.house.sql.execute(MARKED, handled["update_id"], number, {**marked, "text": "this one"})
    await desk.house.handled(number)
    assert (await desk.row(question))["choice"] == "> - bread\nthis one"
    assert (await desk.row(other))["choice"] == "First"


async def test_words_do_not_answer_where_they_are_not(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes")
    handled = await reply(desk, await desk.card(message), "Ask me tomorrow")
    assert handled["outcome"] == "not_a_choice"
    assert (await desk.row(question))["open"]


async def test_a_withdrawn_question_takes_no_answer_and_its_card_says_so(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", "No")
    card = await desk.card(message)
    assert await desk.call("withdraw", question_id=question) == {"status": "withdrawn", "question_id": question}
    assert await desk.call("withdraw", notification_id=question) == {"status": "withdrawn", "question_id": question}
    await desk.shown(card, "The question of Greeter was withdrawn.")
    assert (await desk.house.press(card, "q0"))["outcome"] == "late"
    assert (await desk.row(question))["status"] == "withdrawn"


async def test_a_stranger_and_a_forged_verb_answer_nothing(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", "No", allow_text=True)
    card = await desk.card(message)
    assert (await desk.house.press(card, "q0", who=777))["outcome"] == "stranger"
    chat, number = {"id": OWNER, "type": "private"}, int(str(card["provider_id"]))
    said: dict[str, object] = {"chat": chat, "text": "Yes", "reply_to_message": {"message_id": number}}
    assert await messages.question_replied(desk.house.sql, {**said, "from": {"id": OWNER}}) == question
    others: list[dict[str, object]] = [{"from": {"id": 777}}, {"from": {"id": OWNER}, "forward_date": 1}]
    for wrong in others:
        assert await messages.question_replied(desk.house.sql, {**said, **wrong}) is None
    pieces = button_data(card)[0].split(":")
    for verb in ("q1", "q5", "ok"):
        data = ":".join([*pieces[:2], verb, pieces[3]])
        number = int(str(card["provider_id"]))
        told = await desk.house.box.api("press", as_=OWNER, chat=OWNER, message_id=number, data=data)
        assert (await desk.house.handled(told["update_id"]))["outcome"] == "stale"
    assert (await desk.row(question))["open"]


async def test_an_urgent_question_comes_once_more_and_the_first_card_closes(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", "No", urgency="high")
    first = await desk.card(message)
    half = await desk.house.sql.fetchval("SELECT remind_at - asked_at FROM shared.questions WHERE id = $1", question)
    assert half.total_seconds() == pytest.approx(12 * 3600, abs=1)
    await desk.house.sql.execute("UPDATE shared.questions SET remind_at = asked_at WHERE id = $1", question)
    second = await desk.card(message, least=2)
    await desk.shown(first, "Asked again below.")
    await desk.house.press(second, "q0")
    await desk.shown(second, "Answered in Telegram")
    assert len(desk.house.cards(message)) == 2


async def test_what_is_wrong_is_refused_before_anything_is_written(desk: Desk, message: str) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"title": ""}, "Missing required 'title' parameter."),
        ({"question": None}, "Missing required 'question' parameter."),
        ({"question": "x" * 10_001}, "'question' is not a text of at most 10,000 characters."),
        ({"options": ["x" * 4096]}, "Option 1 is not a text of at most 40 characters."),
        ({"options": [str(n) for n in range(11)]}, "'options' is not a list of at most 10 texts."),
        ({"options": ["a", "a"]}, "Two of 'options' are the same, or one is empty."),
        ({"timeout": 4}, "'timeout' must be a number from 5 to 300."),
        ({"timeout": 301}, "'timeout' must be a number from 5 to 300."),
        ({"urgency": "urgent"}, "'urgency' is not one of its words."),
        ({"title": "a\nb"}, "'title' has more than one line."),
        ({"wait": True}, "Unknown parameter 'wait'."),
    ]
    for arguments, says in wrong:
        answer = await desk.call("ask_user", **{"title": message, "question": "What?", **arguments})
        assert answer["status"] == "error"
        assert str(answer["error"]).startswith(says)
    rows = "SELECT count(*) FROM shared.questions WHERE title = $1"
    assert await desk.house.sql.fetchval(rows, message) == 0


async def test_long_and_odd_words_are_asked_whole(desk: Desk, message: str) -> None:
    """Ten thousand characters, right to left, in two hundred lines."""
    lines = [f"{message} {n}: \u05e9\u05dc\u05d5\u05dd {'x' * 8}" for n in range(160)]
    question = await desk.asks("\n".join(lines)[:10_000], "Yes", "No", allow_text=True)

    async def look() -> str | None:
        find = "SELECT id::text FROM messenger.deliveries WHERE about = $1 AND status = 'sent'"
        found: str | None = await desk.house.sql.fetchval(find, question)
        return found

    delivery = await eventually(look)
    parts = "SELECT provider_id FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"
    first, *_, last = [row["provider_id"] for row in await desk.house.sql.fetch(parts, delivery)]
    for number in (first, last):
        assert await question_cards.question_answered(desk.house.sql, str(OWNER), number) == question


async def test_a_client_that_reads_no_stream_is_answered_as_json(desk: Desk, message: str) -> None:
    """It is answered when the owner answers, or before it gives up."""
    asked = {"title": "Asked", "question": message, "wait_for_response": True, "timeout": 5}
    token = desk.house.tokens["greeter"]
    call = asyncio.ensure_future(desk.at.post(token, "ask_user", asked, accept="application/json"))
    await desk.house.press(await desk.card(message), "q0")
    status, body = await call
    assert (status, json.loads(body)["result"]["structuredContent"]["choice"]) == (200, "OK")


async def test_a_client_that_leaves_loses_no_answer(desk: Desk, message: str) -> None:
    asked = {"title": "Asked", "question": message, "wait_for_response": True, "timeout": 300}
    call = asyncio.ensure_future(desk.call("ask_user", **asked))
    card = await desk.card(message)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await desk.house.press(card, "q0")
    find = "SELECT id::text FROM shared.questions WHERE question = $1"
    await desk.notice(await desk.house.sql.fetchval(find, message))


async def test_a_client_that_leaves_while_it_looks_loses_no_answer(desk: Desk, message: str) -> None:
    question = await desk.asks(message, "Yes", "No")
    call = asyncio.ensure_future(desk.call("question_status", question_id=question, wait_seconds=50))
    card = await desk.card(message)
    await eventually(partial(desk.house.sql.fetchval, HEARD, question))
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await desk.house.press(card, "q0")
    await desk.notice(question)


async def test_fifty_waiting_calls_hold_no_connection_each(desk: Desk, message: str) -> None:
    asked = {"title": "Many", "question": message, "wait_for_response": True, "timeout": 60}
    async with desk.at.client() as client:
        calls = [asyncio.ensure_future(client.call_tool("ask_user", asked)) for _ in range(50)]
        open_now = "SELECT id::text FROM shared.questions WHERE question = $1 AND status = 'open'"

        async def all_asked() -> list[Record] | None:
            rows = await desk.house.sql.fetch(open_now, message)
            return rows if len(rows) == 50 else None

        rows = await eventually(all_asked)
        held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE '%_up'"
        assert await desk.house.sql.fetchval(held) < 20
        owner = await desk.house.sql.fetchval(OWNER_ID)
        for row in rows:
            assert await questions.answer(desk.house.sql, row["id"], questions.Given(0), "cli", owner)
        answers = await asyncio.gather(*calls)
    assert {one.structured_content["choice"] for one in answers} == {"OK"}


HEARD: Final = "SELECT heard_until FROM shared.questions WHERE id = $1"


def by_hand(house: House, **timings: float) -> tuple[Context, Tool]:
    """The tool as a butler with these timings has it, without its loop."""
    context = house.context("greeter", **timings)
    return context, ask_user.tools(context, ask_user.Waiting(context))[0]


def called(message: str, **more: object) -> ToolCall:
    return ToolCall(Caller("greeter", "client", "x"), {"title": "Asked", "question": message, **more})


async def test_a_client_of_json_is_answered_before_it_gives_up(still_house: House, message: str) -> None:
    """It waits no longer than other answers do, and the question stays open; an urgent one comes once more."""
    _, tool = by_hand(still_house, status_wait=0.3)
    async with asyncio.timeout(4):
        result = await tool.handler(called(message, urgency="high", wait_for_response=True, timeout=5))
    assert result.answer is not None
    assert result.answer["response"] == "timeout"
    row = await questions.one(still_house.sql, str(result.answer["question_id"]))
    assert row is not None
    assert (row["open"], row["remind_at"] is None) == (True, False)


async def test_a_client_that_waits_hears_signs_of_life(still_house: House, message: str) -> None:
    said = list[str]()

    async def heard(text: str) -> None:
        said.append(text)

    _, tool = by_hand(still_house, question_progress=1.0)
    call = replace(called(message, wait_for_response=True, timeout=5), streams=True, progress=heard)
    await tool.handler(call)
    assert said == ["Waiting for the owner's answer."] * 4


@pytest.mark.parametrize(("urgency", "cards"), [("normal", 0), ("high", 1)])
async def test_in_quiet_hours_only_what_is_urgent_makes_a_sound(
    still_house: House, message: str, urgency: str, cards: int
) -> None:
    around = datetime.now(UTC)
    begin, end = (around - timedelta(hours=1), around + timedelta(hours=1))
    context = still_house.context("greeter")
    quiet = quiet_hours(f"{begin:%H:%M}-{end:%H:%M} UTC")
    context = replace(context, settings=replace(context.settings, quiet_hours=quiet))
    tool = ask_user.tools(context, ask_user.Waiting(context))[0]
    result = await tool.handler(called(message, urgency=urgency))
    assert result.answer is not None
    await question_cards.ask_questions(still_house.sql, 1000, context.settings.timings)
    made = "SELECT count(*) FROM messenger.deliveries WHERE about = $1"
    assert await still_house.sql.fetchval(made, str(result.answer["question_id"])) == cards
    [shown] = [row for row in await questions.open_questions(still_house.sql) if row["question"] == message]
    assert shown["shown"] is (urgency == "high")


async def test_beyond_its_burst_a_butler_has_no_card(still_house: House, message: str) -> None:
    """What the owner has answered gives its place back; the console shows the rest."""
    timings, made = still_house.settings.timings, list[str]()
    for n in range(5):
        async with still_house.context("health").db.work() as connection:
            new = questions.NewQuestion(str(uuid4()), "health", "Many", f"{message} {n}")
            assert await questions.ask(connection, new, questions.Times(timings.question_lasts, timings.question_heard))
            made.append(new.id)
    await still_house.sql.execute("UPDATE shared.questions SET expires_at = asked_at WHERE origin_butler <> 'health'")
    written = partial(question_cards.ask_questions, still_house.sql, 3, timings)
    assert [await written(), await written()] == [3, 0]
    owner = await still_house.sql.fetchval(OWNER_ID)
    assert await questions.answer(still_house.sql, made[0], questions.Given(0), "cli", owner)
    assert [await written(), await written()] == [1, 0]
