"""A butler that asks too much: three cards wait for the owner, then one digest that shows each question on demand."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers.console.queries import approvals
from messenger.cards import approval, base, kinds
from messenger.cards import digest as digests
from messenger.cards.base import Presser
from messenger.channels.telegram import TelegramChannel
from messenger.maintenance import rechecker, resolver
from messenger.storage import cards, queries
from shared.channels.realms import SANDBOX
from shared.config.timings import STANDARD
from shared.db.pool import Record
from shared.display.owner import as_text, bubbles
from shared.gate.approval_request import asked
from shared.gate.owner_decision import Edit, edit
from shared.storage import contacts, pending_actions
from tests.integration.house import House, button_data, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, admitted, new_chat, work
from tests.rig.cluster import Cluster
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BURST = 3
# Seconds. What was looked at later than so long ago had its turn in the test, however slow that is.
HOUR = timedelta(hours=1)
GONE = "Already "
OLDER = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '6 seconds'"
# Asked within this breath, however long the test takes; and before it.
JUST_NOW = "UPDATE shared.pending_actions SET requested_at = clock_timestamp() + interval '30 seconds'"
LONG_AGO = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '36 seconds'"
TAKE_BACK = """
INSERT INTO shared.withdrawals (notification_id, origin_butler)
SELECT notification_id, origin_butler FROM shared.pending_actions WHERE id = ANY ($1::uuid[])
"""
CANCELLED = "UPDATE shared.pending_actions SET status = 'cancelled' WHERE id = ANY ($1::uuid[])"
NO_CHAT = "DELETE FROM shared.contact_info WHERE type = 'telegram' AND value = '5000000000000001'"
DELETED = """
UPDATE messenger.parts SET provider_id = '999999' WHERE delivery_id IN (
    SELECT id FROM messenger.deliveries WHERE card_kind = 'digest')
"""
TEN_MINUTES = """
WITH g AS (UPDATE messenger.digests SET opened_at = opened_at - interval '10 minutes')
UPDATE messenger.deliveries SET created_at = created_at - interval '10 minutes', status = 'sent'
"""
CARDS = "SELECT count(*) FROM messenger.deliveries WHERE class = 'card' AND action_id IS NOT NULL"
DIGESTS = "SELECT g.id, count(*) AS items FROM messenger.digests g JOIN messenger.digest_items t ON t.digest_id = g.id"
LOOK_AGAIN = "UPDATE messenger.digests SET shown_at = shown_at - interval '10 seconds'"
OF_DIGESTS = "SELECT * FROM messenger.deliveries WHERE digest_id IS NOT NULL ORDER BY created_at"
NOBODY = TelegramChannel("http://127.0.0.1:1", "1:none")
ON_ONE = Presser("", "1", resolver.heed_press)
NINE_AND_TWENTY = """
INSERT INTO messenger.digests (origin_butler, opened_at, shown_at)
SELECT 'greeter', clock_timestamp() - n * interval '11 minutes', clock_timestamp() - n * interval '2 hours'
FROM generate_series(1, 29) n
"""
CARDS_OF_THEM = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, digest_id, revision, origin_butler, status)
SELECT 'card', 'digest', 'telegram', '5000000000000001', id, 1, origin_butler, 'sent' FROM messenger.digests
WHERE shown_at IS NOT NULL
"""
RECEIPTS_OF_THEM = """
INSERT INTO messenger.parts (delivery_id, n, wire_sha, provider_id, status)
SELECT d.id, 1, 'sha', '1', 'sent' FROM messenger.deliveries d JOIN messenger.digests g ON g.id = d.digest_id
WHERE g.shown_at IS NOT NULL
"""
CLOSED = "SELECT 1 FROM messenger.deliveries WHERE digest_id IS NOT NULL AND reason = 'closed'"


@pytest_asyncio.fixture(loop_scope="module")
async def quiet(cluster: Cluster) -> AsyncIterator[House]:
    """A house of its own in which nothing moves by itself."""
    async with opened(cluster, loops=False, BUTLERS_CARD_BURST=str(BURST)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def busy(cluster: Cluster) -> AsyncIterator[House]:
    """A house of its own at work."""
    async with opened(cluster, BUTLERS_CARD_BURST=str(BURST)) as made:
        yield made


async def ask(house: House, count: int, butler: str = "greeter") -> list[str]:
    """So many questions to somebody new, asked a while ago; the ids of their actions, the oldest first."""
    contact = await house.contact(f"Zoe {uuid4()}", telegram=new_chat())
    told = [await admitted(house, f"words {uuid4()}", butler, contact_id=contact) for _ in range(count)]
    await house.sql.execute(OLDER)
    return [str((await house.row(ACTION, one))["id"]) for one in told]


async def write(house: House) -> int:
    async with house.context("messenger").db.work() as connection:
        return await kinds.write_missing(connection, BURST, STANDARD)


async def digests_of(house: House) -> list[int]:
    """How many questions each digest holds, the first digest first."""
    rows = await house.sql.fetch(f"{DIGESTS} GROUP BY g.id, g.opened_at ORDER BY g.opened_at")
    return [row["items"] for row in rows]


async def test_three_cards_and_one_digest_in_ten_minutes_and_nothing_is_lost(quiet: House) -> None:
    await ask(quiet, 10)
    assert await write(quiet) == BURST + 1
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (BURST, [7])
    await ask(quiet, 5)
    assert await write(quiet) == 0
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (BURST, [12])
    await quiet.sql.execute(TEN_MINUTES)
    await ask(quiet, 5)
    assert await write(quiet) == BURST + 1
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (2 * BURST, [12, 2])
    await quiet.sql.execute(TEN_MINUTES)
    assert await write(quiet) == 0


async def test_a_digest_waits_a_moment_for_what_comes_in_one_breath(quiet: House) -> None:
    actions = await ask(quiet, BURST + 2)
    await quiet.sql.execute(JUST_NOW)
    assert await write(quiet) == BURST
    assert await digests_of(quiet) == []
    await quiet.sql.execute(LONG_AGO)
    assert await write(quiet) == 1
    assert await digests_of(quiet) == [len(actions) - BURST]


async def test_what_another_messenger_has_not_committed_counts(quiet: House) -> None:
    first = await ask(quiet, BURST)
    async with quiet.context("messenger").db.work() as connection:
        assert await kinds.write_missing(connection, BURST, STANDARD) == BURST
        await quiet.sql.execute(CANCELLED, first)
        await ask(quiet, BURST)
        other = asyncio.create_task(write(quiet))
        await asyncio.sleep(0.3)
        assert not other.done()
    assert await other == 1
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (BURST, [BURST])


async def test_each_butler_has_its_own_burst(quiet: House) -> None:
    await ask(quiet, 4, "greeter")
    await write(quiet)
    await ask(quiet, 2, "health")
    assert await write(quiet) == 2
    assert await digests_of(quiet) == [1]


async def test_what_the_owner_changes_is_asked_at_once_and_counts_against_nobody(quiet: House) -> None:
    actions = await ask(quiet, BURST + 2)
    await write(quiet)
    owner = await contacts.owner(quiet.sql)
    assert owner is not None
    for action in (actions[0], actions[-1]):
        async with quiet.context("messenger").db.work() as connection:
            ttl = quiet.settings.approval_ttl
            outcome = await edit(connection, Edit(action, f"other {uuid4()}", owner["id"], "console", ttl))
        assert outcome.code == "edited"
    assert await write(quiet) == 2
    await ask(quiet, 1)
    assert await write(quiet) == 0
    await quiet.sql.execute(TEN_MINUTES)
    await ask(quiet, 1)
    assert await write(quiet) == 1


async def withdraw(house: House, actions: Sequence[str]) -> None:
    """Let their butler take these questions back, and the Messenger carry that out."""
    await house.sql.execute(TAKE_BACK, actions)
    async with house.context("messenger").db.work() as connection:
        await rechecker.withdrawn(connection)


async def deliver(house: House) -> list[str]:
    """Send the cards that are queued; what the owner has been sent by now, and heard."""
    while await house.sql.fetch("SELECT FROM messenger.deliveries WHERE class = 'card' AND status = 'queued'"):
        await work(house.worker())
    return texts(house, "sendMessage")


async def look(house: House) -> list[str]:
    """Let the digests list what waits in them now; all that they have listed, the last edit last."""
    await house.sql.execute(LOOK_AGAIN)
    telegram = house.worker().channels["telegram"]
    assert isinstance(telegram, TelegramChannel)
    await digests.refresh(house.context("messenger"), telegram)
    return texts(house, "editMessageText")


async def test_what_the_owner_decides_gives_its_place_back(quiet: House) -> None:
    actions = await ask(quiet, BURST)
    assert await write(quiet) == BURST
    await quiet.decide(actions[0], approve=False)
    await quiet.decide(actions[1])
    await ask(quiet, 3)
    assert await write(quiet) == 2 + 1
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (BURST + 2, [1])


async def test_a_butler_that_asks_and_withdraws_without_end_is_heard_no_more_than_one_that_waits(quiet: House) -> None:
    heard = list[str]()
    for _ in range(4):
        actions = await ask(quiet, BURST + 2)
        await write(quiet)
        heard = await deliver(quiet)
        await withdraw(quiet, actions)
        await look(quiet)
    assert len(heard) == BURST + 1
    assert len(await digests_of(quiet)) == 1
    await ask(quiet, 1)
    await write(quiet)
    assert await deliver(quiet) == heard
    assert "needs your approval for 1 more message:" in (await look(quiet))[-1]


async def test_what_comes_after_a_digest_is_listed_in_it_by_an_edit(quiet: House) -> None:
    await ask(quiet, BURST + 1)
    await write(quiet)
    heard = await deliver(quiet)
    await ask(quiet, 2)
    assert await write(quiet) == 0
    assert "needs your approval for 3 more messages:" in (await look(quiet))[-1]
    assert await deliver(quiet) == heard


async def test_a_digest_whose_questions_are_all_decided_is_followed_by_another(quiet: House) -> None:
    actions = await ask(quiet, BURST + 1)
    await write(quiet)
    await deliver(quiet)
    await quiet.decide(actions[-1], approve=False)
    assert (await look(quiet))[-1].endswith(digests.OVER)
    await ask(quiet, 1)
    assert await write(quiet) == 1
    assert await digests_of(quiet) == [1, 1]


async def test_whoever_has_only_mail_gets_no_mail_for_each_that_comes_later(quiet: House) -> None:
    await quiet.sql.execute(NO_CHAT)
    await ask(quiet, BURST + 1)
    assert await write(quiet) == BURST + 1
    await ask(quiet, 1)
    assert await write(quiet) == 0
    assert await digests_of(quiet) == [2], "what is not written yet will list it"
    await deliver(quiet)
    mails = len(quiet.box.sandbox.lines)
    await ask(quiet, BURST + 2)
    assert (await write(quiet), len(quiet.box.sandbox.lines)) == (0, mails)
    assert await digests_of(quiet) == [2], "a mail that is sent lists nothing more"
    await quiet.sql.execute(TEN_MINUTES)
    assert await write(quiet) == BURST + 1
    assert await digests_of(quiet) == [2, 2]


async def test_what_comes_after_a_digest_that_the_owner_deleted_stands_in_the_next(quiet: House) -> None:
    await ask(quiet, BURST + 1)
    await write(quiet)
    await deliver(quiet)
    await quiet.sql.execute(DELETED)
    await ask(quiet, 1)
    await write(quiet)
    assert await digests_of(quiet) == [2]
    assert await look(quiet) == []
    assert await digests_of(quiet) == [1]
    assert await write(quiet) == 0
    await quiet.sql.execute(TEN_MINUTES)
    assert await write(quiet) == 1
    assert len([text for text in await deliver(quiet) if "wants to message" in text]) == BURST + 1


async def test_a_digest_that_telegram_refuses_is_mailed(quiet: House) -> None:
    await ask(quiet, BURST + 2)
    await write(quiet)
    await quiet.sql.execute("UPDATE messenger.deliveries SET status = 'failed' WHERE digest_id IS NOT NULL")
    assert await write(quiet) == 1
    assert [row["channel"] for row in await quiet.sql.fetch(OF_DIGESTS)] == ["telegram", "email"]
    await quiet.sql.execute("UPDATE messenger.deliveries SET status = 'sent' WHERE action_id IS NOT NULL")
    await work(quiet.worker())
    (mail,) = [line for line in quiet.box.sandbox.lines if line["channel"] == "email"]
    assert "Greeter needs your approval for 2 more messages" in str(mail["payload"])
    assert "/approvals/" in str(mail["payload"])


async def test_a_digest_of_answered_questions_is_not_sent(quiet: House) -> None:
    actions = await ask(quiet, BURST + 1)
    await write(quiet)
    await quiet.decide(actions[-1], approve=False)
    await quiet.sql.execute("UPDATE messenger.deliveries SET status = 'sent' WHERE action_id IS NOT NULL")
    await work(quiet.worker())
    (row,) = await quiet.sql.fetch(OF_DIGESTS)
    assert (row["status"], row["reason"]) == ("cancelled", "answered")


async def items(house: House) -> list[Record]:
    (row,) = await house.sql.fetch("SELECT id::text FROM messenger.digests")
    async with house.context("messenger").db.work() as connection:
        return await queries.digest_items(connection, str(row["id"]), SANDBOX, digests.MOST)


async def test_twenty_are_listed_and_the_rest_is_named(quiet: House) -> None:
    await ask(quiet, BURST + digests.MOST + 4)
    await write(quiet)
    rows = await items(quiet)
    to, here = await digests.recipients_of(quiet.sql, rows), "http://here/approvals"
    title, sheet = digests.words(rows, to, here, "http://here/contacts")
    text = as_text(sheet)
    assert title == "Greeter needs your approval for 24 more messages"
    assert len(digests.buttons(quiet.context("messenger").secret, rows)[-1]) == digests.IN_A_ROW
    assert "\nand 4 more: http://here/approvals\n" in text
    assert "words" not in text


@pytest.mark.parametrize("near", [True, False])
async def test_a_line_without_an_address_says_so_and_leads_to_the_contact(quiet: House, near: bool) -> None:  # noqa: FBT001
    dora = await quiet.contact("Dora", email=f"{uuid4()}@example.org")
    for _ in range(BURST + digests.MOST_LINKS + 1):
        await quiet.notify(message=f"words {uuid4()}", contact_id=dora, request_context={"request_id": str(uuid4())})
    await quiet.sql.execute(OLDER)
    await write(quiet)
    rows = await items(quiet)
    house = "http://127.0.0.1:14102" if near else "https://butlers.example.org"
    _, sheet = digests.words(
        rows, await digests.recipients_of(quiet.sql, rows), f"{house}/approvals", f"{house}/contacts"
    )
    lines = sheet.foot.split("\n")
    page = f"{house}/contacts/{dora}"
    assert lines[0] == f"1. to Dora (no address on file) on Telegram, 42 characters. Add an address: {page}"
    assert [line.count(page) for line in lines].count(1) == digests.MOST_LINKS
    (said,) = bubbles(sheet)
    assert not [one for one in said.stretches if page in said.text[one.start : one.end]], "it can be pressed"
    assert (base.NEAR in sheet.foot) is near


async def test_a_button_shows_only_what_it_was_made_for(quiet: House) -> None:
    actions = await ask(quiet, BURST + 2)
    await write(quiet)
    context = quiet.context("messenger")
    (first, second) = await items(quiet)
    shown = base.read(approval.data(context.secret, first, digests.SHOW), {digests.SHOW})
    other = base.read(approval.data(context.secret, second, "ok").replace(":ok:", ":sh:"), {digests.SHOW})
    assert shown is not None
    assert other is not None
    async with quiet.context("messenger").db.work() as connection:
        assert (await digests.pressed(connection, other, ON_ONE, context))[0] == "stale"
        assert await digests.pressed(connection, shown, ON_ONE, context) == (
            "shown",
            "The full message follows.",
        )
        assert (await digests.pressed(connection, shown, ON_ONE, context))[0] == "shown_before"
    assert await quiet.sql.fetchval(CARDS) == BURST + 1
    await quiet.sql.execute("UPDATE shared.pending_actions SET revision = 2 WHERE id = $1", actions[-1])
    stale = base.read(approval.data(context.secret, second, digests.SHOW), {digests.SHOW})
    assert stale is not None
    async with quiet.context("messenger").db.work() as connection:
        assert (await digests.pressed(connection, stale, ON_ONE, context))[0] == "stale"
    assert await quiet.sql.fetchval(CARDS) == BURST + 1


async def test_a_press_on_a_digest_without_receipt_is_adopted(quiet: House) -> None:
    await ask(quiet, BURST + 1)
    await write(quiet)
    (row,) = await quiet.sql.fetch(OF_DIGESTS)
    await quiet.sql.execute("UPDATE messenger.deliveries SET attempt = 1 WHERE id = $1", row["id"])
    await quiet.sql.execute("INSERT INTO messenger.parts (delivery_id, n, wire_sha) VALUES ($1, 1, 'sha')", row["id"])
    context = quiet.context("messenger")
    press = base.read(approval.data(context.secret, (await items(quiet))[0], digests.SHOW), {digests.SHOW})
    assert press is not None
    async with quiet.context("messenger").db.work() as connection:
        await digests.pressed(connection, press, Presser("", "77", resolver.heed_press), context)
    (row,) = await quiet.sql.fetch(OF_DIGESTS)
    part = await quiet.row("SELECT * FROM messenger.parts WHERE delivery_id = $1", row["id"])
    assert (row["status"], part["status"], part["provider_id"]) == ("sent", "sent", "77")


async def test_card_and_page_show_the_same_hash_and_quote_the_butlers_reason(quiet: House) -> None:
    (action_id,) = await ask(quiet, 1)
    forged = 'because\n"Approved." he said'
    await quiet.sql.execute("UPDATE shared.pending_actions SET agent_summary = $2 WHERE id = $1", action_id, forged)
    question = await approvals.one(quiet.sql, action_id)
    action = await pending_actions.open_action(quiet.sql, action_id)
    assert question is not None
    assert action is not None
    said = bubbles(approval.sheet(await asked(quiet.sql, action), action_id, quiet.context("messenger")))[-1]
    assert question.last.endswith(f" characters, hash {action['content_sha'][:8]}")
    assert said.text.endswith(f"\n\u25a3 {question.last}")
    assert question.summary == forged
    assert f"Greeter says:\n{forged}\n" in said.text
    quoted = [said.text[one.start : one.end] for one in said.stretches if one.kind == "pre"]
    assert forged in quoted


async def test_each_open_digest_gets_its_turn_however_many_there_are(quiet: House) -> None:
    await ask(quiet, BURST + 1)
    await write(quiet)
    await quiet.sql.execute("UPDATE messenger.deliveries SET status = 'sent' WHERE digest_id IS NOT NULL")
    for text in (NINE_AND_TWENTY, CARDS_OF_THEM, RECEIPTS_OF_THEM):
        await quiet.sql.execute(text)
    context, seen = quiet.context("messenger"), set()
    for _ in range(2):
        async with context.db.work() as connection:
            found = await queries.digests_open(connection, HOUR)
        seen |= {card["digest_id"] for card in found}
        # Nothing in them waits and nothing was listed, so there is nothing to change either.
        assert await digests.refresh(context, NOBODY) == 0
    assert len(seen) == 29
    async with context.db.work() as connection:
        assert await queries.digests_open(connection, HOUR) == []


def digest_in(house: House) -> Mapping[str, object]:
    """The digest as it came to the owner's chat."""
    (found,) = (line for line in house.cards("more message") if "sendMessage" in str(line["payload"]))
    return found


def texts(house: House, method: str) -> list[str]:
    payloads = [line["payload"] for line in house.box.sandbox.lines]
    return [str(p.get("text")) for p in payloads if isinstance(p, Mapping) and p.get("method") == method]


async def press_show(house: House, n: int, who: int = OWNER) -> Record:
    digest = digest_in(house)
    chat, number, data = int(str(digest["to"])), int(str(digest["provider_id"])), button_data(digest)[n]
    told = await house.box.api("press", as_=who, chat=chat, message_id=number, data=data)
    return await house.handled(told["update_id"])


async def test_everything_in_a_digest_is_decided_in_telegram_by_a_card_that_shows_the_message(busy: House) -> None:
    contact = await busy.contact("Zoe", telegram=new_chat())
    message = f"words {uuid4()}"
    async with busy.sql.transaction():
        # No digest is made of one alone, however slowly they come.
        await busy.sql.execute(cards.ONE_AT_A_TIME)
        told = [await busy.notify(message=f"{message} n{n}", contact_id=contact) for n in range(BURST + 2)]
        await busy.sql.execute(OLDER)
    await until(lambda: busy.cards("more message") or None)
    text = str(digest_in(busy)["payload"])
    assert "Greeter needs your approval for 2 more messages" in text
    assert message not in text
    assert len(busy.cards(message)) == BURST

    assert (await press_show(busy, 1))["outcome"] == "shown"
    card = (await until(lambda: busy.cards(f"{message} n{BURST + 1}") or None))[0]
    await busy.sql.execute(LOOK_AGAIN)
    await until(
        lambda: (
            [text for text in texts(busy, "editMessageText") if "needs your approval for 1 more message:" in text]
            or None
        )
    )
    await busy.press(card)
    await busy.settled(told[-1]["notification_id"], "ok")
    assert len(busy.sent(f"{message} n{BURST + 1}")) == 1

    assert (await press_show(busy, 1))["outcome"] == "late"
    await until(lambda: [text for text in texts(busy, "answerCallbackQuery") if text.startswith(GONE)] or None)
    await busy.decide(told[-2]["action_id"], approve=False)
    await busy.sql.execute(LOOK_AGAIN)
    await until(lambda: [text for text in texts(busy, "editMessageText") if text == f"\u25a3 {digests.OVER}"] or None)
    await eventually(partial(busy.sql.fetchval, CLOSED))


async def test_a_stranger_sees_nothing_of_it(busy: House) -> None:
    await ask(busy, BURST + 1)
    await until(lambda: busy.cards("more message") or None)
    assert (await press_show(busy, 0, who=9000000001))["outcome"] == "stranger"
    assert await busy.sql.fetchval(CARDS) == BURST
    # Telegram is asked for nothing on a stranger's behalf: the one answer is the owner's, who presses after it.
    assert (await press_show(busy, 0))["outcome"] == "shown"
    told = await until(lambda: [one for one in texts(busy, "answerCallbackQuery") if "follows" in one] or None)
    assert texts(busy, "answerCallbackQuery") == told
