"""What comes in from Telegram is handled in turn, and no press of the owner's waits for what strangers write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial, reduce
from itertools import pairwise
from uuid import uuid4

import pytest
from aiohttp import web

from messenger.cards import base
from messenger.cards.questions import question
from messenger.channels.telegram import TelegramChannel
from messenger.inbound import poller
from messenger.inbound import updates as updates_inbound
from messenger.maintenance import rechecker
from messenger.storage import strangers, updates
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.timings import STANDARD
from shared.db.pool import Record
from shared.storage import contacts, pairings
from switchboard import incoming
from tests.integration.daemon.test_routing import there
from tests.integration.house import House
from tests.rig import fresh
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = """
INSERT INTO messenger.updates (bot, update_id, body)
SELECT $1, n, jsonb_build_object('update_id', n, 'message', jsonb_build_object('message_id', n, 'date', 1790000000,
    'text', $2 || n, 'from', jsonb_build_object('id', 77, 'first_name', 'Sam'),
    'chat', jsonb_build_object('id', 77, 'type', 'private')))
FROM generate_series(1, 300) n
"""
PRESSES = """
INSERT INTO messenger.updates (bot, update_id, body)
SELECT $1, n, jsonb_build_object('callback_query', jsonb_build_object('id', $2 || n, 'data', 'x', 'from',
    jsonb_build_object('id', 77)))
FROM generate_series(1, 300) n
"""
PRESS = """
INSERT INTO messenger.updates (bot, update_id, body)
VALUES ($1, 301, jsonb_build_object('callback_query', jsonb_build_object('id', '1', 'data', 'x', 'from',
    jsonb_build_object('id', $2::bigint))))
"""
HANDLED = "SELECT handled_at FROM messenger.updates WHERE bot = $1 AND update_id = $2 AND handled_at IS NOT NULL"
OTHER_BOT = "4243"
UPDATE = "INSERT INTO messenger.updates (bot, update_id, body) VALUES ($1, $2, $3)"
A_MINUTE_AGO = "UPDATE messenger.updates SET received_at = received_at - interval '1 minute' WHERE bot = $1"
OUTCOMES_OF = "SELECT outcome FROM messenger.updates WHERE bot = $1 AND update_id = $2"
OUTCOMES = "SELECT outcome FROM messenger.updates WHERE bot = $1 ORDER BY update_id"
# Deeper than anything is read.
DEEP = reduce(lambda inside, _: [inside], range(200), list[object]())
WRITTEN = {"message_id": 1, "text": "hi", "date": 1790000000, "from": {"id": 77}, "chat": {"id": 77, "type": "private"}}
UPDATES = (
    {"callback_query": {"id": "1", "data": "x", "from": {"id": 77}, "deep": DEEP}},
    {"message": {**WRITTEN, "deep": DEEP}},
    {"callback_query": {"id": "1", "data": "x", "from": {"id": 77}}},
    {"message": WRITTEN},
)
AFTER_THE_PRESS = """
SELECT count(*) FROM messenger.updates m JOIN messenger.updates p ON p.bot = m.bot AND p.update_id = 301
WHERE m.bot = $1 AND m.update_id <= 300 AND m.handled_at > p.handled_at
"""


@pytest.mark.parametrize(("bot", "before"), [("4242", MESSAGES), ("4246", PRESSES)], ids=["wrote", "pressed"])
async def test_a_press_does_not_wait_for_all_that_strangers_did_before_it(
    still_house: House, message: str, bot: str, before: str
) -> None:
    worker = still_house.worker()
    telegram, stopping = worker.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    assert not SANDBOX_TOKEN.startswith(bot)
    await still_house.sql.execute(before, bot, message)
    handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, bot, stopping))
    try:
        await eventually(partial(still_house.sql.fetchrow, HANDLED, bot, 1))
        await still_house.sql.execute(PRESS, bot, OWNER)
        await eventually(partial(still_house.sql.fetchrow, HANDLED, bot, 301))
        await eventually(partial(still_house.sql.fetchrow, HANDLED, bot, 300))
    finally:
        stopping.set()
        await handling
    assert await still_house.sql.fetchval(AFTER_THE_PRESS, bot) > 0


async def test_what_fails_stops_nothing_after_it_and_is_over_after_a_minute(still_house: House) -> None:
    worker = still_house.worker()
    telegram, stopping = worker.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    for number, body in enumerate(UPDATES, 1):
        await still_house.sql.execute(UPDATE, OTHER_BOT, number, body)
    handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, OTHER_BOT, stopping))
    try:
        for number in (3, 4):
            await eventually(partial(still_house.sql.fetchrow, HANDLED, OTHER_BOT, number))
        for number in (1, 2):
            assert await still_house.sql.fetchrow(HANDLED, OTHER_BOT, number) is None, "another try may mend it"
        await still_house.sql.execute(A_MINUTE_AGO, OTHER_BOT)

        async def over(number: int) -> object:
            await rechecker.look_again(worker.context)  # whose look is the loop's only tick
            return await still_house.sql.fetchrow(HANDLED, OTHER_BOT, number)

        for number in (1, 2):
            await eventually(partial(over, number))
    finally:
        stopping.set()
        await handling
    rows = await still_house.sql.fetch(OUTCOMES, OTHER_BOT)
    assert [row["outcome"] for row in rows] == ["failed", "failed", "not_ours", "ingested"]


HELD_BOT = "4250"
OWNER = 5_000_000_000_000_001
HOLD = "LOCK TABLE shared.questions IN ACCESS EXCLUSIVE MODE"


async def test_a_press_on_what_somebody_holds_keeps_no_other_press_waiting(still_house: House) -> None:
    worker = still_house.worker()
    telegram, stopping = worker.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    on_a_question = base.packed(str(uuid4()), question.DISMISSED, "x" * 22)
    by_owner = {"id": "1", "from": {"id": OWNER}, "message": {"message_id": 9, "chat": {"id": OWNER}}}
    for number, data in enumerate((on_a_question, "x"), 1):
        await still_house.sql.execute(UPDATE, HELD_BOT, number, {"callback_query": {**by_owner, "data": data}})
    async with still_house.sql.transaction():
        await still_house.sql.execute(HOLD)
        handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, HELD_BOT, stopping))
        try:
            await eventually(partial(still_house.sql.fetchrow, HANDLED, HELD_BOT, 2))
        finally:
            stopping.set()
            await handling


DEAF_BOT = "4269"
HOLD_COMMANDS = "LOCK TABLE shared.authority, messenger.pairings IN SHARE MODE"


async def test_words_of_the_owners_that_fail_are_said_to_and_nobody_elses(still_house: House) -> None:
    worker = still_house.worker()
    telegram, stopping = worker.channels["telegram"], asyncio.Event()
    assert isinstance(telegram, TelegramChannel)
    for number, (who, text) in enumerate(((77, "/start 123456"), (OWNER, "/pause")), 1):
        written = {**WRITTEN, "text": text, "from": {"id": who}, "chat": {"id": who, "type": "private"}}
        await still_house.sql.execute(UPDATE, DEAF_BOT, number, {"message": written})
    async with still_house.sql.transaction():
        await still_house.sql.execute(HOLD_COMMANDS)
        handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, DEAF_BOT, stopping))
        try:
            told = await until(lambda: still_house.sent(updates_inbound.FAILED))
            # Whose turn came last has had it.
            await eventually(partial(still_house.sql.fetchrow, f"{OUTCOMES_OF} AND outcome = 'failed'", DEAF_BOT, 1))
        finally:
            stopping.set()
            await handling
    assert [line["to"] for line in told] == [str(OWNER)]
    assert still_house.sent(updates_inbound.FAILED) == told


NOTICES = """
SELECT count(*) FROM messenger.deliveries WHERE card_kind = 'strangers' AND address = $1
"""
COUNTED = "SELECT messages, bytes FROM messenger.strangers WHERE sender = $1"
NOBODY_YET = "DELETE FROM messenger.strangers"
THE_DAY_BEFORE = "UPDATE messenger.strangers SET first_at = first_at - interval '25 hours'"


def said(number: int, sender: int, text: str, **more: object) -> dict[str, object]:
    """An update as Telegram brings it, with a great deal that nobody needs."""
    who = {"id": sender, "first_name": "Sam", "language_code": "en"}
    message = {"message_id": number, "date": 1790000000, "text": text, "from": who, "chat": {"id": sender}, **more}
    return {"update_id": number, "message": {**message, "entities": [{"type": "bold"}] * 300, "quote": {"text": text}}}


async def beyond(house: House, *came: dict[str, object]) -> set[int]:
    async with house.context("messenger").db.work() as connection:
        return await strangers.beyond(connection, updates.pared(came))


async def test_of_an_update_only_what_is_used_is_kept() -> None:
    [read] = updates.pared([said(1, 77, "hi\0"), {"update_id": True}, "nothing"])
    chat, who = {"id": 77}, {"id": 77, "first_name": "Sam"}
    kept = {"message_id": 1, "date": 1790000000, "text": "hi\ufffd", "quote": {"text": "hi\ufffd"}}
    assert read["message"] == {**kept, "from": who, "chat": chat}
    [odd] = updates.pared([{"update_id": 2, "message": {"text": ["a"], "from": 3}, "poll": {}}])
    assert odd == {"update_id": 2, "message": {"text": None, "from": 3}}


async def test_a_stranger_has_so_many_messages_and_bytes_a_day_and_the_owner_is_told_once(still_house: House) -> None:
    owner = await still_house.sql.fetchval("SELECT address FROM messenger.owner_at WHERE channel = 'telegram'")
    before = await still_house.sql.fetchval(NOTICES, owner)
    await still_house.sql.execute(NOBODY_YET)
    one, other, many = fresh.chat(), fresh.chat(), strangers.MOST_MESSAGES
    came = [said(n, one, f"{n}") for n in range(many + 5)]
    assert await beyond(still_house, *came) == set(range(many, many + 5))
    assert await beyond(still_house, said(1, other, "x" * 4000), said(2, other, "y" * 17000), said(3, other, "z")) == {
        2
    }
    assert await beyond(still_house, said(4, other, "y" * 21000)) == {4}
    assert await still_house.sql.fetchval(COUNTED, "") == 7
    assert await still_house.sql.fetchval(NOTICES, owner) == before + 1, "told once"
    async with still_house.context("messenger").db.work() as connection:
        for _ in range(many + 2):
            await strangers.takes_mail(connection, "one@flood.example", 10, vouched=False)
    assert await still_house.sql.fetchval(NOTICES, owner) == before + 2, "told once of each channel"
    await still_house.sql.execute(THE_DAY_BEFORE)
    assert await beyond(still_house, said(1, one, "the next day")) == set()
    assert await still_house.sql.fetchval(COUNTED, str(one)) == 1


async def test_so_many_strangers_a_day_are_let_in_and_whoever_is_known_always(still_house: House) -> None:
    await still_house.sql.execute(NOBODY_YET)
    known, first = fresh.chat(), fresh.chat()
    async with still_house.sql.transaction():
        contact = await contacts.add_contact(still_house.sql, "Anna", [])
        await contacts.add_address(still_house.sql, contact, "telegram", str(known), primary=True)
    crowd = [said(0, first, "I was here before")] + [
        said(n, fresh.chat(), "x") for n in range(1, strangers.MOST_SENDERS + 3)
    ]
    assert await beyond(still_house, *crowd) == {
        strangers.MOST_SENDERS,
        strangers.MOST_SENDERS + 1,
        strangers.MOST_SENDERS + 2,
    }
    assert await beyond(still_house, said(1, known, "x" * 30000), said(2, first, "me again")) == set()
    assert await beyond(still_house, *(said(n, known, "x") for n in range(40))) == set()
    press = {"update_id": 9, "callback_query": {"id": "1", "data": "x", "from": {"id": fresh.chat()}}}
    assert await beyond(still_house, press) == set(), "a press is refused one by one"


async def test_who_writes_as_one_chat_takes_no_place_of_another(still_house: House) -> None:
    await still_house.sql.execute(NOBODY_YET)
    many, stand_in, other = strangers.MOST_MESSAGES, 1087968824, said(99, 1087968824, "x", sender_chat={"id": -1002})
    loud = [said(n, stand_in, "x", sender_chat={"id": -1001}) for n in range(many + 1)]
    assert await beyond(still_house, *loud, other) == {many}


async def test_who_floods_the_mailbox_takes_no_place_on_telegram(still_house: House) -> None:
    await still_house.sql.execute(NOBODY_YET)
    async with still_house.context("messenger").db.work() as connection:
        taken = [
            await strangers.takes_mail(connection, f"{n}@flood.example", 10, vouched=False)
            for n in range(strangers.MOST_SENDERS + 1)
        ]
    assert taken == [True] * strangers.MOST_SENDERS + [False]
    assert await beyond(still_house, said(1, fresh.chat(), "hello")) == set()


async def test_a_good_pairing_code_is_heard_through_any_flood(still_house: House) -> None:
    await still_house.sql.execute(NOBODY_YET)
    one, code = fresh.chat(), fresh.words("code")
    await beyond(still_house, *(said(n, one, "x") for n in range(30)))
    await still_house.sql.execute("DELETE FROM messenger.pairings")
    assert await beyond(still_house, said(1, one, f"/start {code}")) == {1}
    async with still_house.context("messenger").db.work() as connection:
        await pairings.offer(connection, code, STANDARD.pairing)
    assert await beyond(still_house, said(2, one, f"/start {code}"), said(3, one, "not so")) == {3}
    await still_house.sql.execute("DELETE FROM messenger.pairings")


async def test_of_what_is_only_counted_one_row_stays(still_house: House) -> None:
    bot = "4244"
    for highest in (5, 9, 9):
        async with still_house.context("messenger").db.work() as connection:
            await updates.count(connection, bot, highest)
    rows = await still_house.sql.fetch("SELECT update_id, body, outcome FROM messenger.updates WHERE bot = $1", bot)
    assert [(row["update_id"], row["body"], row["outcome"]) for row in rows] == [(9, {}, "counted")]
    async with still_house.context("messenger").db.work() as connection:
        assert await updates.next_offset(connection, bot, STANDARD.update_numbers) == 10


@asynccontextmanager
async def provider(
    answer: Callable[[web.Request], Awaitable[web.Response]], bot: str
) -> AsyncIterator[TelegramChannel]:
    """A bot at a server of our own that answers every call so."""
    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    telegram = TelegramChannel(f"http://127.0.0.1:{runner.addresses[0][1]}", f"{bot}:x")
    try:
        yield telegram
    finally:
        await telegram.close()
        await runner.cleanup()


async def test_a_server_with_nothing_new_is_not_asked_at_once_and_one_that_refuses_is_said(still_house: House) -> None:
    asked, refuses, unheard, stopping = list[str](), asyncio.Event(), dict[str, str](), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if refuses.is_set():
            return web.json_response({"ok": False, "error_code": 409, "description": "Conflict"}, status=409)
        return web.json_response({"ok": True, "result": []})

    async with provider(answer, "4244") as telegram:
        polling = asyncio.ensure_future(poller.poll(still_house.worker(), telegram, "4244", unheard, stopping))
        try:
            await eventually(lambda: asyncio.sleep(0, bool(asked)))
            await asyncio.sleep(0.5)  # in which one that is asked without a pause is asked hundreds of times
            assert len(asked) < 5
            refuses.set()
            await eventually(lambda: asyncio.sleep(0, unheard))
            assert unheard["4244"].startswith("Nothing that you press or write in Telegram arrives: Conflict")
            refuses.clear()
            await eventually(lambda: asyncio.sleep(0, not unheard))
        finally:
            stopping.set()
            await polling


ALBUM_BOT = "4251"
WENT = "SELECT thread, routed_to FROM switchboard.inbox WHERE endpoint_identity = $1 ORDER BY received_at"
CAME = "SELECT text, quoted, attachments FROM switchboard.inbox WHERE sender = $1 ORDER BY text"


def photo(number: int, sender: int, album: str, **more: object) -> dict[str, object]:
    """An update that brings one photo of an album."""
    who = {"id": sender, "first_name": "Sam"}
    sizes = [{"file_id": f"small {number}"}, {"file_id": str(number)}]
    message = {"message_id": number, "date": 1790000000, "from": who, "chat": {"id": sender}, "photo": sizes}
    return {"update_id": number, "message": {**message, "media_group_id": album, **more}}


def files(row: Record) -> list[str]:
    return [file["file_id"] for file in row["attachments"]]


async def polled(house: House, bot: str, numbers: range, *brought: list[dict[str, object]]) -> None:
    """Have a provider bring updates to the real poller, and all of them handled."""
    worker, stopping, left = house.worker(), asyncio.Event(), list(brought)

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0.3)  # in which what came before is handled, if it does not wait
        came = left.pop(0) if left and "getUpdates" in request.path else []
        return web.json_response({"ok": True, "result": came})

    async with provider(answer, bot) as telegram:
        polling = asyncio.ensure_future(poller.poll(worker, telegram, bot, {}, stopping))
        handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, bot, stopping))
        try:
            for number in numbers:
                await eventually(partial(house.sql.fetchrow, HANDLED, bot, number))
        finally:
            stopping.set()
            await asyncio.gather(polling, handling)


async def test_an_album_is_one_message_with_all_its_files_however_they_come(still_house: House, message: str) -> None:
    one, other = fresh.chat(), fresh.chat()
    # The provider brings the first alone, words and all; somebody else's photo names the same album.
    rest = [
        photo(2, other, "7", quote={"text": "this one"}),
        photo(3, one, "7", caption=message),
        photo(4, one, "8"),
        photo(5, one, "7"),
    ]
    await polled(still_house, ALBUM_BOT, range(1, 6), [photo(1, one, "7")], rest)
    first, second = await still_house.sql.fetch(CAME, str(one))
    assert (first["text"], files(first)) == ("", ["4"])
    assert (second["text"], files(second)) == (message, ["1", "3", "5"])
    [theirs] = await still_house.sql.fetch(CAME, str(other))
    assert (files(theirs), theirs["quoted"]) == (["2"], "this one")


A_REPLY = {"reply_to_message": {"message_id": 2, "media_group_id": "7"}}


@pytest.mark.parametrize(("bot", "more"), [("4256", A_REPLY), ("4257", {})], ids=["a reply", "no reply"])
async def test_words_after_an_album_follow_it_to_its_butler(
    still_house: House, message: str, bot: str, more: dict[str, object]
) -> None:
    """Telegram hands over both at once where nobody has asked for a while."""
    await there(still_house)
    album = [photo(1, OWNER, "7", caption=f"/greeter {message} bill"), photo(2, OWNER, "7")]
    await polled(still_house, bot, range(1, 4), [*album, said(3, OWNER, f"{message} and pay it", **more)])
    while await incoming.route_waiting(still_house.context("switchboard")):
        pass
    rows = await still_house.sql.fetch(WENT, bot)
    assert [(row["thread"], row["routed_to"]) for row in rows] == [(f"{OWNER}:{n}", "greeter") for n in (1, 3)]


async def handled_each(house: House, bot: str, said: list[dict[str, object]], ends: tuple[int, ...]) -> None:
    """Have updates of photos handled; those up to each number in `ends` come together, a minute ago."""
    worker, stopping = house.worker(), asyncio.Event()
    telegram = worker.channels["telegram"]
    assert isinstance(telegram, TelegramChannel)
    handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, bot, stopping))
    try:
        for begin, end in pairwise((0, *ends)):
            # At one moment, or a part would be handled before the next is there.
            async with house.sql.transaction():
                for update in (one for one in said if begin < int(str(one["update_id"])) <= end):
                    await house.sql.execute(UPDATE, bot, update["update_id"], *updates.pared([update]))
                await house.sql.execute(A_MINUTE_AGO, bot)
            worker.context.wakes["updates"]()
            await eventually(partial(house.sql.fetchrow, HANDLED, bot, end))
    finally:
        stopping.set()
        await handling


async def test_an_answer_to_any_photo_answers_its_album(still_house: House, message: str) -> None:
    one = fresh.chat()
    album = [photo(1, one, "7"), photo(2, one, "7", caption=f"{message} album"), photo(3, one, "7")]
    answer = said(4, one, message, reply_to_message={"message_id": 3, "media_group_id": "7"})
    await handled_each(still_house, "4255", [*album, answer], (3, 4))
    row = await still_house.row("SELECT reply_to FROM switchboard.inbox WHERE text = $1", message)
    assert row["reply_to"] == f"{one}:2"


async def test_what_changes_an_album_is_handled_after_it(still_house: House, message: str) -> None:
    """Telegram hands over both at once where nobody has asked for a while."""
    one, worker = fresh.chat(), still_house.worker()
    said = [
        photo(1, one, "7", caption=f"{message} pay"),
        photo(2, one, "7"),
        edited(3, 1, one, "7", f"{message} do NOT pay"),
    ]
    for update in said:
        await still_house.sql.execute(UPDATE, "4254", update["update_id"], *updates.pared([update]))
    async with worker.context.db.work() as connection:
        assert await updates.oldest_unhandled(connection, "4254", timedelta(minutes=1)) is None
    await handled_each(still_house, "4254", [edited(4, 1, one, "7", f"{message} do not pay")], (4,))
    kinds = "SELECT kind FROM switchboard.inbox WHERE sender = $1 ORDER BY received_at"
    rows = await still_house.sql.fetch(kinds, str(one))
    assert [row["kind"] for row in rows] == ["message", "edit", "edit"]


def edited(update: int, number: int, sender: int, album: str, caption: str) -> dict[str, object]:
    """An update that edits the caption of one photo."""
    sent = photo(number, sender, album, caption=caption, edit_date=1790000009)
    return {"update_id": update, "edited_message": sent["message"]}


async def test_all_captions_of_an_album_count_and_one_put_in_later_is_its_message_s(
    still_house: House, message: str
) -> None:
    one = fresh.chat()
    said = [
        *(photo(n, one, "7", caption=f"{message} {n}") for n in (1, 2)),
        *(photo(n, one, "8") for n in (3, 4)),
        edited(5, 4, one, "8", message),
    ]
    await handled_each(still_house, "4252", said, (2, 4, 5))
    rows = await still_house.sql.fetch("SELECT text, thread FROM switchboard.inbox WHERE sender = $1", str(one))
    assert {(row["text"], row["thread"]) for row in rows} == {
        (f"{message} 1\n\n{message} 2", f"{one}:1"),
        ("", f"{one}:3"),
        (message, f"{one}:3"),
    }


async def test_an_edit_of_any_photo_is_one_of_its_album_with_all_words_and_files_as_they_are_now(
    still_house: House, message: str
) -> None:
    one, other = fresh.chat(), fresh.chat()
    said = [
        photo(1, one, "7"),
        photo(2, other, "7", caption="somebody else's"),
        *(photo(n, one, "7", caption=f"{message} {n}") for n in (3, 4)),
        edited(5, 4, one, "7", f"{message} NOT 4"),
        edited(6, 1, one, "7", f"{message} 1"),
    ]
    await handled_each(still_house, "4253", said, (4, 5, 6))
    text = "SELECT * FROM switchboard.inbox WHERE sender = $1 AND kind = 'edit' ORDER BY received_at"
    first, second = await still_house.sql.fetch(text, str(one))
    assert (first["text"], first["thread"]) == (f"{message} 3\n\n{message} NOT 4", f"{one}:3")
    assert (second["text"], second["thread"]) == (f"{message} 1\n\n{message} 3\n\n{message} NOT 4", f"{one}:3")
    assert files(second) == ["1", "3", "4"]
