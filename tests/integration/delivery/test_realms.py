"""Where the owner is asked and heard, in every mix of live channels and the sandbox."""

import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers import fleet
from butlers.setup import migrate
from messenger.cards import approval, base, closing, digest, kinds
from messenger.cards.base import Presser
from messenger.channels.base import SendFailed
from messenger.channels.telegram import TelegramChannel
from messenger.maintenance import rechecker, resolver
from messenger.sandbox.journal import Lines
from messenger.sandbox.sandbox import MOST
from messenger.storage import breakers, cards, queries
from shared.addresses import Address
from shared.channels import email, realms
from shared.channels.realms import SANDBOX, SANDBOX_TOKEN
from shared.channels.telegram import SPEC as TELEGRAM
from shared.config.timings import STANDARD
from shared.errors import InvalidInput
from shared.gate import owner_decision
from shared.gate.decide import OTHER_REALM
from shared.storage import contacts, rules, threads
from shared.storage.rules import NewRule
from tests.integration.house import House, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import FREE, admitted, enqueue, new_chat, work
from tests.rig.cluster import BUTLERS, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

REALM = "UPDATE shared.channels SET realm = $2 WHERE channel = $1"
LIVE = {"telegram": "77", "email": "butlers@mail.test"}
ADDRESS = "owner@people.test"
OWNERS_MAIL = "UPDATE shared.contact_info SET value = $2 WHERE type = 'email' AND value = $1"
INVENTED = email.SPEC.sandbox_owner
CHAT = "UPDATE shared.contact_info SET value = $2 WHERE type = 'telegram' AND value = $1"
CHANNELS = "SELECT channel FROM messenger.deliveries WHERE action_id = $1 ORDER BY channel"
REFUSED = "UPDATE messenger.deliveries SET status = 'failed' WHERE action_id = $1 AND channel = 'telegram'"
CARD = "SELECT * FROM messenger.deliveries WHERE action_id = $1"
SENT = "UPDATE messenger.deliveries SET status = 'sent' WHERE action_id = $1 RETURNING id"
RECEIPT = """
INSERT INTO messenger.parts (delivery_id, n, wire_sha, status, provider_id) VALUES ($1, 1, 'sha', 'sent', '7')
"""
TOLD = "SELECT channel FROM messenger.deliveries WHERE class = 'card' AND origin_butler = 'messenger'"
RECEIVED = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, text, routed_to,
    request_context)
VALUES ('telegram', $1, gen_random_uuid()::text, $2, $3, 'what they said', 'greeter', '{}')
"""
OLDER = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '6 seconds'"
NO_MORE = "UPDATE messenger.deliveries SET status = 'cancelled' WHERE class = 'card' AND status = 'queued'"
ACTION = "SELECT id::text, revision, content_sha FROM shared.pending_actions WHERE id = $1"
EXPIRED = """
UPDATE messenger.deliveries SET status = 'expired', settled_at = clock_timestamp() WHERE notification_id = $1
"""
SAID_OF = "SELECT channel, realm FROM messenger.deliveries WHERE card_kind = 'not_delivered' AND about = $1"
ENDED = """
SELECT a.status, n.answer, (SELECT text FROM shared.notices t WHERE t.key = n.id::text AND t.wakes) AS told
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id WHERE a.id = $1
"""
ASKED = """
SELECT n.envelope #>> '{delivery,message}' AS words FROM shared.notifications n
JOIN shared.pending_actions a ON a.notification_id = n.id WHERE a.id = $1
"""
ASKED_FOR = """
SELECT n.realm FROM shared.notifications n JOIN shared.pending_actions a ON a.notification_id = n.id WHERE a.id = $1
"""
DIGESTS = "SELECT digest_id::text, channel FROM messenger.deliveries WHERE digest_id IS NOT NULL ORDER BY channel"
SENT_BY_SANDBOX = """
UPDATE messenger.deliveries SET status = 'sent' WHERE digest_id IS NOT NULL AND realm = 'sandbox'
"""
# What the bot before was asked is over for the next one.
NOTHING_TO_LIST_FOR_78 = """
WITH before AS (UPDATE messenger.deliveries SET status = 'sent' WHERE digest_id IS NOT NULL AND realm = '77'
    RETURNING class, card_kind, channel, address, digest_id, revision, origin_butler)
INSERT INTO messenger.deliveries (class, card_kind, channel, address, digest_id, revision, origin_butler, realm, status)
SELECT *, '78', 'cancelled' FROM before ON CONFLICT DO NOTHING
"""
REALMS_OF_DIGESTS = """
SELECT realm, status FROM messenger.deliveries WHERE digest_id IS NOT NULL ORDER BY realm, status
"""
LOCKED_OUT = SendFailed("unauthorized", "Unauthorized", proved_not_sent=True)


@pytest_asyncio.fixture(loop_scope="module")
async def mixed(still_house: House) -> AsyncIterator[House]:
    """The still house, whose owner has an address where mail really goes; afterwards all is the sandbox."""
    await still_house.sql.execute(OWNERS_MAIL, INVENTED, ADDRESS)
    await still_house.sql.execute(CHAT, str(OWNER), "600000001")
    yield still_house
    await still_house.sql.execute(OWNERS_MAIL, ADDRESS, INVENTED)
    await still_house.sql.execute(CHAT, "600000001", str(OWNER))
    await still_house.sql.execute(NO_MORE)
    await set_realms(still_house, ())


async def set_realms(house: House, live: tuple[str, ...]) -> None:
    """What the rows say of each channel; the Messenger itself has nothing but the sandbox."""
    for channel, realm in LIVE.items():
        await house.sql.execute(REALM, channel, realm if channel in live else SANDBOX)


async def ask(house: House, channel: str) -> str:
    """The question about a message by this channel to somebody else."""
    to = new_chat() if channel == "telegram" else f"{uuid4().hex}@people.test"
    return str((await house.notify(channel=channel, message=f"words {uuid4()}", recipient=to))["action_id"])


async def written(house: House, action: str, burst: int = 1000) -> list[str]:
    """Bys it is asked, once what is missing is written."""
    async with house.context("messenger").db.work() as connection:
        await kinds.write_missing(connection, burst, STANDARD)
    return [row["channel"] for row in await house.sql.fetch(CHANNELS, action)]


@pytest.mark.parametrize(
    ("live", "channel", "asked", "after_a_refusal"),
    [
        ((), "telegram", ["telegram"], ["email", "telegram"]),
        ((), "email", ["telegram"], ["email", "telegram"]),
        (("email",), "telegram", ["telegram"], ["email", "telegram"]),
        (("email",), "email", ["email"], ["email"]),
        (("telegram",), "telegram", ["telegram"], ["telegram"]),
        (("telegram",), "email", ["telegram"], ["email", "telegram"]),
        (("telegram", "email"), "telegram", ["telegram"], ["email", "telegram"]),
        (("telegram", "email"), "email", ["telegram"], ["email", "telegram"]),
    ],
)
async def test_nothing_live_is_asked_about_in_the_sandbox(
    mixed: House, live: tuple[str, ...], channel: str, asked: list[str], after_a_refusal: list[str]
) -> None:
    await set_realms(mixed, live)
    action = await ask(mixed, channel)
    assert await written(mixed, action) == asked
    await mixed.sql.execute(REFUSED, action)
    assert await written(mixed, action) == after_a_refusal


async def test_where_no_live_channel_has_an_owner_it_is_asked_on_the_console_until_one_has(mixed: House) -> None:
    await set_realms(mixed, ("email",))
    await mixed.sql.execute(OWNERS_MAIL, ADDRESS, INVENTED)
    await mixed.sql.execute("UPDATE messenger.deliveries SET counted = false")
    waits = [await ask(mixed, "email") for _ in range(3)]
    own = await ask(mixed, "telegram")
    assert await written(mixed, own, burst=1) == ["telegram"], "what cannot be asked keeps nothing waiting"
    assert [await written(mixed, one) for one in waits] == [[], [], []]
    why = f"{realms.CONSOLE_ONLY} Telegram is the sandbox."
    assert await realms.console_only(mixed.sql) == (why, realms.ASK_ELSEWHERE)
    await mixed.sql.execute(OWNERS_MAIL, INVENTED, ADDRESS)
    assert [await written(mixed, one) for one in waits] == [["email"]] * 3
    assert await realms.console_only(mixed.sql) is None


async def test_with_two_live_accounts_a_block_is_for_both_and_a_permission_for_one(mixed: House) -> None:
    owner, anna = await contacts.owner(mixed.sql), await mixed.contact("Anna", telegram=new_chat())
    assert owner is not None
    await set_realms(mixed, ("telegram", "email"))
    made = await rules.add(mixed.sql, NewRule("deny", {"contact_id": anna}, "greeter"), owner["id"])
    assert await mixed.sql.fetchval("SELECT realm IS NULL FROM shared.approval_rules WHERE id::text = $1", made)
    with pytest.raises(InvalidInput, match="for one bot or mail account"):
        await rules.add(mixed.sql, NewRule("allow", {"contact_id": anna}, "greeter"), owner["id"])


async def test_what_waits_for_another_account_ends_and_what_waits_for_a_sandbox_that_was_live_does_not(
    mixed: House,
) -> None:
    await set_realms(mixed, ("telegram", "email"))
    waits = await ask(mixed, "email")
    for realm, stands in ((SANDBOX, "pending"), ("another@mail.test", "cancelled")):
        await mixed.sql.execute(REALM, "email", realm)
        yes = owner_decision.OwnerDecision(
            waits, approve=True, by=str(uuid4()), surface="cli", lasts=STANDARD.call_told
        )
        async with mixed.context("messenger").db.work() as connection:
            said = await owner_decision.apply(connection, yes)
        assert (said.code, said.text) == ("impossible", f"It cannot be sent: {OTHER_REALM}")
        await rechecker.look_again(mixed.context("messenger"))
        assert (await mixed.row(ENDED, waits))["status"] == stands
    row = await mixed.row(ENDED, waits)
    assert row["answer"]["error"]["message"] == f"Not sent. {OTHER_REALM}"
    assert "Ask again if it is still wanted." in row["told"]


async def test_what_a_bot_that_is_gone_did_not_tell_the_owner_is_told_by_the_new_one(
    mixed: House, message: str
) -> None:
    await set_realms(mixed, ("telegram",))
    told = await admitted(mixed, message)
    await enqueue(mixed, told)
    await mixed.sql.execute(REALM, "telegram", "78")
    await mixed.sql.execute(EXPIRED, told)
    async with mixed.context("messenger").db.work() as connection:
        await kinds.write_missing(connection, 1000, STANDARD)
    delivery = await mixed.delivery(told)
    assert [tuple(row) for row in await mixed.sql.fetch(SAID_OF, delivery["id"])] == [("telegram", "78")]


async def test_a_bot_that_is_not_paired_yet_is_said_with_the_command_that_pairs_it(mixed: House) -> None:
    await set_realms(mixed, ("telegram",))
    await mixed.sql.execute(CHAT, "600000001", str(OWNER))
    unasked = await realms.console_only(mixed.sql)
    await mixed.sql.execute(CHAT, str(OWNER), "600000001")
    assert unasked == (f"{realms.CONSOLE_ONLY} the owner has no private chat with the bot.", realms.PAIR)


async def test_a_digest_lists_in_the_sandbox_nothing_that_is_live(cluster: Cluster) -> None:
    async with opened(cluster, loops=False) as house:
        await set_realms(house, ("email",))
        await house.sql.execute(OWNERS_MAIL, INVENTED, ADDRESS)
        own, live = await ask(house, "telegram"), await ask(house, "email")
        await house.sql.execute(OLDER)
        assert await written(house, own, burst=0) == []
        rows = await house.sql.fetch(DIGESTS)
        assert [row["channel"] for row in rows] == ["email", "telegram"]
        context = house.context("messenger")
        async with context.db.work() as connection:
            shown = {
                realm: [row["id"] for row in await queries.digest_items(connection, rows[0]["digest_id"], realm, 20)]
                for realm in (SANDBOX, LIVE["email"])
            }
            action = await house.row(ACTION, live)
            press = base.read(approval.data(context.secret, action, digest.SHOW), {digest.SHOW})
            assert press is not None
            assert await digest.pressed(connection, press, Presser("", "1", resolver.heed_press), context) == (
                "not_here",
                realms.NOT_HERE,
            )
            assert not await cards.ask_now(connection, live, 1)
        assert shown == {SANDBOX: [own], LIVE["email"]: [own, live]}


async def test_what_comes_after_the_digest_of_a_bot_that_is_gone_stands_in_one_of_the_new_bot(cluster: Cluster) -> None:
    async with opened(cluster, loops=False) as house:
        await house.sql.execute(CHAT, str(OWNER), "600000001")
        for realm in (SANDBOX, "77", "78"):
            await house.sql.execute(REALM, "telegram", realm)
            action = await ask(house, "telegram")
            await house.sql.execute(OLDER)
            await written(house, action, burst=0)
            await house.sql.execute(SENT_BY_SANDBOX)
            await house.sql.execute(NOTHING_TO_LIST_FOR_78)
        rows = await house.sql.fetch(REALMS_OF_DIGESTS)
    assert [tuple(row) for row in rows] == [("77", "sent"), ("78", "cancelled"), ("78", "queued"), ("sandbox", "sent")]


async def test_a_card_that_the_rows_send_into_the_sandbox_is_not_sent_there(mixed: House) -> None:
    """The rows say that Telegram is live, as a migration may have written; the Messenger knows better."""
    await set_realms(mixed, ("telegram", "email"))
    action = await ask(mixed, "email")
    assert await written(mixed, action) == ["telegram"]
    before = len(mixed.box.sandbox.lines)
    while (row := await mixed.row(CARD, action))["status"] == "queued":
        await mixed.sql.execute(FREE)
        await work(mixed.worker())
    assert (row["status"], row["reason"]) == ("cancelled", "sandbox")
    words = str((await mixed.row(ASKED, action))["words"])
    assert not [line for line in mixed.box.sandbox.lines[before:] if words in str(line)]


async def test_a_card_that_stands_in_the_sandbox_loses_its_buttons_and_shows_no_more_of_what_is_live(
    mixed: House,
) -> None:
    await set_realms(mixed, ("telegram", "email"))
    action = await ask(mixed, "email")
    await written(mixed, action)
    await mixed.sql.execute(RECEIPT, await mixed.sql.fetchval(SENT, action))
    async with mixed.context("messenger").db.work() as connection:
        owner = await contacts.owner(connection)
        assert owner is not None
        word = owner_decision.OwnerDecision(action, False, owner["id"], "cli", mixed.settings.approval_ttl)  # noqa: FBT003
        assert (await owner_decision.apply(connection, word)).code == "denied"
    heard: list[tuple[str, Mapping[str, object]]] = []

    class Recorder(TelegramChannel):
        async def call(
            self, method: str, payload: Mapping[str, object], *, wait: float | None = None
        ) -> Mapping[str, object]:
            heard.append((method, payload))
            return {"waited": wait}

    await closing.close(mixed.context("messenger"), Recorder(mixed.box.url, SANDBOX_TOKEN))
    [(method, payload)] = [(method, payload) for method, payload in heard if payload["message_id"] == 7]
    assert (method, payload["reply_markup"]) == ("editMessageReplyMarkup", {"inline_keyboard": []})
    assert "text" not in payload


@pytest.mark.parametrize(
    ("live", "told"),
    [((), ["email"]), (("telegram",), []), (("email",), ["email"]), (("telegram", "email"), ["email"])],
)
async def test_the_pause_of_a_live_channel_is_not_told_in_the_sandbox(
    mixed: House, live: tuple[str, ...], told: list[str]
) -> None:
    await set_realms(mixed, live)
    await mixed.sql.execute(FREE)
    await mixed.sql.execute("UPDATE messenger.deliveries SET origin_butler = 'told' WHERE origin_butler = 'messenger'")
    async with mixed.context("messenger").db.work() as connection:
        await breakers.heed(connection, "telegram", LOCKED_OUT, STANDARD)
        assert await breakers.tell_owner(connection) == 1
    assert [row["channel"] for row in await mixed.sql.fetch(TOLD)] == told
    await mixed.sql.execute(FREE)


# By the channels that are live, the one by which the owner is told.
TOLD_BY = [((), "telegram"), (("telegram",), "telegram"), (("email",), "email"), (("telegram", "email"), "telegram")]


@pytest.mark.parametrize(("live", "channel"), TOLD_BY)
async def test_the_owner_is_told_of_sessions_where_they_really_are(
    mixed: House, live: tuple[str, ...], channel: str
) -> None:
    await set_realms(mixed, live)
    async with mixed.context("greeter").db.work() as connection:
        assert await contacts.owners_channel(connection) == channel


async def test_the_owner_is_told_of_sessions_at_no_address_that_was_invented(mixed: House) -> None:
    await set_realms(mixed, ("telegram", "email"))
    await mixed.sql.execute(CHAT, "600000001", TELEGRAM.sandbox_owner)
    try:
        async with mixed.context("greeter").db.work() as connection:
            assert await contacts.owners_channel(connection) == "email"
    finally:
        await mixed.sql.execute(CHAT, TELEGRAM.sandbox_owner, "600000001")


@pytest.mark.parametrize(("live", "channel"), TOLD_BY)
async def test_the_owner_is_told_of_strangers_where_cards_really_go(
    mixed: House, live: tuple[str, ...], channel: str
) -> None:
    await set_realms(mixed, live)
    async with mixed.context("messenger").db.work() as connection:
        await cards.tell_of(connection, "strangers")
    told = await mixed.sql.fetch("DELETE FROM messenger.deliveries WHERE card_kind = 'strangers' RETURNING channel")
    assert [row["channel"] for row in told] == [channel]


async def test_that_a_messenger_works_is_its_own_word_and_not_the_switchboards(mixed: House) -> None:
    set_up = realms.configured(mixed.settings)
    await set_realms(mixed, ())
    for is_here in (True, False):
        async with mixed.context("messenger").db.work() as connection:
            await realms.note_seen(connection, set_up, is_here=is_here)
            assert await realms.messenger_works(connection, STANDARD.instance_counts) is is_here


async def test_a_migration_without_the_settings_leaves_live_what_was_live(mixed: House) -> None:
    """The Messenger is stopped, and what is asked meanwhile waits for it."""
    await set_realms(mixed, ("email",))
    entries = [fleet.Entry(name, "The same as before.", "") for name in BUTLERS]
    assert await migrate.migrate(mixed.settings, mixed.dsn, entries) == []
    action = await ask(mixed, "email")
    assert await mixed.sql.fetchval(ASKED_FOR, action) == LIVE["email"]


async def test_a_word_on_what_is_live_counts_by_no_surface_of_the_sandbox(mixed: House) -> None:
    await set_realms(mixed, ("email",))
    action, ttl = await ask(mixed, "email"), mixed.settings.approval_ttl
    owner = str(await mixed.sql.fetchval("SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)"))
    for realm in (SANDBOX, None):
        async with mixed.context("messenger").db.work() as connection:
            for approve in (True, False):
                word = owner_decision.OwnerDecision(action, approve, owner, "telegram", ttl, realm=realm)
                assert (await owner_decision.apply(connection, word)).code == "not_here"
            change = owner_decision.Edit(action, "other words", owner, "telegram", ttl, realm=realm)
            assert (await owner_decision.edit(connection, change)).code == "not_here"
    async with mixed.context("messenger").db.work() as connection:
        word = owner_decision.OwnerDecision(action, True, owner, "telegram", ttl, realm="77")  # noqa: FBT003
        assert (await owner_decision.apply(connection, word)).code == "approved"


async def test_noes_said_in_the_sandbox_keep_no_question_about_what_is_live_away(mixed: House) -> None:
    await set_realms(mixed, ("email",))
    contact = await mixed.contact("Zoe", telegram=new_chat(), email=f"{uuid4().hex}@people.test")
    for _ in range(3):
        own = await mixed.notify(message=f"words {uuid4()}", contact_id=contact)
        await mixed.decide(own["action_id"], approve=False)
    assert (await mixed.notify(message=f"words {uuid4()}", contact_id=contact))["status"] == "error"
    live = await mixed.notify(channel="email", message=f"words {uuid4()}", contact_id=contact)
    assert live["status"] == "pending_approval"


async def test_what_the_sandbox_received_proves_no_thread_of_a_live_bot(mixed: House) -> None:
    chat, proved = new_chat(), []
    bots = {11: "1", 12: LIVE["telegram"]}
    for number, bot in bots.items():
        await mixed.sql.execute(RECEIVED, bot, f"{chat}:{number}", chat)
    for live in ((), ("telegram",)):
        await set_realms(mixed, live)
        async with mixed.context("greeter").db.work() as connection:
            address = Address("telegram", chat)
            for number, bot in bots.items():
                answering = threads.Answering(f"{chat}:{number}", bot)
                proved.append(await threads.is_proved(connection, "greeter", address, answering))
    assert proved == [True, False, False, True]


async def test_the_sandboxs_folder_and_files_are_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "sandbox"
    for _ in range(2):
        lines = Lines(folder / "journal.jsonl", MOST)
        lines.append([{"n": 1}])
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "journal.jsonl")]
        assert modes == [0o700, 0o600]
        lines.close()
        folder.chmod(0o755)
        (folder / "journal.jsonl").chmod(0o644)
