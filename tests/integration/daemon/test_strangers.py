"""What somebody wrote whom no butler obeys: its card, what the owner says to it, and who is answered."""

from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import uuid4

import pytest

from butlers.sessions.prompt import TO_THEM
from messenger.cards.strangers import stranger
from messenger.storage.kinds import stranger_cards
from shared.db.pool import Record
from shared.display.conversation import MOST_TURNS, NOW, THEIRS
from shared.errors import Forbidden, InvalidInput
from shared.storage import routing_rules, turns
from switchboard import incoming
from switchboard.storage import registry
from tests.integration.daemon.test_conversations import OWNERS_MAIL, TOLD, asked, let_ask
from tests.integration.daemon.test_routing import begun, bring, event, letter, routed, there
from tests.integration.doubts import all_cards, cards_written, closed, shown
from tests.integration.house import House, button_data
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import admitted, enqueue, new_chat, work
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROW: Final = "SELECT * FROM switchboard.inbox WHERE text = $1"
MORE: Final = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, text, request_context,
    kind, conversation, routed_to)
SELECT channel, endpoint_identity, external_event_id || n, thread || n, sender, 'Lend me 5000 EUR?', request_context,
    kind, conversation, routed_to FROM switchboard.inbox, generate_series(1, $2) n WHERE id = $1
"""
CONCERNS: Final = "SELECT concerns FROM switchboard.inbox WHERE id = $1"


async def card(house: House, message: str, chat: str) -> Mapping[str, object]:
    """The card about what a stranger wrote, in the owner's chat."""
    await there(house)
    await house.box.api("say", as_=int(chat), text=message)
    text = f"{ROW} AND stranger = 'waits'"
    await eventually(partial(house.sql.fetchrow, text, message))
    await cards_written(house)

    async def look() -> Mapping[str, object] | None:
        return next(iter(house.cards(message)), None)

    return await eventually(look)


REALM = "UPDATE shared.channels SET realm = $1 WHERE channel = 'email'"


def made_up() -> str:
    """Somebody who is in the sandbox alone."""
    return str(5_000_000_000_000_100 + int(new_chat()))


async def stands(house: House, message: str) -> str:
    return str((await house.row(ROW, message))["stranger"])


async def test_a_strangers_words_are_shown_and_the_owner_blocks_the_sender(house: House, message: str) -> None:
    chat = made_up()
    found = await card(house, message, chat)
    payload = found["payload"]
    assert isinstance(payload, Mapping)
    assert "A stranger wrote to your butlers by Telegram." in str(payload["text"])
    assert (await house.press(found, stranger.BLOCK, who=int(chat)))["outcome"] == "stranger"
    assert await stands(house, message) == "waits"
    assert (await house.press(found, stranger.BLOCK))["outcome"] == "blocked"
    assert await stands(house, message) == "blocked"
    await closed(house)
    assert "Blocked." in shown(house, found)
    await house.box.api("say", as_=int(chat), text=f"{message} again")
    silent = await eventually(partial(house.sql.fetchrow, f"{ROW} AND route_until IS NULL", f"{message} again"))
    assert (silent["routed_to"], silent["stranger"]) == (None, None)
    assert (await house.press(found, stranger.ADD))["outcome"] == "said_before"


@pytest.mark.parametrize("is_live", [False, True], ids=["somebody real", "a name while mail is live"])
async def test_nobody_who_is_real_is_blocked_or_added_in_the_sandbox(
    house: House, message: str, *, is_live: bool
) -> None:
    """Any program of the computer presses there, and what it decides would count for live messages."""
    found = await card(house, message, made_up() if is_live else new_chat())
    if is_live:
        await house.sql.execute(REALM, "live")
    try:
        for verb in (stranger.BLOCK, stranger.ADD):
            assert (await house.press(found, verb))["outcome"] == "not_done"
    finally:
        await house.sql.execute(REALM, "sandbox")
    assert await stands(house, message) == "waits"
    await house.press(found, stranger.IGNORE)


async def test_a_forged_button_does_nothing(house: House, message: str) -> None:
    found = await card(house, message, new_chat())
    ignore = next(data for data in button_data(found) if data.split(":")[2] == stranger.IGNORE)
    forged = ignore.replace(f":{stranger.IGNORE}:", f":{stranger.BLOCK}:")
    at = {"chat": OWNER, "message_id": int(str(found["provider_id"]))}
    told = await house.box.api("press", as_=OWNER, data=forged, **at)
    assert (await house.handled(told["update_id"]))["outcome"] == "stale"
    assert await stands(house, message) == "waits"


async def test_a_stranger_is_added_or_ignored(house: House, message: str) -> None:
    chat, other = made_up(), made_up()
    assert (await house.press(await card(house, message, chat), stranger.ADD))["outcome"] == "added"
    text = "SELECT contact_id FROM shared.contact_info WHERE type = 'telegram' AND lookup = $1"
    assert await house.sql.fetchval(text, chat) is not None
    ignored = await card(house, f"{message} 2", other)
    assert (await house.press(ignored, stranger.IGNORE))["outcome"] == "ignored"
    assert await house.sql.fetchval(text, other) is None
    known = await card(house, f"{message} 3", chat)
    assert stranger.ADD not in {data.split(":")[2] for data in button_data(known)}


async def strangers_card(house: House, words: str, chat: str) -> tuple[Record, str]:
    """What a stranger wrote, and the place of its card."""
    return await card_of(house, event(words, chat), words)


async def card_of(house: House, given: Mapping[str, object], words: str) -> tuple[Record, str]:
    """What somebody wrote, and the place of its card."""
    theirs = await bring(house, given)
    await incoming.route_waiting(house.context("switchboard"))
    await cards_written(house)
    await all_cards(house)
    return theirs, f"{OWNER}:{house.cards(words)[-1]['provider_id']}"


async def test_the_owners_reply_to_the_card_is_work_about_that_conversation(still_house: House, message: str) -> None:
    chat = new_chat()
    _, place = await strangers_card(still_house, f"{message} when is dinner?", chat)
    [session] = await begun(still_house, event(f"{message} at eight", OWNER, event={"reply_to": place}))
    assert session["request_context"]["source_sender_identity"] == chat
    found = await asked(still_house, session)
    before, now = found.prompt.split(NOW)
    assert THEIRS in before
    assert '<message from="stranger"' in before
    assert before.count(' answered="yes" ') == 1
    assert '<message from="owner"' not in before
    assert now.endswith(f"{message} at eight\n</message>")
    assert found.told.endswith(TO_THEM)
    assert await stands(still_house, f"{message} when is dinner?") == "answered"


async def test_an_answer_that_nobody_reads_leaves_the_card_and_the_owner_is_told_where_the_owner_wrote(
    still_house: House, message: str
) -> None:
    mail = letter(f"{message} dinner?", f"{uuid4().hex}@example.org", f"<{uuid4().hex}@example.org>")
    _, place = await card_of(still_house, mail, f"{message} dinner?")
    reply = await bring(still_house, event(f"{message} at eight", OWNER, event={"reply_to": place}))
    async with still_house.context("switchboard").db.work() as connection:
        at, tools = "http://127.0.0.1:1", list[str]()
        await registry.all_seen(connection, [("health", at, "butler", tools, "ready", False)])
        await registry.all_seen(connection, [("greeter", at, "butler", tools, "ready", True)])
    await incoming.route_waiting(still_house.context("switchboard"))
    told = await still_house.row(TOLD, reply["request_context"]["request_id"])
    delivery = told["envelope"]["delivery"]
    assert (delivery["channel"], delivery["message"]) == ("telegram", incoming.NOT_READ.format(name="health"))
    assert await stands(still_house, f"{message} dinner?") == "waits"


async def test_what_the_owner_answers_is_shown_and_marked_however_much_came_after_it(
    still_house: House, message: str
) -> None:
    theirs, place = await strangers_card(still_house, f"{message} when is dinner?", new_chat())
    await still_house.sql.execute(MORE, theirs["id"], MOST_TURNS)
    [session] = await begun(still_house, event(f"{message} at eight", OWNER, event={"reply_to": place}))
    blocks = (await asked(still_house, session)).prompt.split("\n\n")
    assert [f"{message} when is dinner?" in block for block in blocks if ' answered="yes" ' in block] == [True]
    assert sum("Lend me 5000 EUR?" in block for block in blocks) == MOST_TURNS


async def test_a_reply_to_a_blocked_ones_card_is_for_its_butler_and_goes_to_the_owner(
    still_house: House, message: str
) -> None:
    chat = new_chat()
    _, place = await strangers_card(still_house, f"{message} hello", chat)
    await routing_rules.block(still_house.sql, "telegram", chat, str(uuid4()))
    [session] = await begun(still_house, event(f"{message} my blood values?", OWNER, event={"reply_to": place}))
    assert session["request_context"]["source_sender_identity"] == str(OWNER)
    found = await asked(still_house, session)
    assert THEIRS not in found.prompt
    assert TO_THEM not in found.told


async def test_whoever_is_blocked_before_the_answering_session_begins_gets_none(
    still_house: House, message: str
) -> None:
    chat = new_chat()
    _, place = await strangers_card(still_house, f"{message} hello", chat)
    [session] = await begun(still_house, event(f"{message} at eight", OWNER, event={"reply_to": place}))
    await routing_rules.block(still_house.sql, "telegram", chat, str(uuid4()))
    with pytest.raises(Forbidden, match="was blocked before it began"):
        await asked(still_house, session)


async def test_who_replies_to_a_butler_that_is_gone_is_told_and_to_its_strangers_card_nobody_is_asked(
    still_house: House, message: str
) -> None:
    theirs, place = await strangers_card(still_house, f"{message} hello", new_chat())
    gone = str((await still_house.row(ROW, f"{message} hello"))["routed_to"])
    other = "greeter" if gone == "health" else "health"
    await enqueue(still_house, await admitted(still_house, f"{message} shall I?", gone))
    await work(still_house.worker())
    asked_at = f"{OWNER}:{still_house.sent(f'{message} shall I?')[0]['provider_id']}"
    found = list[tuple[object, ...]]()
    for kind, text, at in (("message", "yes", asked_at), ("message", "at eight", place), ("forward", "look", place)):
        row = await bring(still_house, event(f"{message} {text}", OWNER, event={"kind": kind, "reply_to": at}))
        await still_house.sql.execute("DELETE FROM switchboard.butlers WHERE name = $1", gone)
        async with still_house.context("switchboard").db.work() as connection:
            await registry.all_seen(connection, [(other, "http://127.0.0.1:1", "butler", [], "ready", True)])
        await incoming.route_waiting(still_house.context("switchboard"))
        told = await still_house.sql.fetchrow(TOLD, row["request_context"]["request_id"])
        went = await still_house.row("SELECT routed_to, concerns FROM switchboard.inbox WHERE id = $1", row["id"])
        begun = await still_house.sql.fetchval("SELECT butler FROM shared.sessions WHERE id = $1", row["id"])
        found.append((*went, begun, told and told["envelope"]["delivery"]["message"]))
    said = incoming.NO_SUCH_NAME.format(unknown=gone, name=other), incoming.NOBODY_LEFT.format(unknown=gone)
    assert found == [(other, None, other, said[0]), (None, None, None, said[1]), (other, None, None, None)]
    assert await stands(still_house, str(theirs["text"])) == "waits"


async def test_what_is_no_work_leaves_the_strangers_card_as_it_is(still_house: House, message: str) -> None:
    theirs, place = await strangers_card(still_house, f"{message} when is dinner?", new_chat())
    for kind, text in (("reaction", "\U0001f44d"), ("forward", f"{message} look")):
        row = await bring(still_house, event(text, OWNER, event={"kind": kind, "reply_to": place}))
        await incoming.route_waiting(still_house.context("switchboard"))
        assert str((await still_house.row(CONCERNS, row["id"]))["concerns"]) == str(theirs["id"])
    assert await stands(still_house, f"{message} when is dinner?") == "waits"


async def test_what_a_stranger_changed_is_shown_as_changed(still_house: House, message: str) -> None:
    chat = new_chat()
    await strangers_card(still_house, f"{message} at eight?", chat)
    written = await still_house.row(ROW, f"{message} at eight?")
    number = int(str(written["thread"]).rpartition(":")[2])
    said_now = (f"{message} at eight?", f"{message} a loan?", f"{message} lend me?")
    for n, said in enumerate(said_now):
        edit = {"kind": "edit", "external_event_id": f"{chat}:{number}:edit:{n}"}
        await bring(still_house, event(said, chat, number, event=edit))
        await incoming.route_waiting(still_house.context("switchboard"))
    same = "SELECT stranger FROM switchboard.inbox WHERE kind = 'edit' AND text = $1"
    assert (await still_house.row(same, f"{message} at eight?"))["stranger"] is None
    await cards_written(still_house)
    await all_cards(still_house)
    shown = str(still_house.cards(f"{message} lend me?")[-1]["payload"])
    assert "They changed what they had written before." in shown
    first = await still_house.row("SELECT stranger FROM switchboard.inbox WHERE id = $1", written["id"])
    assert (first["stranger"], await stands(still_house, said_now[1])) == ("changed", "changed")
    await bring(still_house, event(said_now[0], chat, number, event={"kind": "edit", "external_event_id": "back"}))
    await incoming.route_waiting(still_house.context("switchboard"))
    assert (await still_house.row(f"{same} AND stranger IS NOT NULL", said_now[0]))["stranger"] == "waits"


async def test_what_somebody_who_may_ask_changed_of_a_card_is_shown(still_house: House, message: str) -> None:
    chat, number = new_chat(), 810_301
    await let_ask(still_house, chat)
    written = await bring(still_house, event(f"{message} at eight?", chat, number))
    await incoming.route_waiting(still_house.context("switchboard"))
    # As where so many of theirs waited that this one was shown.
    await still_house.sql.execute("UPDATE switchboard.inbox SET stranger = 'waits' WHERE id = $1", written["id"])
    edit = {"kind": "edit", "external_event_id": f"{chat}:{number}:edit:1"}
    await bring(still_house, event(f"{message} a loan?", chat, number, event=edit))
    await incoming.route_waiting(still_house.context("switchboard"))
    assert await stands(still_house, f"{message} a loan?") == "waits"


async def test_of_whom_the_owner_adds_the_rest_is_still_shown(house: House, message: str) -> None:
    chat = made_up()
    first = await card(house, f"{message} first", chat)
    await card(house, f"{message} second", chat)
    assert (await house.press(first, stranger.ADD))["outcome"] == "added"
    assert [await stands(house, f"{message} {n}") for n in ("first", "second")] == ["added", "waits"]


async def test_whom_no_address_names_can_be_neither_blocked_nor_added(still_house: House, message: str) -> None:
    for sender, offered in (("unknown", {stranger.ANSWER, stranger.IGNORE}), ("eve@example.org", {*verbs()})):
        row = await bring(still_house, letter(f"{message} {sender}", sender, f"<{uuid4().hex}@x.org>"))
        await incoming.route_waiting(still_house.context("switchboard"))
        found = await stranger_cards.one(still_house.sql, str(row["id"]))
        assert found is not None
        buttons = [one for line in stranger.buttons(b"x" * 32, found) for one in line]
        assert {one.data.split(":")[2] for one in buttons} == offered
        assert ("routes add" in stranger.words(found, has_buttons=False)[1].foot) == (stranger.BLOCK in offered)


async def test_what_was_taken_for_a_quotation_stands_on_the_card_and_in_the_session(
    still_house: House, message: str
) -> None:
    quoted = "From: Bern\nTo: Zurich\nDate: 2026-12-01\n\nSo I cannot come."
    said = {"text": message, "quoted": quoted, "in_doubt": True}
    row = await bring(still_house, letter("", "eve@example.org", f"<{uuid4().hex}@x.org>", payload=said))
    await incoming.route_waiting(still_house.context("switchboard"))
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    quotes = stranger.words(found, has_buttons=True)[1].quotes
    assert [quote.text for quote in quotes] == [message, quoted]
    certain = {"text": f"{message} again", "quoted": quoted}
    row = await bring(still_house, letter("", "eve@example.org", f"<{uuid4().hex}@x.org>", payload=certain))
    await incoming.route_waiting(still_house.context("switchboard"))
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    assert len(stranger.words(found, has_buttons=True)[1].quotes) == 1
    address = str(await still_house.sql.fetchval(OWNERS_MAIL))
    mail = letter("", address, f"<{uuid4().hex}@x.org>", payload={**said, "text": f"/health {message}"})
    [session] = await begun(still_house, {**mail, "sender": {"identity": address, "verified": True}})
    blocks = (await asked(still_house, session)).prompt.split("<message ")
    assert blocks[-2].startswith('from="owner" ')
    assert blocks[-1].startswith('from="unverified" forwarded_by="owner" channel="email" verified="no" kind="quoted"')
    assert "So I cannot come." in blocks[-1]


async def test_the_command_that_blocks_a_sender_holds_no_word_of_theirs(still_house: House, message: str) -> None:
    sender = f"`touch${{IFS}}{message[-8:]}`@example.org"
    row = await bring(still_house, letter(f"{message} hello", sender, f"<{uuid4().hex}@x.org>"))
    await incoming.route_waiting(still_house.context("switchboard"))
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    _, sheet = stranger.words(found, has_buttons=False)
    begins = str(row["id"])[:8]
    assert sheet.foot == f"To block the sender: butlers routes add nobody --message {begins}"
    assert await turns.written_by(still_house.sql, begins) == ("email", sender)


async def test_the_command_that_blocks_a_sender_blocks_whoever_writes_as_a_channel(house: House, message: str) -> None:
    group, channel = new_chat(), f"-100{new_chat()}"
    as_channel = {"sender": {"identity": channel}}
    row = await routed(house, event(message, f"-{group}", **as_channel))
    written_by = await turns.written_by(house.sql, str(row["id"])[:8])
    made = await routing_rules.add_route(house.sql, routing_rules.NewRoute(None, *written_by), str(uuid4()))
    again = await routed(house, event(f"{message} again", f"-{group}", **as_channel))
    assert (again["routed_to"], again["routed_because"]) == (None, f"blocked by rule {made}")
    with pytest.raises(InvalidInput, match="by a number alone"):
        await routing_rules.add_route(house.sql, routing_rules.NewRoute(None, "telegram", "@eve_writes"), str(uuid4()))


async def test_what_a_contacts_program_sends_is_shown_and_nobody_elses(still_house: House, message: str) -> None:
    hotel, shop = (f"{uuid4().hex}@example.org" for _ in range(2))
    await still_house.contact("Hotel", email=hotel)
    shown_to_owner = list[str | None]()
    for sender, verified in ((hotel, True), (hotel, False), (shop, True)):
        mail = letter(f"{message} {sender}", sender, f"<{uuid4().hex}@x.org>", event={"kind": "automatic"})
        given = {**mail, "sender": {"identity": sender, "verified": verified}}
        assert (await still_house.hop("messenger", "switchboard", "ingest", given))["status"] == "ok"
        await there(still_house)
        await incoming.route_waiting(still_house.context("switchboard"))
        newest = "SELECT id, stranger FROM switchboard.inbox WHERE sender = $1 ORDER BY received_at DESC LIMIT 1"
        row = await still_house.row(newest, sender)
        shown_to_owner.append(row["stranger"])
        if verified and sender == hotel:
            found = await stranger_cards.one(still_house.sql, str(row["id"]))
            assert found is not None
            assert "A program of theirs sent it" in str(stranger.words(found, has_buttons=True)[1])
    assert shown_to_owner == ["waits", None, None]


async def test_the_card_of_words_that_were_written_long_ago_says_when(still_house: House, message: str) -> None:
    for when, observed in (("late", {"observed_at": "2026-11-20T22:05:00+00:00"}), ("now", dict[str, object]())):
        row = await bring(still_house, event(f"{message} {when}", new_chat(), event=observed))
        await incoming.route_waiting(still_house.context("switchboard"))
        found = await stranger_cards.one(still_house.sql, str(row["id"]))
        assert found is not None
        assert ("\nWritten Fri 20 Nov 2026 " in stranger.words(found, has_buttons=True)[1].head) == (when == "late")


async def test_the_card_of_words_in_a_group_says_that_all_in_it_read_the_answer(
    still_house: House, message: str
) -> None:
    chat, told = new_chat(), "Written in a group or channel (-1002): everybody in it reads what you answer."
    for place, said in (("-1002", True), (chat, False)):
        row = await bring(still_house, event(f"{message} {place}", place, sender={"identity": chat}))
        await incoming.route_waiting(still_house.context("switchboard"))
        found = await stranger_cards.one(still_house.sql, str(row["id"]))
        assert found is not None
        assert (told in stranger.words(found, has_buttons=True)[1].head.split("\n")) == said


async def test_who_writes_as_a_channel_can_be_blocked_and_is_no_contact_to_be(still_house: House, message: str) -> None:
    channel = f"-{new_chat()}"
    row = await bring(still_house, event(message, "-1002", sender={"identity": channel, "display_name": "News"}))
    await incoming.route_waiting(still_house.context("switchboard"))
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    buttons = [one for line in stranger.buttons(b"x" * 32, found) for one in line]
    assert {one.data.split(":")[2] for one in buttons} == {stranger.ANSWER, stranger.IGNORE, stranger.BLOCK}
    said = stranger.words(found, has_buttons=True)[1].head.split("\n")
    assert said[1] == f"From: News, a group or channel ({channel})"


def verbs() -> list[str]:
    return [verb for verb, _ in stranger.LABELS]


async def test_a_card_reads_no_more_than_comes_in_by_a_channel(still_house: House, message: str) -> None:
    row = await bring(still_house, event(message, "777"))
    await still_house.sql.execute(
        "UPDATE switchboard.inbox SET stranger = 'waits', text = repeat('a', 100000) WHERE id = $1", row["id"]
    )
    found = await stranger_cards.one(still_house.sql, str(row["id"]))
    assert found is not None
    assert len(found["text"]) == 25_000
