"""The Bot API stand-in, seen by an unmodified python-telegram-bot and by raw calls."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, ReactionTypeEmoji, Update
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter
from telegram.ext import (
    Application,
    ApplicationBuilder,
    CallbackQueryHandler,
    CommandHandler,
    ContextTypes,
    MessageHandler,
    MessageReactionHandler,
    filters,
)

from tests.integration.sandbox_runner import OWNER, Running, running
from tests.rig.waiting import LONGEST, until

Context = ContextTypes.DEFAULT_TYPE
WISH = ["message"]
KEYS = InlineKeyboardMarkup(
    [[InlineKeyboardButton("Approve", callback_data="a"), InlineKeyboardButton("Deny", callback_data="d")]]
)


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


def real_bot(box: Running, token: str = "42:A") -> Application:  # type: ignore[type-arg]  # six parameters nobody needs here
    return ApplicationBuilder().token(token).base_url(f"{box.url}/bot").build()


async def reply(update: Update, _context: Context) -> None:
    assert update.message is not None
    await update.message.reply_text(f"you said {update.message.text}", reply_markup=KEYS, do_quote=True)


async def decide(update: Update, _context: Context) -> None:
    assert update.callback_query is not None
    await update.callback_query.answer("Noted")
    await update.callback_query.edit_message_text(f"decided: {update.callback_query.data}")


async def start(update: Update, context: Context) -> None:
    assert update.message is not None
    await update.message.reply_text(f"paired with {context.args}")


async def thank(update: Update, context: Context) -> None:
    assert update.message_reaction is not None
    await context.bot.send_message(update.message_reaction.chat.id, "thank you")


@pytest_asyncio.fixture
async def bot(box: Running) -> AsyncIterator[Application]:  # type: ignore[type-arg]  # as above
    application = real_bot(box)
    application.add_handler(CommandHandler("start", start))
    application.add_handler(MessageHandler(filters.TEXT, reply))
    application.add_handler(CallbackQueryHandler(decide))
    application.add_handler(MessageReactionHandler(thank))
    async with application:
        await application.start()
        assert application.updater is not None
        await application.updater.start_polling(allowed_updates=Update.ALL_TYPES, timeout=5)
        yield application
        await application.updater.stop()
        await application.stop()


async def test_what_a_person_says_reaches_a_real_bot_and_its_reply_is_journalled(box: Running, bot: object) -> None:
    said = await box.api("say", as_=OWNER, text="hällo 🏃")
    [line] = await box.until_journalled("sendMessage")
    assert line["to"] == str(OWNER)
    assert line["channel"] == "telegram"
    assert line["token_id"] == "42"
    payload = line["payload"]
    assert isinstance(payload, dict)
    assert payload["text"] == "you said hällo 🏃"
    assert payload["reply_parameters"]["message_id"] == said["message_id"]
    assert payload["reply_markup"]["inline_keyboard"][0][1] == {"text": "Deny", "callback_data": "d"}


async def test_a_press_reaches_a_real_bot_which_answers_and_edits(box: Running, bot: object) -> None:
    await box.api("say", as_=OWNER, text="hello")
    [sent] = await box.until_journalled("sendMessage")
    pressed = await box.api("press", as_=OWNER, message_id=int(str(sent["provider_id"])), data="d")
    [edit] = await box.until_journalled("editMessageText")
    [answer] = await box.journal("answerCallbackQuery")
    assert answer["provider_id"] == pressed["callback_query_id"]
    assert edit["provider_id"] == sent["provider_id"]
    shown = box.sandbox.world.messages[int(str(sent["provider_id"]))]
    assert (shown.text, shown.markup) == ("decided: d", None)


async def test_a_command_carries_its_entity_so_that_a_real_bot_finds_it(box: Running, bot: object) -> None:
    await box.api("say", as_=4242, text="/start 7K2Q")
    [line] = await box.until_journalled("sendMessage")
    assert isinstance(line["payload"], dict)
    assert line["payload"]["text"] == "paired with ['7K2Q']"


async def test_a_reaction_reaches_a_real_bot_that_named_it(box: Running, bot: object) -> None:
    said = await box.api("say", as_=OWNER, text="/start x")
    await box.until_journalled("sendMessage")
    await box.api("react", as_=OWNER, message_id=said["message_id"], emoji="👍")
    assert len(await box.until_journalled("sendMessage", 2)) == 2


async def test_a_reaction_is_not_told_to_a_bot_that_did_not_name_it(box: Running) -> None:
    said = await box.api("say", as_=OWNER, text="hello")
    await box.api("react", as_=OWNER, message_id=said["message_id"], emoji="👍")
    assert [kind for _, kind in await updates(box)] == ["message"]
    assert [kind for _, kind in await updates(box, allowed_updates=["message_reaction"])] == ["message_reaction"]
    # The wish holds until another one is made.
    assert [kind for _, kind in await updates(box)] == ["message_reaction"]


# python-telegram-bot warns of its own future each time it builds RetryAfter.
@pytest.mark.filterwarnings("ignore:.*retry_after:telegram.warnings.PTBDeprecationWarning")
async def test_a_real_bot_reads_every_refusal_as_its_own_error(box: Running) -> None:
    async with real_bot(box) as application:
        for fault, error in (("403", Forbidden), ("400", BadRequest), ("401", InvalidToken), ("429", RetryAfter)):
            await box.api("faults", channel="telegram", stage="sendMessage", fault=fault, value=7)
            with pytest.raises(error):
                await application.bot.send_message(1, "x")
        message = await application.bot.send_message(1, "same", reply_markup=KEYS)
        with pytest.raises(BadRequest, match="not modified"):
            await message.edit_text("same", reply_markup=KEYS)
        with pytest.raises(BadRequest, match=r"(?i)reaction_invalid"):
            await message.set_reaction(ReactionTypeEmoji("🧭"))
        assert await message.set_reaction("👍")
        assert (await message.edit_reply_markup(None)) is not None
        assert await application.bot.set_my_commands([("start", "pair")])
        assert await application.bot.send_chat_action(1, "typing")


async def updates(box: Running, token: str = "42:A", **params: object) -> list[tuple[int, str]]:
    status, shape = await box.bot("getUpdates", token, **params)
    assert status == 200, shape
    result = shape["result"]
    assert isinstance(result, list)
    return [(update["update_id"], next(key for key in update if key != "update_id")) for update in result]


async def until_polled(box: Running, *bots: str) -> None:
    """Until the sandbox has a poll of each of these bots with a wish, which it remembers from when it takes it."""
    await until(lambda: set(bots) <= box.sandbox.world.pollings.keys())


async def test_updates_come_again_until_they_are_confirmed(box: Running) -> None:
    for text in "abc":
        await box.api("say", as_=OWNER, text=text)
    first, second, third = [number for number, _ in await updates(box)]
    assert [number for number, _ in await updates(box, limit=2)] == [first, second]
    assert [number for number, _ in await updates(box, offset=second)] == [second, third]
    assert [number for number, _ in await updates(box, offset=first)] == [second, third]
    assert [number for number, _ in await updates(box, offset=-1)] == [third]
    assert await updates(box, offset=third + 100) == []
    await box.api("say", as_=OWNER, text="d")
    assert [number for number, _ in await updates(box)] == [third + 1], "it was to come, and nobody could confirm it"
    assert len(await updates(box, "43:A")) == 4, "another bot has an offset of its own"


async def test_a_long_poll_answers_as_soon_as_there_is_an_update(box: Running) -> None:
    poll = asyncio.create_task(updates(box, timeout=9, allowed_updates=WISH))
    await until_polled(box, "42")
    assert not poll.done()
    await box.api("say", as_=OWNER, text="now")
    assert len(await asyncio.wait_for(poll, LONGEST)) == 1


async def test_a_second_poller_ends_the_older_one_with_409(box: Running) -> None:
    older = asyncio.create_task(box.bot("getUpdates", timeout=9, allowed_updates=WISH))
    other_bot = asyncio.create_task(box.bot("getUpdates", "43:A", timeout=9, allowed_updates=WISH))
    await until_polled(box, "42", "43")
    newer = asyncio.create_task(box.bot("getUpdates", timeout=9))
    status, shape = await asyncio.wait_for(older, LONGEST)
    assert (status, shape["error_code"]) == (409, 409)
    assert str(shape["description"]).startswith("Conflict: terminated by other getUpdates request")
    assert not newer.done()
    assert not other_bot.done()
    await box.api("say", as_=OWNER, text="for both")
    assert (await newer)[0] == (await other_bot)[0] == 200


async def test_a_real_bot_reads_the_409_as_a_conflict(box: Running) -> None:
    async with real_bot(box) as application:
        older = asyncio.create_task(application.bot.get_updates(timeout=9, allowed_updates=WISH))
        await until_polled(box, "42")
        await box.bot("getUpdates", timeout=0)
        with pytest.raises(Conflict):
            await older


async def test_a_press_is_told_only_to_the_bot_that_sent_the_message(box: Running) -> None:
    await box.bot("sendMessage", chat_id=OWNER, text="buttons", reply_markup=KEYS.to_dict())
    pressed = await box.api("press", as_=666, chat=OWNER, message_id=1, data="forged " * 20)
    assert await updates(box, "43:A") == []
    [update] = await updates(box)
    assert update == (pressed["update_id"], "callback_query")
    stranger, _ = await box.bot("answerCallbackQuery", "43:A", callback_query_id=pressed["callback_query_id"])
    sender, _ = await box.bot("answerCallbackQuery", callback_query_id=pressed["callback_query_id"])
    assert (stranger, sender) == (400, 200)


async def test_the_three_kinds_of_body_and_the_query_mean_the_same(box: Running) -> None:
    url = f"{box.url}/bot42:A/sendMessage"
    given = {"chat_id": "77", "text": "a&b=ü", "entities": '[{"type":"bold","offset":0,"length":1}]'}
    parts = aiohttp.FormData(given, default_to_multipart=True)
    async with (
        box.http.post(url, data=given) as form,
        box.http.post(url, data=parts) as multipart,
        box.http.post(url, json={**given, "chat_id": 77, "entities": json.loads(given["entities"])}) as as_json,
        box.http.get(url, params=given) as query,
    ):
        answers = [await answer.json() for answer in (form, multipart, as_json, query)]
    assert all(answer["ok"] for answer in answers), answers
    payloads = [line["payload"] for line in await box.journal()]
    assert all(payload == payloads[0] for payload in payloads)
    assert {json.dumps({**a["result"], "message_id": 0, "date": 0}) for a in answers} == {
        json.dumps({**answers[0]["result"], "message_id": 0, "date": 0})
    }


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("sendMessage", {"text": "x"}, "chat_id is empty"),
        ("sendMessage", {"chat_id": "nobody", "text": "x"}, "chat not found"),
        ("sendMessage", {"chat_id": 1}, "message text is empty"),
        ("sendMessage", {"chat_id": 1, "text": " \n"}, "message text is empty"),
        ("sendMessage", {"chat_id": 1, "text": 5}, 'field "text" must be of type String'),
        ("sendMessage", {"chat_id": 1, "text": "🏃" * 2049}, "message is too long"),
        ("sendMessage", {"chat_id": 1, "text": "x", "reply_markup": "{"}, "can't parse reply markup JSON object"),
        ("sendMessage", {"chat_id": 1, "text": "x", "reply_markup": []}, "object expected as reply markup"),
        (
            "sendMessage",
            {"chat_id": 1, "text": "x", "entities": [{"type": "bold", "offset": 0, "length": 2}]},
            "ends after",
        ),
        ("sendMessage", {"chat_id": 1, "text": "x", "entities": [{"type": "bald", "offset": 0, "length": 1}]}, "type"),
        ("sendMessage", {"chat_id": 1, "text": "x", "reply_parameters": {"message_id": 9}}, "to be replied not found"),
        ("sendMessage", {"chat_id": 1, "text": "x", "reply_parameters": {"message_id": "9"}}, "must be of type Number"),
        ("editMessageText", {"chat_id": 1, "message_id": 9, "text": "x"}, "message to edit not found"),
        ("editMessageText", {"chat_id": 1, "message_id": "nine", "text": "x"}, "must be of type Number"),
        ("editMessageText", {"chat_id": 1, "text": "x"}, 'parameter "message_id" is required'),
        ("answerCallbackQuery", {"callback_query_id": "1"}, "query is too old"),
        ("setMessageReaction", {"chat_id": 1, "message_id": 9}, "message to react not found"),
        ("setMyCommands", {"commands": [{"command": "Start", "description": "x"}]}, "BOT_COMMAND_INVALID"),
        ("getUpdates", {"timeout": "soon"}, 'field "timeout" must be of type Number'),
    ],
)
async def test_bad_input_is_refused_in_the_words_of_the_real_one(
    box: Running, method: str, params: dict[str, object], words: str
) -> None:
    status, shape = await box.bot(method, **params)
    assert (status, shape["ok"], shape["error_code"]) == (400, False, 400)
    assert str(shape["description"]).startswith("Bad Request: ")
    assert words in str(shape["description"])
    assert await box.journal() == []


@pytest.mark.parametrize(
    ("button", "words"),
    [
        ({"text": "x", "callback_data": "d" * 65}, "BUTTON_DATA_INVALID"),
        ({"text": "x", "callback_data": "ü" * 33}, "BUTTON_DATA_INVALID"),
        ({"text": "x"}, "Text buttons are unallowed"),
        ({"text": "", "callback_data": "d"}, "text"),
        ({"text": "x", "url": "javascript:alert(1)"}, "BUTTON_URL_INVALID"),
        ("x", "text"),
    ],
)
async def test_a_button_that_telegram_would_not_show_is_refused(box: Running, button: object, words: str) -> None:
    status, shape = await box.bot("sendMessage", chat_id=1, text="x", reply_markup={"inline_keyboard": [[button]]})
    assert status == 400
    assert words in str(shape["description"])
    fits = {"text": "x", "callback_data": "d" * 64}
    assert (await box.bot("sendMessage", chat_id=1, text="x", reply_markup={"inline_keyboard": [[fits]]}))[0] == 200


async def test_a_text_of_exactly_4096_units_is_accepted(box: Running) -> None:
    status, shape = await box.bot("sendMessage", chat_id=1, text="🏃" * 2048)
    assert status == 200, shape


@pytest.mark.parametrize("path", ["/bot42:A/flyToTheMoon", "/bot42/getMe", "/botx:A/getMe"])
async def test_what_is_no_method_or_no_token_is_404_as_json(box: Running, path: str) -> None:
    async with box.http.post(box.url + path) as answer:
        shape = await answer.json()
    assert (answer.status, shape["ok"], shape["error_code"]) == (404, False, 404)


async def test_a_message_of_a_person_or_another_bot_cannot_be_edited(box: Running) -> None:
    await box.api("say", as_=OWNER, text="mine")
    await box.bot("sendMessage", chat_id=OWNER, text="bot's")
    for token, message_id in (("42:A", 1), ("43:A", 2)):
        status, shape = await box.bot("editMessageText", token, chat_id=OWNER, message_id=message_id, text="x")
        assert (status, shape["description"]) == (400, "Bad Request: message can't be edited")


async def test_dropping_pending_updates_confirms_them(box: Running) -> None:
    await box.api("say", as_=OWNER, text="old")
    assert (await box.bot("deleteWebhook", drop_pending_updates=True))[0] == 200
    assert await updates(box) == []
    await box.api("say", as_=OWNER, text="new")
    assert len(await updates(box)) == 1
