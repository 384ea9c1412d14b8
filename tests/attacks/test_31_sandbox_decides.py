"""A sandbox that plays one channel says yes, or is shown what waits, for the other one that is live.

The attacker is another user of this computer: it holds no key, and talks to the sandbox's pages, which ask nobody who
they are. What is live is played by a second server, at a port of its own.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from messenger.cards import approval, digest, uncertain
from shared.auth import keystore
from shared.channels.realms import NOT_HERE
from shared.config.timings import STANDARD
from shared.db.dsn import dsn_as
from shared.db.pool import prepare_connection
from shared.storage import contacts, pairings
from tests.integration.sandbox_runner import Running, running
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL, Bench
from tests.rig.cluster import BUTLERS
from tests.rig.fleet import Fleet
from tests.rig.outside import SENDS, Entry, Outside
from tests.rig.waiting import LONGEST, eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

BOT: Final = "1:sandbox"
OWNERS_MAIL: Final = "owner@people.test"
BUTTON: Final = re.compile(r'"callback_data": "([^"]+)"')
CHAT: Final = 600_000_001
ACTION: Final = "SELECT id::text, revision, content_sha, status FROM shared.pending_actions WHERE id = $1::uuid"
DELIVERY: Final = "SELECT id::text, attempt, status FROM messenger.deliveries WHERE notification_id = $1::uuid"
OUTCOME: Final = "SELECT outcome FROM messenger.updates WHERE update_id = $1 AND handled_at IS NOT NULL"
REFUSED: Final = "SELECT detail FROM shared.approval_events WHERE event_type = 'refused' AND reason LIKE '%sandbox%'"
CARDS: Final = "SELECT channel FROM messenger.deliveries WHERE action_id = $1::uuid"
OWNERS_CHATS: Final = "SELECT count(*) FROM shared.contact_info WHERE type = 'telegram' AND value = $1"
RULE: Final = "INSERT INTO shared.approval_rules (arg_constraints) VALUES (jsonb_build_object('recipient', $1::text))"
MOVED: Final = "UPDATE shared.contact_info SET value = $2 WHERE type = 'email' AND value = $1"
REALM: Final = "SELECT realm FROM shared.channels WHERE channel = 'email'"
WRITTEN: Final = "UPDATE shared.channels SET realm = $1 WHERE channel = 'email'"
PACE: Final = {"BUTLERS_RATE_LIMITS": "0", "BUTLERS_SWEEP_SECONDS": "0.1"}


@dataclass(slots=True)
class Mixed:
    """A fleet with one channel live; `box` is the sandbox as anybody reaches it, `live` where real messages arrive."""

    fleet: Fleet
    box: Outside
    live: Outside
    # What `butlers up` said.
    told: str

    async def ask(self, channel: str = "email", **more: object) -> Mapping[str, object]:
        """What a butler asks about somebody else; with its words as `said` and whom it is for as `to`."""
        said = fresh.words("live")
        to = f"friend.{uuid4().hex[:8]}@people.test" if channel == "email" else str(fresh.chat())
        answer = await self.fleet.notify("greeter", channel=channel, message=said, recipient=to, **more)
        return {**answer, "said": said, "to": to}

    async def action(self, asked: Mapping[str, object]) -> asyncpg.Record:
        [row] = await self.fleet.sql(ACTION, asked["action_id"])
        return row

    async def press(self, data: str, who: int = OWNER) -> tuple[str, str]:
        """A button with this data on a message of the bot's, pressed; what came of it, and what is said of it.

        A card that an earlier version sent there stands there still: its tag is the Messenger's own.
        """
        keys = {"inline_keyboard": [[{"text": "Approve", "callback_data": data}]]}
        url = f"{self.box.url}/bot{BOT}/sendMessage"
        async with self.fleet.http.post(url, json={"chat_id": who, "text": "card", "reply_markup": keys}) as answer:
            number = (await answer.json())["result"]["message_id"]
        pressed = {"as": who, "chat": who, "message_id": number, "data": data}
        async with self.fleet.http.post(f"{self.box.url}/api/press", json=pressed) as answer:
            told = await answer.json()
        query = told["callback_query_id"]
        [entry] = await self.box.until(lambda e: e.payload.get("callback_query_id") == query)
        return str(await eventually(lambda: self.fleet.value(OUTCOME, told["update_id"]))), entry.text

    @property
    def secret(self) -> bytes:
        """What the Messenger's buttons are signed with; only to play a card that stands there already."""
        return keystore.read(self.fleet.house.home, "messenger").secret

    async def left(self, asked: Mapping[str, object]) -> list[Entry]:
        """What arrived where messages really go, at whom it is for."""
        return [entry for entry in await self.live.journal() if entry.to == asked["to"] and entry.method in SENDS]

    async def in_the_sandbox(self, asked: Mapping[str, object]) -> list[Entry]:
        """What the attacker reads of it."""
        return [entry for entry in await self.box.journal() if str(asked["said"]) in json.dumps(dict(entry.payload))]


@asynccontextmanager
async def mixed(bench: Bench, folder: Path, settings: Callable[[Running], Mapping[str, str]]) -> AsyncIterator[Mixed]:
    async with running(folder) as live:
        house = await bench.house(code=None, butlers=BUTLERS, **{**PACE, **settings(live)})
        fleet = await Fleet.start(house, "one")
        try:
            told = fleet.started[0].out.read_text()
            yield Mixed(fleet, fleet.outside, Outside(live.url, live.http), told)
        finally:
            await fleet.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live_mail(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mixed]:
    """Mail is live, Telegram is the sandbox; after its start the owner gets an address where mail really goes."""

    def settings(live: Running) -> Mapping[str, str]:
        return {"BUTLERS_SMTP_URL": f"smtp://127.0.0.1:{live.smtp_port}", "BUTLERS_EMAIL_FROM": "butlers@people.test"}

    async with mixed(bench, tmp_path_factory.mktemp("live"), settings) as made:
        await made.fleet.sql(MOVED, OWNER_EMAIL, OWNERS_MAIL)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live_telegram(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mixed]:
    """Telegram is live, mail is the sandbox."""

    def settings(live: Running) -> Mapping[str, str]:
        bot = {"BUTLERS_TELEGRAM_TOKEN": "77:live", "BUTLERS_TELEGRAM_BASE_URL": live.url}
        return {**bot, "BUTLERS_OWNER_TELEGRAM": str(CHAT)}

    async with mixed(bench, tmp_path_factory.mktemp("live"), settings) as made:
        yield made


async def quiet(on: Mixed, asked: Mapping[str, object], seconds: float = 1.5) -> None:
    """What was not to happen had the time for it, and did not."""
    await asyncio.sleep(seconds)
    assert await on.left(asked) == []
    assert (await on.action(asked))["status"] == "pending"


async def test_a_look_into_the_sandboxs_journal_and_a_press_on_what_stands_there(live_mail: Mixed) -> None:
    asked = await live_mail.ask()
    await asyncio.sleep(1.5)
    for entry in await live_mail.in_the_sandbox(asked):
        for data in BUTTON.findall(json.dumps(dict(entry.payload))):
            await live_mail.box.press_data(int(entry.provider_id), data)
    await quiet(live_mail, asked)


async def test_a_yes_to_live_mail_pressed_in_the_sandbox(live_mail: Mixed) -> None:
    asked = await live_mail.ask()
    await live_mail.live.until(lambda e: e.to == OWNERS_MAIL and str(asked["said"]) in e.text)
    assert await live_mail.in_the_sandbox(asked) == [], "its card is mailed, and nobody else may read it"
    row = await live_mail.action(asked)
    for verb in ("ok", "no"):
        pressed = await live_mail.press(approval.data(live_mail.secret, row, verb))
        assert pressed == ("not_here", NOT_HERE)
    await quiet(live_mail, asked)
    assert {line["detail"]["caller"] for line in await live_mail.fleet.sql(REFUSED)} == {f"telegram:{OWNER}"}


async def test_a_look_at_live_mail_from_a_digest_in_the_sandbox(live_mail: Mixed) -> None:
    asked = await live_mail.ask()
    row = await live_mail.action(asked)
    pressed = await live_mail.press(approval.data(live_mail.secret, row, digest.SHOW))
    assert pressed == ("not_here", NOT_HERE)
    await quiet(live_mail, asked)
    assert await live_mail.in_the_sandbox(asked) == []


async def test_a_doubt_about_live_mail_answered_in_the_sandbox(live_mail: Mixed) -> None:
    to = f"friend.{uuid4().hex[:8]}@people.test"
    await live_mail.fleet.sql(RULE, to)
    await live_mail.live.fault("email", "dot", "accept_reset", times=1)
    said = fresh.words("doubt")
    answer = await live_mail.fleet.notify("greeter", channel="email", message=said, recipient=to)
    assert answer["status"] == "uncertain", answer
    [row] = await live_mail.fleet.sql(DELIVERY, answer["notification_id"])
    await live_mail.live.until(lambda e: e.to == OWNERS_MAIL and said in e.text)
    for buttons in uncertain.buttons(live_mail.secret, row):
        for button in buttons:
            assert await live_mail.press(button.data) == ("not_here", NOT_HERE)
    await asyncio.sleep(1)
    [after] = await live_mail.fleet.sql(DELIVERY, answer["notification_id"])
    assert (after["status"], after["attempt"]) == ("uncertain", row["attempt"])
    assert await live_mail.in_the_sandbox({"said": said}) == []


async def test_live_mail_that_was_not_delivered_is_told_of_where_it_is_live(live_mail: Mixed) -> None:
    to, said = f"friend.{uuid4().hex[:8]}@people.test", fresh.words("ended")
    await live_mail.fleet.sql(RULE, to)
    await live_mail.live.fault("email", "rcpt", "5xx", times=1)
    answer = await live_mail.fleet.notify("greeter", channel="email", message=said, recipient=to)
    assert answer["status"] == "error", answer
    await live_mail.live.until(lambda e: e.to == OWNERS_MAIL and said in e.text)
    await asyncio.sleep(1)
    assert await live_mail.in_the_sandbox({"said": said}) == []


async def test_a_pairing_code_said_in_the_sandbox(live_mail: Mixed) -> None:
    code, chat = uuid4().hex, fresh.chat()
    await pairings.offer(live_mail.fleet.db, code, STANDARD.pairing)
    await live_mail.box.say(chat, f"/start {code}")
    await eventually(lambda: live_mail.fleet.value("SELECT used_at FROM messenger.pairings WHERE used_at IS NOT NULL"))
    await asyncio.sleep(0.5)
    assert await live_mail.fleet.value(OWNERS_CHATS, str(chat)) == 0


async def test_live_mail_that_nobody_can_be_asked_about_but_on_the_console(live_mail: Mixed) -> None:
    said = "only in the console, because Telegram is the sandbox. Set BUTLERS_TELEGRAM_TOKEN"
    assert f"Warning: Live messages can be approved {said}" in live_mail.told
    await live_mail.fleet.sql(MOVED, OWNERS_MAIL, OWNER_EMAIL)
    try:
        asked = await live_mail.ask()
        await quiet(live_mail, asked)
        assert await live_mail.in_the_sandbox(asked) == []
        assert await live_mail.fleet.sql(CARDS, asked["action_id"]) == []
        code, out, _ = await live_mail.fleet.house.butlers("doctor")
        assert code == 1
        assert f"wrong    asking: Live messages can be approved {said}" in out
    finally:
        await live_mail.fleet.sql(MOVED, OWNER_EMAIL, OWNERS_MAIL)


async def test_a_butler_that_calls_its_live_mail_the_sandboxs(live_mail: Mixed) -> None:
    """A compromised butler writes the realm itself, and gets its yes there; the mail goes by no live server."""
    asked = await live_mail.ask()
    [row] = await live_mail.fleet.sql(COPIED, asked["notification_id"])
    dsn = dsn_as(live_mail.fleet.house.dsn, "greeter", keystore.read(live_mail.fleet.house.home, "greeter").password)
    butler = await asyncpg.connect(dsn)
    try:
        await prepare_connection(butler)
        made, action = str(uuid4()), str(uuid4())
        await butler.execute(FORGED, made, *row.values())
        await butler.execute(FORGED_QUESTION, action, made)
    finally:
        await butler.close()
    await approved_in_the_sandbox(live_mail, action)
    await eventually(ended(live_mail, made))
    assert await live_mail.left(asked) == []


async def test_what_does_not_know_of_the_live_mail_makes_no_sandbox_of_it(live_mail: Mixed) -> None:
    """In a shell without its settings a migration changes nothing of a running Messenger, and a second is refused."""
    plain = {"BUTLERS_SMTP_URL": "", "BUTLERS_EMAIL_FROM": ""}
    before = await live_mail.fleet.value(REALM)
    assert (await live_mail.fleet.house.butlers("migrate", **plain))[0] == 0
    code, _, said = await live_mail.fleet.house.butlers("run", "messenger", **plain)
    assert (code, await live_mail.fleet.value(REALM)) == (1, before)
    assert "A Messenger is running that sends elsewhere by e-mail than this one would." in said


async def test_rows_that_call_the_live_mail_the_sandbox(live_mail: Mixed) -> None:
    """What is asked since goes there at most, whoever said yes."""
    before = await live_mail.fleet.value(REALM)
    await live_mail.fleet.sql(WRITTEN, "sandbox")
    try:
        asked = await live_mail.ask()
        await approved_in_the_sandbox(live_mail, str(asked["action_id"]))
        await eventually(ended(live_mail, str(asked["notification_id"])))
        assert await live_mail.left(asked) == []
    finally:
        await live_mail.fleet.sql(WRITTEN, before)


async def test_what_must_work_beside_it(live_mail: Mixed) -> None:
    """The sandbox decides about its own, and the command line about what is live."""
    asked = await live_mail.ask("telegram")
    card = await live_mail.box.card(str(asked["action_id"]))
    await live_mail.box.press(card, "Approve")
    await live_mail.box.arrived(str(asked["said"]), str(asked["to"]))
    asked = await live_mail.ask()
    code, _, said = await live_mail.fleet.house.butlers("approvals", "approve", str(asked["action_id"]))
    assert code == 0, said
    await live_mail.live.arrived(str(asked["said"]), str(asked["to"]))


async def test_a_card_about_live_telegram_that_falls_back_on_the_sandboxs_mail(live_telegram: Mixed) -> None:
    await live_telegram.live.fault("telegram", "sendMessage", "400", match="wants to message")
    asked = await live_telegram.ask("telegram")
    await eventually(card_failed(live_telegram, asked))
    await quiet(live_telegram, asked)
    assert await live_telegram.in_the_sandbox(asked) == []
    await live_telegram.live.clear_faults()


async def test_a_press_in_the_sandbox_where_telegram_is_live(live_telegram: Mixed) -> None:
    asked = await live_telegram.ask("telegram")
    row = await live_telegram.action(asked)
    pressed = {"as": CHAT, "chat": CHAT, "text": f"/approve {row['id']}"}
    async with live_telegram.fleet.http.post(f"{live_telegram.box.url}/api/say", json=pressed) as answer:
        assert answer.ok
    await quiet(live_telegram, asked)
    assert await live_telegram.in_the_sandbox(asked) == []


async def test_what_must_work_where_telegram_is_live(live_telegram: Mixed) -> None:
    """The owner's own phone decides about both."""
    for channel, where in (("telegram", live_telegram.live), ("email", live_telegram.box)):
        asked = await live_telegram.ask(channel)
        [card] = await live_telegram.live.until(lambda e, asked=asked: str(asked["said"]) in e.text)  # type: ignore[misc]
        data = approval.data(live_telegram.secret, await live_telegram.action(asked), "ok")
        await live_telegram.live.press_data(int(card.provider_id), data, CHAT)
        await where.arrived(str(asked["said"]), str(asked["to"]))


COPIED: Final = """
SELECT key || 'x', lineage || 'x', request_sha, content_sha, envelope, whom, third_party, status,
    answer - 'notification_id'
FROM shared.notifications WHERE id = $1::uuid
"""
FORGED: Final = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha,
    envelope, whom, third_party, status, answer)
VALUES ($1::text::uuid, 'greeter', 'greeter', 'sandbox', $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
FORGED_QUESTION: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, content_sha, agent_summary, notification_id,
    expires_at)
VALUES ($1::text::uuid, 'greeter', '{}', 'x', 'Please.', $2::text::uuid, clock_timestamp() + interval '1 hour')
"""
STANDS: Final = "SELECT status FROM shared.notifications WHERE id = $1::uuid AND status IN ('error', 'ok')"
CARD_FAILED: Final = "SELECT id FROM messenger.deliveries WHERE action_id = $1::uuid AND status = 'failed'"


def ended(on: Mixed, notification: str) -> Callable[[], Awaitable[object]]:
    return lambda: on.fleet.value(STANDS, notification)


def card_failed(on: Mixed, asked: Mapping[str, object]) -> Callable[[], Awaitable[object]]:
    return lambda: on.fleet.value(CARD_FAILED, asked["action_id"])


async def approved_in_the_sandbox(on: Mixed, action: str) -> None:
    """Press Approve there, and again where it was asked anew."""
    async with asyncio.timeout(LONGEST):
        while (await on.fleet.sql(ACTION, action))[0]["status"] == "pending":
            [row] = await on.fleet.sql(ACTION, action)
            await on.press(approval.data(on.secret, row, "ok"))


async def test_the_owner_is_who_the_test_means(live_mail: Mixed) -> None:
    """The attacker presses as the owner: were it not so, it would be refused for that."""
    found = await contacts.target_of(live_mail.fleet.db, contacts.Recipient("recipient", str(OWNER)), "telegram")
    assert isinstance(found, contacts.Target)
    assert found.is_owner
