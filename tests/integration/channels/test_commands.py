"""What the owner writes to the bot is obeyed or answered, and what anybody else writes is not."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final

import pytest
import pytest_asyncio

from messenger.channels.telegram import TelegramChannel
from messenger.inbound import commands
from messenger.inbound import updates as updates_inbound
from messenger.storage import updates
from shared.db.pool import Record
from shared.storage import brakes, contacts
from shared.storage.brakes import Scope
from tests.integration.house import House, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import friend
from tests.rig import fresh
from tests.rig.cluster import Cluster
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOT: Final = "1"
GROUP: Final = -4242
# Below those of the provider, which go on counting from the highest.
NUMBERS: Final = count(-1, -1)
BROUGHT: Final = "INSERT INTO messenger.updates (bot, update_id, body) VALUES ($1, $2, $3)"
EVENTS: Final = """
SELECT event_type, actor, array(SELECT jsonb_object_keys(detail) ORDER BY 1) AS told FROM shared.approval_events
WHERE event_type IN ('brake_on', 'brake_off') ORDER BY seq
"""
REFUSED: Final = "SELECT count(*) FROM shared.approval_events WHERE event_type = 'refused' AND reason = $1"
SAID: Final = "SELECT count(*) FROM switchboard.inbox WHERE text = $1"
LIVE: Final = "UPDATE shared.channels SET realm = 'mail' WHERE channel = 'email'"
NOT_LIVE: Final = "UPDATE shared.channels SET realm = 'sandbox' WHERE channel = 'email'"
CARD_FAILED: Final = "SELECT status = 'failed' FROM messenger.deliveries WHERE action_id = $1"
NO_BRAKE: Final = "DELETE FROM shared.brakes"
UNTOLD: Final = "DELETE FROM messenger.rate_limits WHERE starts_with(key, 'unread:')"
TOLD: Final = "SELECT count(*) FROM messenger.rate_limits WHERE starts_with(key, 'unread:')"
A_MINUTE_OLDER: Final = "UPDATE shared.brakes SET made_at = made_at - interval '1 minute'"
AGO: Final = "UPDATE messenger.updates SET received_at = clock_timestamp() - $2::interval WHERE update_id = $1"
STRANGERS: Final = """
INSERT INTO messenger.updates (bot, update_id, body)
SELECT $1, n, jsonb_build_object('update_id', n, 'message', jsonb_build_object('message_id', n, 'date', 1790000000,
    'text', $2 || n, 'from', jsonb_build_object('id', 77), 'chat', jsonb_build_object('id', 77, 'type', 'private')))
FROM generate_series(1, 300) n
"""
AFTER_IT: Final = """
SELECT count(*) FROM messenger.updates m JOIN messenger.updates c ON c.bot = m.bot AND c.update_id = 301
WHERE m.bot = $1 AND m.update_id <= 300 AND m.handled_at > c.handled_at
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def own(cluster: Cluster) -> AsyncIterator[House]:
    """A house of its own at work, whose brake disturbs nobody else."""
    async with opened(cluster) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def as_before(own: House) -> AsyncIterator[None]:
    """Nothing is held and nothing was said, before and after each."""
    yield
    await own.sql.execute(NO_BRAKE)
    await own.sql.execute(UNTOLD)
    await own.sql.execute(NOT_LIVE)


async def says(house: House, text: str, who: int = OWNER, chat: int | None = None) -> str:
    """Somebody writes to the bot; what came of the update."""
    told = await house.box.api("say", as_=who, chat=chat or who, text=text)
    return str((await house.handled(told["update_id"]))["outcome"])


async def brings(house: House, text: str, **more: object) -> str:
    """An update as the provider might bring it, in the owner's chat; what came of it."""
    given = more.pop("number", None)
    number = given if isinstance(given, int) else next(NUMBERS)
    person = {"id": OWNER, "first_name": "Olga", "type": "private"}
    message = {"message_id": 1, "date": int(time.time()), "text": text, "from": person, "chat": person, **more}
    kind = str(message.pop("kind", "message"))
    [kept] = updates.pared([{"update_id": -number, kind: message}])
    await house.sql.execute(BROUGHT, BOT, number, kept)
    return str((await house.handled(number))["outcome"])


def answers(house: House, chat: int = OWNER) -> list[str]:
    """What the bot has said in a chat of its own accord: no card, and nothing of a butler's."""
    said = [line["payload"] for line in house.box.sandbox.lines if line["to"] == str(chat)]
    sent = [one for one in said if isinstance(one, Mapping) and one["method"] == "sendMessage"]
    return [str(one["text"]) for one in sent if "reply_markup" not in one]


async def answered(house: House, text: str) -> str:
    """The owner writes; the answer."""
    before = len(answers(house))
    await says(house, text)
    await until(lambda: len(answers(house)) > before or None)
    return answers(house)[-1]


async def owner_of(house: House) -> str:
    found = await contacts.owner(house.sql)
    assert found is not None
    return str(found["id"])


async def on(house: House) -> list[Record]:
    return await brakes.standing(house.sql)


async def test_the_owner_pauses_and_resumes_in_telegram_as_on_the_command_line(own: House, message: str) -> None:
    assert await answered(own, "/pause") == f"▣ {commands.PAUSED}"
    [brake] = await on(own)
    assert (brake["butler"], brake["contact_id"], brake["channel"], brake["owner_too"]) == (None, None, None, False)
    assert "Already paused since 2" in await answered(own, " /Pause@Some_bot!\n")
    assert len(await on(own)) == 1
    held = await own.notify(message=message, contact_id=await friend(own))
    assert held["status"] == "queued"
    assert await answered(own, "/resume") == f"▣ {commands.RESUMED}"
    assert await on(own) == []
    await own.settled(held["notification_id"], "ok")
    assert await answered(own, "/resume") == f"▣ {commands.NOT_PAUSED}"
    await brakes.lift_one(own.sql, await brakes.put_on(own.sql, Scope(), await owner_of(own)), await owner_of(own))
    here, there = (await own.sql.fetch(EVENTS))[:2], (await own.sql.fetch(EVENTS))[-2:]
    assert here == there, "the audit has the same lines as for the command line"


async def test_what_the_owner_puts_on_elsewhere_stays_where_it_is_narrower(own: House) -> None:
    owner = await owner_of(own)
    await brakes.put_on(own.sql, Scope(butler="greeter"), owner)
    assert commands.HELD_FOR_SOME in await answered(own, "/pending")
    await brakes.put_on(own.sql, Scope(), owner)
    assert commands.HELD in await answered(own, "/pending")
    await brakes.restored(own.sql, "owner", owner)
    await until(lambda: [text for text in answers(own) if "backup" in text] or None)
    said = await answered(own, "/resume")
    assert said.startswith(f"▣ {commands.RESUMED} Another brake is still on. ")
    assert said.endswith(commands.RESTORED_STAYS)
    assert {(row["butler"], row["reason"]) for row in await on(own)} == {("greeter", None), (None, "restored")}


STRANGER: Final = 9000000077


@pytest.mark.parametrize("text", updates.COMMANDS)
@pytest.mark.parametrize(("who", "chat"), [(STRANGER, STRANGER), (STRANGER, GROUP), (OWNER, GROUP)])
async def test_what_is_not_said_by_the_owner_alone_with_the_bot_is_a_message_like_any(
    own: House, text: str, who: int, chat: int
) -> None:
    await brakes.put_on(own.sql, Scope(), await owner_of(own))
    before, told, kept = answers(own, chat), answers(own), await own.sql.fetchval(SAID, text)
    assert await says(own, text, who, chat) == "ingested"
    assert (answers(own, chat), answers(own), len(await on(own))) == (before, told, 1)
    assert await own.sql.fetchval(SAID, text) == kept + 1


@pytest.mark.parametrize(
    "more",
    [
        {"forward_origin": {"type": "user", "sender_user": {"id": STRANGER}}},
        {"forward_origin": {"type": "hidden_user"}},
        {"forward_date": 1790000000},
        {"via_bot": {"id": STRANGER}},
        {"kind": "edited_message"},
        {"kind": "channel_post"},
        {"kind": "business_message"},
        {"from": {"id": STRANGER}},
        {"chat": {"id": STRANGER, "type": "private"}},
        {"chat": {"id": OWNER, "type": "group"}},
        {"chat": None},
        {"from": None},
        {"sender_chat": {"id": GROUP}},
        {"date": int(time.time()) - 600},
        {"date": int(time.time()) + 3600},
        {"date": "now"},
        {"date": 10**30},
    ],
    ids=str,
)
async def test_what_is_forwarded_edited_forged_or_old_resumes_nothing(own: House, more: dict[str, object]) -> None:
    await brakes.put_on(own.sql, Scope(), await owner_of(own))
    await brings(own, "/resume", **more)
    assert len(await on(own)) == 1


async def test_an_old_word_lifts_no_brake_that_was_put_on_after_it(own: House) -> None:
    """As one that waited at the provider while the Messenger was away, or that a provider brings again."""
    await brakes.put_on(own.sql, Scope(), await owner_of(own))
    written = int(time.time()) - 30
    await brings(own, "/resume", date=written)
    assert len(await on(own)) == 1
    await until(lambda: answers(own)[-1].startswith(f"▣ {commands.PAUSED_SINCE}") or None)
    await own.sql.execute(A_MINUTE_OLDER)
    await brings(own, "/resume", date=written)
    assert await on(own) == []


async def test_a_command_that_waits_when_a_backup_is_put_back_is_let_go(still_house: House) -> None:
    number, person = next(NUMBERS), {"id": OWNER}
    message = {"text": "/resume", "date": int(time.time()), "from": person, "chat": person}
    await still_house.sql.execute(BROUGHT, "4245", number, {"update_id": 1, "message": message})
    async with still_house.context("messenger").db.work() as connection:
        await updates.let_go_words(connection)
    row = await still_house.row("SELECT outcome FROM messenger.updates WHERE bot = '4245'")
    assert row["outcome"] == "restored"


async def test_the_sandbox_neither_pauses_nor_resumes_nor_shows_what_is_live(own: House, message: str) -> None:
    asked = await own.notify(message=message, contact_id=await own.contact("Anna"))
    await own.sql.execute("UPDATE shared.notifications SET realm = 'mail' WHERE id = $1", asked["notification_id"])
    await own.sql.execute(LIVE)
    assert await answered(own, "/pause") == f"▣ {commands.NOT_HERE}"
    assert await on(own) == []
    await brakes.put_on(own.sql, Scope(), await owner_of(own))
    assert await answered(own, "/resume") == f"▣ {commands.NOT_HERE}"
    assert len(await on(own)) == 1
    assert "Anna" not in await answered(own, "/pending")
    assert await own.sql.fetchval(REFUSED, "A command in the sandbox while a channel is live.") == 1
    await own.sql.execute("UPDATE shared.pending_actions SET status = 'cancelled' WHERE id = $1", asked["action_id"])


async def test_pending_lists_what_waits_and_help_what_there_is(own: House, message: str) -> None:
    assert "Nothing needs your approval." in await answered(own, "/pending")
    chat = str(fresh.chat())
    anna = await own.contact("Anna", telegram=chat)
    for n in range(2):
        await own.notify("health" if n else "greeter", message=f"{message} n{n}", contact_id=anna)
    listed = await answered(own, "/pending")
    assert listed.startswith("▣ 2 messages need your approval:\n\n1. Greeter to Anna (")
    assert f"2. Health to Anna ({chat}) on Telegram, {len(message) + 3} characters\n" in listed
    assert message not in listed
    for text in ("/help", "/start"):
        said = await answered(own, text)
        assert all(f"/{name} - " in said for name in commands.MENU)


async def test_what_was_refused_before_the_owner_started_the_bot_is_asked_after_it(own: House, message: str) -> None:
    await own.fault(message, "403", times=1)
    asked = await own.notify(message=message, contact_id=await own.contact("Anna", telegram=str(fresh.chat())))
    await eventually(lambda: own.sql.fetchval(CARD_FAILED, asked["action_id"]))
    assert own.cards(message) == []
    await answered(own, "/start")
    [card] = await until(lambda: own.cards(message))
    assert (await own.press(card, "no"))["outcome"] == "denied"


async def test_what_the_owner_writes_is_answered_once_in_a_while_and_nobody_else_is(own: House) -> None:
    words, anna = fresh.words("hello"), fresh.chat()
    await own.contact("Anna", telegram=str(anna))
    before = len(answers(own))
    for who, chat in ((anna, anna), (STRANGER, STRANGER), (OWNER, GROUP), (STRANGER, GROUP)):
        assert await says(own, words, who, chat) == "ingested"
        assert answers(own, chat) == [] or chat == OWNER
    assert len(answers(own)) == before
    assert await answered(own, words) == f"▣ {commands.UNREAD}"
    assert [await says(own, text) for text in (words, f"{words} again", "/pause now", "/approve")] == ["ingested"] * 4
    assert await own.sql.fetchval(SAID, words) == 6, "the butlers have it as before"
    assert await answered(own, "/help") == f"▣ {commands.HELP}"
    assert len(answers(own)) == before + 2
    assert await on(own) == []


@pytest.mark.parametrize("kind", updates.UNREAD_KINDS)
async def test_what_is_of_no_kind_that_is_read_is_answered_once_in_a_while(own: House, kind: str) -> None:
    before = len(answers(own))
    assert await brings(own, "", pinned_message={"message_id": 3}) == "ignored"
    assert await brings(own, "", chat={"id": GROUP, "type": "group"}, **{kind: {"id": "1"}}) == "ignored"
    assert await own.sql.fetchval(TOLD) == 0, "no service message is answered, nor what is in a group"
    assert [await brings(own, "", **{kind: {"id": "1"}}) for _ in range(2)] == ["ignored"] * 2
    await until(lambda: len(answers(own)) > before or None)
    assert answers(own)[before:] == [f"▣ {commands.UNREAD}"]


async def test_what_is_forwarded_right_after_words_goes_with_them_and_is_not_answered(own: House, message: str) -> None:
    later, next_one, first = next(NUMBERS), next(NUMBERS), next(NUMBERS)
    assert await brings(own, message, number=first) == "ingested"
    await own.sql.execute(UNTOLD)
    await own.sql.execute(AGO, first, timedelta())
    assert await brings(own, f"{message} forwarded", number=next_one, forward_date=1) == "ingested"
    assert await own.sql.fetchval(TOLD) == 0
    await own.sql.execute(AGO, first, timedelta(seconds=2))
    assert await brings(own, f"{message} later", number=later, forward_date=1) == "ingested"
    assert await own.sql.fetchval(TOLD) == 1


async def test_whoever_writes_as_a_channel_or_a_group_is_that_chat(own: House, message: str) -> None:
    found = "SELECT sender, display_name FROM switchboard.inbox WHERE text = $1"
    stand_in, group = {"id": 1087968824, "is_bot": True, "first_name": "Group"}, {"id": GROUP, "type": "supergroup"}
    for n, chat in enumerate((GROUP, -1003)):
        as_chat = {"id": chat, "title": f"Chat {n}"}
        written = {"message_id": 40 + n, "from": stand_in, "chat": group, "sender_chat": as_chat}
        assert await brings(own, f"{message} {n}", **written) == "ingested"
        assert tuple(await own.row(found, f"{message} {n}")) == (str(chat), f"Chat {n}")


async def test_a_command_does_not_wait_for_all_that_strangers_wrote_before_it(still_house: House, message: str) -> None:
    worker, stopping, bot = still_house.worker(), asyncio.Event(), "4246"
    telegram = worker.channels["telegram"]
    assert isinstance(telegram, TelegramChannel)
    person = {"id": OWNER, "type": "private"}
    await still_house.sql.execute(STRANGERS, bot, message)
    handling = asyncio.ensure_future(updates_inbound.handle(worker, telegram, bot, stopping))
    done = "SELECT handled_at FROM messenger.updates WHERE bot = $1 AND update_id = $2 AND handled_at IS NOT NULL"
    try:
        await eventually(partial(still_house.sql.fetchrow, done, bot, 1))
        said = {"message_id": 1, "date": int(time.time()), "text": "/Help@b_bot", "from": person, "chat": person}
        await still_house.sql.execute(BROUGHT, bot, 301, {"update_id": 301, "message": said})
        await eventually(partial(still_house.sql.fetchrow, done, bot, 301))
        await eventually(partial(still_house.sql.fetchrow, done, bot, 300))
    finally:
        stopping.set()
        await handling
    assert await still_house.sql.fetchval(AFTER_IT, bot) > 0


async def test_the_menu_stands_in_the_owners_chat_alone(own: House) -> None:
    menus = own.box.sandbox.menus
    await until(lambda: menus.get((BOT, str(OWNER))))
    assert menus == {(BOT, str(OWNER)): list(commands.MENU)}
