"""What the owner changes beside messages leaves a line, and what was taken away counts nowhere."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg
import pytest

from butlers.console.storage.sessions import begin, is_live, make_sign_in_link, use_link
from butlers.setup import logins, migrate
from messenger.cards import closing
from messenger.channels.telegram import TelegramChannel
from shared.auth import keystore
from shared.auth.keypairs import public_key
from shared.db import dsn
from shared.errors import ButlersError
from shared.storage import contacts, keyring
from shared.storage.questions import Given
from switchboard.storage import registry
from tests.integration.commands import call, said
from tests.integration.daemon.test_routing import begun, event
from tests.integration.database.test_questions import answered, asked
from tests.integration.doubts import all_cards, cards_written, closed, shown
from tests.integration.house import House, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.signed_in import signed_in
from tests.integration.workers import new_chat
from tests.rig.cluster import Cluster, write_fleet
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNNING = "INSERT INTO switchboard.butlers (name, url, kind) VALUES ('health', 'http://127.0.0.1:1', 'butler')"
MAY_CONNECT = "SELECT has_database_privilege($1, current_database(), 'CONNECT')"
WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
BY_ANOTHER_BOT = "UPDATE messenger.deliveries SET realm = 'another' WHERE action_id = $1"
BEGUN_BY_ANOTHER = "UPDATE messenger.deliveries SET realm = 'another', status = 'queued' WHERE action_id = $1"
ONCE_MORE_BY_ANOTHER = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, realm, action_id, revision, origin_butler)
SELECT class, card_kind, channel, address, 'another', action_id, revision, origin_butler FROM messenger.deliveries
WHERE action_id = $1
"""
# As a butler's process may write it: it waits for nobody.
WITHOUT_A_QUESTION = """
INSERT INTO shared.notifications (origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, status, answer)
SELECT origin_butler, admitted_by, realm, key || '1', lineage || '1', request_sha, envelope, whom, third_party, status,
    answer FROM shared.notifications WHERE id = $1
"""
LINES = "SELECT event_type, actor, reason, detail FROM shared.approval_events ORDER BY seq"


async def changes(house: House, after: int = 0) -> list[Mapping[str, Any]]:
    """What `butlers audit changes` tells of, from the line after that one on."""
    found = json.loads(await said(house, "audit", "changes", "--json"))["changes"]
    return [one for one in found if one["line"] > after]


async def tried(house: House, *argv: str) -> str:
    """What a command prints, and why it ended if it did not end well."""
    ended = await asyncio.to_thread(call, house, *argv)
    return f"{ended.output}{ended.exception or ''}"


async def newest(house: House) -> int:
    return max([int(one["line"]) for one in await changes(house)], default=0)


async def test_whoever_moves_an_address_or_makes_a_token_leaves_a_line(still_house: House) -> None:
    before, first, second = await newest(still_house), new_chat(), new_chat()
    bo = (await said(still_house, "contacts", "add", "Bo", "--telegram", first)).strip()
    for _ in range(2):  # the second time changes nothing
        await said(still_house, "contacts", "set", bo, "--telegram", second, "--primary")
    await said(still_house, "contacts", "forget", bo, "--telegram", first)
    await said(still_house, "token", "greeter", "--for", "1h", "--notices")
    token = (await changes(still_house))[-1]["text"].split(": ")[1].split()[0].rstrip(".")
    assert (await still_house.row("SELECT notices FROM shared.client_tokens WHERE jti = $1", token))["notices"]
    await said(still_house, "tokens", "revoke", token)
    told = await changes(still_house, before)
    assert [one["text"].replace(token, "ID") for one in told] == [
        "Contact Bo was added. (cli)",
        told[1]["text"],
        f"Bo now has the telegram address {second}. (cli)",
        f"The telegram address {second} is now the default of Bo. (cli)",
        told[4]["text"],
        "A client token for greeter was created: ID.",
        "The client token ID for greeter was revoked.",
    ]
    # Of an address that is forgotten the audit keeps a hash alone.
    assert told[1]["text"].startswith("Bo now has the telegram address that is not on file (SHA-256 ")
    assert first not in str([dict(row) for row in await still_house.sql.fetch(LINES)])
    assert "not on file" in told[4]["text"]


async def test_a_contact_is_renamed_and_removed_and_each_leaves_its_line(still_house: House) -> None:
    before, chat = await newest(still_house), new_chat()
    bo = (await said(still_house, "contacts", "add", "Bo Removed", "--telegram", chat)).strip()
    assert await said(still_house, "contacts", "rename", "bo rem", " Bob ") == "Renamed: Bo Removed is now Bob.\n"
    shown = json.loads(await said(still_house, "contacts", "show", bo, "--json"))
    assert (shown["name"], shown["entries"][0]["value"]) == ("Bob", chat)
    taken = await tried(still_house, "contacts", "add", "Ida", "--telegram", chat)
    assert f"{chat} is already an address of Bob ({bo[:8]}). Remove it from that contact first." in taken
    rule = await still_house.rule({"recipient": chat})
    removed = await said(still_house, "contacts", "remove", bo)
    assert removed.startswith(f"Removed: Bob.\nRule {rule} still names {chat}; ")
    assert "No contact matches" in await tried(still_house, "contacts", "show", bo)
    texts = [one["text"] for one in await changes(still_house, before)]
    assert texts[0] == f"Contact {bo} was added. (cli)"
    assert texts[2] == f"Contact {bo} was renamed. (cli)"
    assert texts[-1] == f"Contact {bo} was removed. (cli)"
    assert (len(texts), texts[-2].startswith("The telegram address that is not on file")) == (5, True)
    assert chat not in str([dict(row) for row in await still_house.sql.fetch(LINES)])


async def test_a_contact_stays_while_a_rule_a_brake_or_a_waiting_message_names_it(house: House, message: str) -> None:
    bo = await house.contact("Bo Named", telegram=new_chat())
    rule = (await said(house, "rules", "add", "--to", bo, "--butler", "health", "--deny")).strip()
    await said(house, "brake", "on", "--contact", bo)
    await said(house, "routes", "allow", "greeter", bo)
    asked = await house.notify(message=message, contact_id=bo)
    await house.sql.execute(WITHOUT_A_QUESTION, asked["notification_id"])
    waiting = f"message {str(asked['notification_id'])[:8]}"
    refused = await tried(house, "contacts", "remove", bo)
    assert "Bo Named cannot be removed, as this still names the contact: " in refused
    assert all(what in refused for what in (f"rule {rule[:8]}", "brake ", "route ", waiting))
    await said(house, "rules", "revoke", rule)
    await said(house, "brake", "off", "--contact", bo)
    await said(house, "routes", "remove", refused.partition("route ")[2][:8])
    assert f"names the contact: {waiting}. Revoke the rule" in await tried(house, "contacts", "remove", bo)
    await said(house, "approvals", "deny", str(asked["action_id"]))
    await said(house, "contacts", "remove", bo)


async def test_a_forgotten_address_gets_nothing_by_the_yes_that_named_it(house: House, message: str) -> None:
    chat, other = new_chat(), new_chat()
    bo = await house.contact("Bo", telegram=chat)
    asked = await house.notify(message=message, contact_id=bo)
    [card] = await until(lambda: house.cards(message))
    await said(house, "brake", "on", "--contact", bo)
    assert (await house.press(card))["outcome"] == "approved"
    rule = await house.rule({"recipient": chat}, origin_butler="health")
    told = await said(house, "contacts", "forget", bo, "--telegram", chat)
    assert "Messages to Bo by telegram wait until there is another one" in told
    assert f"revoke it with `butlers rules revoke {rule}`." in told
    assert "has no such telegram address" in await tried(house, "contacts", "forget", bo, "--telegram", chat)
    await said(house, "brake", "off", "--contact", bo)
    await house.settled(asked["notification_id"], "pending_missing_identifier")
    await said(house, "contacts", "set", bo, "--telegram", other)
    anew = await until(lambda: [one for one in house.cards(message) if other in str(one["payload"])])
    assert house.sent(message) == []
    assert (await house.press(anew[-1]))["outcome"] == "approved"
    await house.settled(asked["notification_id"], "ok")
    assert [line["to"] for line in house.sent(message)] == [other]


async def test_a_second_address_says_where_messages_go(still_house: House) -> None:
    old, new = f"{uuid4().hex}@example.org", f"{uuid4().hex}@example.org"
    bo = await still_house.contact("Bo", email=old)
    for more, goes in (((), old), (("--primary",), new)):
        told = await said(still_house, "contacts", "set", bo, "--email", new, *more)
        assert told == f"On file: {new}. Messages to Bo by email now go to {goes}.\n"


def shown_in(house: House, chat: str) -> list[Mapping[str, object]]:
    """What was written or changed in this chat; what a press is answered is shown in none."""
    said = [line for line in house.box.sandbox.lines if str(line["to"]) == chat]
    return [line for line in said if "callback_query_id" not in str(line["payload"])]


async def test_a_chat_that_was_the_owners_decides_nothing_and_the_new_one_is_asked(cluster: Cluster) -> None:
    message, mine = f"hello {uuid4()}", new_chat()
    async with opened(cluster) as house:
        owner = await contacts.owner(house.sql)
        assert owner is not None
        bo = await house.contact("Bo")
        asked = await house.notify(message=message, contact_id=bo)
        [card] = await until(lambda: house.cards(message))
        old = str(card["to"])
        last = await tried(house, "contacts", "forget", owner["id"], "--telegram", old)
        assert "It is the only telegram address where you can be asked" in last
        await said(house, "contacts", "set", owner["id"], "--telegram", mine, "--primary")
        await said(house, "contacts", "forget", owner["id"], "--telegram", old)
        assert (await house.press(card))["outcome"] == "stranger"
        assert await house.status(asked["notification_id"]) == "pending_approval"
        there = len(shown_in(house, old))
        [again] = await until(lambda: [one for one in house.cards(message) if str(one["to"]) == mine])
        assert (await house.press(again, "no", who=int(mine)))["outcome"] == "denied"
        telegram = house.worker().channels["telegram"]
        assert isinstance(telegram, TelegramChannel)
        await closing.close(house.context("messenger"), telegram)
        told = await house.notify(message=f"to me {message}")
        await house.settled(told["notification_id"], "ok")
        assert [line["to"] for line in house.sent(f"to me {message}")] == [mine]
        assert len(shown_in(house, old)) == there


async def test_every_session_ends_by_one_command(still_house: House) -> None:
    async with signed_in(still_house) as thief:
        assert (await thief.get("/contacts")).status == 200
        async with thief.context.db.work() as connection:
            await make_sign_in_link(connection, thief.url, "unused")
        assert (await said(still_house, "sign-in", "--end-all")).startswith("Signed out: ")
        answer = await thief.get("/contacts")
        assert (answer.status, answer.headers["Location"].partition("?")[0]) == (303, "/sign-in")
        assert (await thief.post("/sign-in", code="unused")).status != 303
        assert (await changes(still_house))[-1]["text"].startswith("All browsers were signed out of the console: ")
        async with thief.context.db.work() as connection:
            await make_sign_in_link(connection, thief.url, "fresh")
        assert (await thief.post("/sign-in", code="fresh")).status == 303
        async with thief.context.db.work() as connection:
            await make_sign_in_link(connection, thief.url, "being used")
        async with thief.context.db.work() as connection:
            assert await use_link(connection, "being used")
            await begin(connection, "meanwhile", None, "link")
            ending = asyncio.ensure_future(said(still_house, "sign-in", "--end-all"))
            await eventually(partial(still_house.sql.fetchval, WAITS))
        await ending
        async with thief.context.db.work() as connection:
            assert not await is_live(connection, "meanwhile", None)


REMINDED: Final = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, next_due_at)
VALUES ('health', 'pills', 'tool', '2199-01-01', 'UTC', 'Pills.', 'once', '2199-01-01')
"""


async def test_of_a_butler_that_is_gone_nothing_counts_after_one_command(cluster: Cluster, tmp_path: Path) -> None:
    write_fleet(tmp_path, ["greeter"])
    async with opened(cluster, loops=False) as house:
        remedy = "if it is gone for good, run `butlers keys retire health --gone`."
        assert remedy in await tried(house, "doctor")
        own = await house.rule({"recipient": new_chat()}, origin_butler="health")
        everybodys = await house.rule({"recipient": new_chat()})
        assert "still has its folder" in await tried(house, "keys", "retire", "greeter", "--gone")
        assert "is built in" in await tried(house, "keys", "retire", "owner", "--gone")
        await house.sql.execute(REMINDED)
        await house.sql.execute(RUNNING)
        assert "is still running" in await tried(house, "keys", "retire", "health", "--gone")
        told = await said(
            house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path)
        )  # whoever uses its name
        ended, to_come = told.strip().split("\n")
        assert ended == "Ended for health: keys 1, client tokens 1, rules 1; its login is closed."
        assert to_come == "What health had set itself for a time does not come any more: pills."
        assert remedy not in await tried(house, "doctor")
        password = keystore.read(house.settings.home, "health").password
        assert not await logins.opens(dsn.dsn_as(house.dsn, "health", password))
        assert "health" not in await keyring.counting(house.sql)
        with pytest.raises(ButlersError):
            await house.notify("health", message="still here?")
        active = "SELECT array_agg(id::text) FROM shared.approval_rules WHERE active AND id = ANY ($1)"
        assert await house.sql.fetchval(active, [own, everybodys]) == [everybodys]
        taken = ["key_retired", "token_revoked", "rule_revoked", "login_closed"]
        assert [one["what"] for one in await changes(house)][-4:] == taken
        again = await said(house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path))
        assert again.strip() == "Ended for health: keys 0, client tokens 0, rules 0."
        await said(house, "keys", "rotate", "health")  # its folder came back
        password = keystore.read(house.settings.home, "health").password
        assert await logins.opens(dsn.dsn_as(house.dsn, "health", password))
        assert "health" in await keyring.counting(house.sql)


async def test_what_the_owner_writes_goes_to_no_butler_that_is_gone_for_good(
    cluster: Cluster, tmp_path: Path, message: str
) -> None:
    """Nor to one whose daemon stopped together with its process, and so said that it would be back."""
    write_fleet(tmp_path, ["greeter"])
    async with opened(cluster, loops=False) as house:
        [before] = await begun(house, event(f"{message} 1", OWNER))
        await said(house, "keys", "rotate", "health", "--now")
        [between] = await begun(house, event(f"{message} 2", OWNER))
        assert [one["butler"] for one in (before, between)] == ["health"] * 2
        told = await said(house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path))
        assert "health: The butler's folder was removed. 2 sessions that waited for it ended." in told.splitlines()
        assert f"It was asked: “{message} 1”" in told
        status = "SELECT status FROM shared.sessions WHERE id = ANY ($1)"
        ended = await house.sql.fetch(status, [before["id"], between["id"]])
        assert [row["status"] for row in ended] == ["failed"] * 2
        [after] = await begun(house, event(f"/health {message}", OWNER))
        assert after["butler"] == "greeter"
        because = "SELECT routed_because FROM switchboard.inbox WHERE text = $1"
        assert str(await house.sql.fetchval(because, after["prompt"])).endswith("no butler is called health")
        async with house.context("switchboard").db.work() as connection:
            assert not await registry.has_runtime(connection, "health")


async def test_of_a_butler_that_is_gone_no_question_takes_an_answer(cluster: Cluster, tmp_path: Path) -> None:
    write_fleet(tmp_path, ["greeter"])
    async with opened(cluster, loops=False) as house:
        open_of = {butler: await asked(house, "Yes", "No", butler=butler) for butler in ("health", "greeter")}
        await cards_written(house)
        await all_cards(house)
        [card] = house.cards("Health asks")
        told = await said(house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path))
        assert told.splitlines()[1:] == ["Questions of health that waited for your answer and are withdrawn: 1."]
        assert not await answered(house, open_of["health"], Given(0))
        await closed(house)
        assert "The question of Health was withdrawn." in shown(house, card)
        assert "withdrawn" not in await said(house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path))
        line = await house.row(f"{LINES} DESC LIMIT 1")
        assert (line["event_type"], line["actor"]) == ("question_withdrawn", "owner")
        assert line["detail"] == {"question": open_of["health"]}
        assert await answered(house, open_of["greeter"], Given(0))


async def test_one_connection_that_changes_its_own_password_keeps_nobody_from_taking_its_login(
    cluster: Cluster, tmp_path: Path
) -> None:
    write_fleet(tmp_path, ["greeter"])
    async with opened(cluster, loops=False) as house:
        where, entries = house.settings.home, house.assembly.plan.entries
        stolen = keystore.read(where, "health")
        async with changing_its_password(house):
            told = await migrate.migrate(house.settings, house.dsn, entries)
            assert [one for one in told if "`butlers keys rotate health --now`" in one] == told != []
            assert "Only the new key is valid." in await said(house, "keys", "rotate", "health", "--now")
        new = keystore.read(where, "health")
        assert (await keyring.counting(house.sql))["health"] == [public_key(new.private_pem)]
        opens = [dsn.dsn_as(house.dsn, "health", one) for one in (stolen.password, "mine", new.password)]
        assert [await logins.opens(one) for one in opens] == [False, False, True]
        async with changing_its_password(house):
            ended = await said(house, "keys", "retire", "health", "--gone", "--fleet", str(tmp_path))
        assert ended.strip() == "Ended for health: keys 1, client tokens 1, rules 0; its login is closed."
        assert not await house.sql.fetchval(MAY_CONNECT, dsn.role_of(house.dsn, "health"))


@asynccontextmanager
async def changing_its_password(house: House) -> AsyncIterator[None]:
    """Whoever holds the password of health is about to change it, and must be cut off by the end."""
    password = keystore.read(house.settings.home, "health").password
    held = await asyncpg.connect(dsn.dsn_as(house.dsn, "health", password))
    await held.execute("BEGIN; ALTER ROLE CURRENT_USER PASSWORD 'mine'")
    yield
    await until(held.is_closed)


async def test_a_card_that_waits_follows_to_the_new_bot_and_comes_there_once(still_house: House, message: str) -> None:
    asked = await still_house.notify(message=message, contact_id=await still_house.contact("Bo", telegram=new_chat()))
    await cards_written(still_house)
    await still_house.sql.execute(BY_ANOTHER_BOT, asked["action_id"])
    await all_cards(still_house)
    assert await cards_written(still_house) == 0
    assert len(still_house.cards(message)) == 1
    await still_house.sql.execute(ONCE_MORE_BY_ANOTHER, asked["action_id"])
    await all_cards(still_house)
    assert len(still_house.cards(message)) == 1


async def test_a_card_of_which_a_part_left_by_another_bot_comes_whole(still_house: House, message: str) -> None:
    asked = await still_house.notify(message=message, contact_id=await still_house.contact("Bo", telegram=new_chat()))
    await cards_written(still_house)
    await all_cards(still_house)
    await still_house.sql.execute(BEGUN_BY_ANOTHER, asked["action_id"])
    await all_cards(still_house)
    assert len(still_house.cards(message)) == 2
