"""Others at the same sandbox: an unmodified python-telegram-bot reads what was delivered, smtplib sends beside us."""

import asyncio
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Any

import pytest
from telegram import Bot, Message, Update
from telegram.error import Conflict
from telegram.ext import Application, ApplicationBuilder, ContextTypes, MessageHandler, filters

from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST


def patient(fleet: Fleet, token: str) -> "ApplicationBuilder[Any, Any, Any, Any, Any, Any]":
    """A client of the sandbox that waits for a slow machine's answers."""
    made = ApplicationBuilder().token(token).base_url(f"{fleet.outside.url}/bot")
    made = made.connect_timeout(LONGEST).read_timeout(LONGEST).write_timeout(LONGEST)
    return made.get_updates_connect_timeout(LONGEST).get_updates_read_timeout(LONGEST)


@asynccontextmanager
async def observer(fleet: Fleet, token: str = "99:observer") -> AsyncIterator["asyncio.Queue[Message]"]:
    """A real Application that polls by its own token; what it was told comes out of the queue."""
    heard: asyncio.Queue[Message] = asyncio.Queue()

    async def hear(update: Update, _: ContextTypes.DEFAULT_TYPE) -> None:
        if update.message is not None:
            heard.put_nowait(update.message)

    made: Application = patient(fleet, token).build()  # type: ignore[type-arg]
    made.add_handler(MessageHandler(filters.ALL, hear))
    await made.initialize()
    await made.start()
    assert made.updater is not None
    await made.updater.start_polling(poll_interval=0, timeout=2)
    try:
        yield heard
    finally:
        await made.updater.stop()
        await made.stop()
        await made.shutdown()


async def quoted(fleet: Fleet, heard: "asyncio.Queue[Message]", number: int) -> Message:
    """What the observer reads of a message that the owner answers with a remark."""
    remark = fresh.words("remark")
    await fleet.outside.say(OWNER, remark, reply_to=number)
    async with asyncio.timeout(LONGEST):
        while (message := await heard.get()).text != remark:
            pass
    assert message.reply_to_message is not None
    return message.reply_to_message


@pytest.mark.every_mode
async def test_telegrams_own_library_reads_message_and_card_and_its_buttons_work(fleet: Fleet) -> None:
    said, chat = fresh.words("observed \u2014 d\u00e9j\u00e0 \U0001f9e1"), fresh.chat()
    async with observer(fleet) as heard:
        answer = await fleet.notify(channel="telegram", message=said)
        read = await quoted(fleet, heard, int(str(answer["delivery"]["delivery_id"])))  # type: ignore[index]  # an object
        assert (read.text, read.chat.id) == (f"health:\n{said}", OWNER)
        assert read.from_user is not None
        assert read.from_user.is_bot

        parked = await fleet.notify(channel="telegram", message=f"{said} to you", recipient=str(chat))
        card = await fleet.outside.card(str(parked["action_id"]))
        shown = await quoted(fleet, heard, card.message_id)
        assert f"{said} to you" in str(shown.text)
        assert shown.reply_markup is not None
        buttons = {b.text: str(b.callback_data) for row in shown.reply_markup.inline_keyboard for b in row}
        assert buttons == card.buttons
        await fleet.outside.press_data(shown.message_id, buttons["Approve"])
        arrived = await fleet.outside.arrived(f"{said} to you", chat)
        # The card is changed beside the sending, and may be so later.
        number = str(card.message_id)
        await fleet.outside.until(
            lambda e: e.method == "editMessageText" and str(e.payload.get("message_id")) == number
        )
        edited = await quoted(fleet, heard, card.message_id)
        assert "Approved." in str(edited.text)
        assert edited.reply_markup is None
        assert arrived.text == f"{said} to you"


async def polls(bot: Bot) -> None:
    async with asyncio.timeout(LONGEST):
        while True:
            await bot.get_updates(timeout=1)


async def test_a_second_poller_of_our_bot_is_told_of_the_conflict(fleet: Fleet) -> None:
    made = patient(fleet, "1:sandbox").build()
    await made.initialize()
    try:
        with pytest.raises(Conflict):
            await polls(made.bot)  # the newer call ends the older one; ours is the older one in turn
    finally:
        await made.shutdown()


async def test_smtplib_speaks_to_the_same_sink_and_mails_stay_apart(fleet: Fleet) -> None:
    said, to = fresh.words("by smtplib"), fresh.address()
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "somebody@people.test", to, "Hello"
    mail.set_content(said)

    def send() -> None:
        with smtplib.SMTP("127.0.0.1", fleet.house.base + 4, timeout=LONGEST) as client:
            client.send_message(mail)

    await asyncio.gather(asyncio.to_thread(send), fleet.notify(channel="email", message=f"ours, not {said}"))
    entry = await fleet.outside.arrived(said, to)
    assert entry.text == said
    assert entry.mail["Subject"] == "Hello"
