"""What comes in goes to one butler, in order per conversation, under a lease; from then on its thread is proved."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from itertools import count
from typing import Final
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Record
from shared.rpc import Answer
from shared.storage import contacts, routing_rules
from switchboard import incoming
from switchboard.storage import inbox, registry
from tests.integration.gate.test_threads import by_mail, by_telegram, mail, payload
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import new_chat
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOUND: Final = "SELECT * FROM switchboard.inbox WHERE text = $1"
ROUTED: Final = f"{FOUND} AND route_until IS NULL AND routed_because IS NOT NULL"
AT: Final = "butlers@sandbox.test"
numbers = count(700_000)


# The card of a question of greeter's, as it was sent to the owner's chat.
CARD = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, realm, about, revision, origin_butler, status,
    settled_at)
VALUES ('card', $2, 'telegram', $1, 'sandbox', gen_random_uuid(), 1, 'greeter', 'sent', clock_timestamp())
"""


STORED_BEFORE = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, sender, text, request_context)
VALUES ('telegram', $1, $2, $3, $4, '{}')
"""
LEFT_TO_BRING = "SELECT update_id FROM messenger.updates WHERE bot = $1 AND handled_at IS NULL ORDER BY 1"


async def there(house: House, *, thinks: bool = False) -> None:
    """Both butlers as their heartbeats note them; health is the default, as its folder says."""
    async with house.context("switchboard").db.work() as connection:
        for name in ("greeter", "health"):
            beat = (name, "http://127.0.0.1:1", "butler", list[str](), "ready", thinks)
            await registry.all_seen(connection, [beat])


def event(text: str, chat: object, number: int | None = None, /, **more: Mapping[str, object]) -> dict[str, object]:
    """ingest.v1 of a message in a private chat."""
    thread = f"{chat}:{next(numbers) if number is None else number}"
    plain: dict[str, dict[str, object]] = {
        "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "1"},
        "event": {
            "external_event_id": thread,
            "external_thread_id": thread,
            "observed_at": datetime.now(UTC).isoformat(),
        },
        "sender": {"identity": str(chat)},
        "payload": {"text": text},
    }
    return {name: {**part, **more.get(name, {})} for name, part in plain.items()}


def letter(text: str, sender: str, message_id: str, **more: Mapping[str, object]) -> dict[str, object]:
    """ingest.v1 of a mail."""
    source = {"channel": "email", "provider": "imap", "endpoint_identity": AT}
    about = {"external_event_id": f"{AT} {message_id}", "external_thread_id": message_id, **more.pop("event", {})}
    return event(text, sender, source=source, event=about, **more)


async def bring(house: House, given: Answer) -> Record:
    """Bring it in as the Messenger does; its row."""
    await there(house)
    assert (await house.hop("messenger", "switchboard", "ingest", given))["status"] == "ok"
    payload_of = given["payload"]
    assert isinstance(payload_of, Mapping)
    return await house.row(FOUND, payload_of["text"])


async def routed(house: House, given: Answer) -> Record:
    """The same, once it is routed by the house."""
    row = await bring(house, given)
    return await eventually(partial(house.sql.fetchrow, ROUTED, row["text"]))


async def test_a_third_party_is_answered_and_reacted_to_in_the_thread_by_rule(house: House, message: str) -> None:
    chat = new_chat()
    for intent in ("reply", "react"):
        await house.rule({"recipient": chat, "intent": intent})
    await there(house)
    number = (await house.box.api("say", as_=int(chat), text=message))["message_id"]
    row = await eventually(partial(house.sql.fetchrow, ROUTED, message))
    assert (row["routed_to"], row["routed_because"]) == ("health", "the default butler")
    given = {"request_context": row["request_context"], "intent": "reply"}
    told = await house.notify("health", message=f"{message}: yes", **given)
    assert (told["status"], told.get("note")) == ("ok", None)
    assert payload(house, f"{message}: yes")["reply_parameters"] == {"message_id": number}
    liked = await house.notify("health", **{**given, "intent": "react", "emoji": "\U0001f44d"})
    assert (liked["status"], liked.get("note")) == ("ok", None)
    elsewhere = await house.notify("greeter", message=f"{message}: no", **given)
    assert (elsewhere["status"], "note" in elsewhere) == ("pending_approval", True)


async def test_a_mail_is_answered_in_its_thread_with_its_subject(house: House, message: str) -> None:
    sender, named = f"{uuid4().hex}@example.org", f"<{uuid4().hex}@example.org>"
    await house.rule({"recipient": sender, "intent": "reply"})
    row = await routed(house, letter(message, sender, named, payload={"text": message, "subject": "Dinner\r\n at 8"}))
    said = f"{message}: with pleasure"
    given = {"channel": "email", "intent": "reply", "request_context": row["request_context"]}
    assert (await house.notify("health", message=said, **given))["status"] == "ok"
    sent = mail(house, said)
    assert (sent["In-Reply-To"], sent["References"], sent["Subject"]) == (named, named, "Re: Dinner at 8")


async def test_a_message_that_answers_ours_goes_to_its_butler_and_names_it(house: House, message: str) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat})
    told = await house.notify("greeter", recipient=chat, message=message)
    number = told["delivery"]["delivery_id"]  # type: ignore[index]  # an object
    row = await routed(house, event(f"{message}: ok", chat, event={"reply_to": f"{chat}:{number}"}))
    assert (row["routed_to"], row["answers"]) == ("greeter", told["notification_id"])
    other = new_chat()
    forged = await routed(house, event(f"{message}: forged", other, event={"reply_to": f"{chat}:{number}"}))
    assert (forged["routed_to"], forged["answers"]) == ("health", None)
    numbered = await routed(house, event(f"{message}: same", other, event={"reply_to": f"{other}:{number}"}))
    assert (numbered["routed_to"], numbered["answers"]) == ("health", None)


async def test_an_event_is_named_by_the_messages_own_number_and_its_realm(house: House, message: str) -> None:
    chat = new_chat()
    await there(house)
    words = f"/greeter said this {message}"
    told = await house.box.api("say", as_=int(chat), text=words)
    row = await eventually(partial(house.sql.fetchrow, ROUTED, words))
    assert row["routed_to"] == "health"
    assert row["thread"] == f"{chat}:{told['message_id']}"
    assert row["external_event_id"].rpartition(":")[0] == row["thread"]
    assert row["request_context"]["request_id"] == f"telegram:1:{row['external_event_id']}"


async def test_a_mail_that_answers_ours_is_resolved_by_its_message_id(house: House, message: str) -> None:
    sender = f"{uuid4().hex}@example.org"
    await house.rule({"recipient": sender})
    told = await house.notify("greeter", channel="email", recipient=sender, message=message)
    ours = str(told["delivery"]["delivery_id"])  # type: ignore[index]  # an object
    answer = letter(f"{message}: ok", sender, f"<{uuid4().hex}@x.org>", event={"reply_to": ours})
    row = await routed(house, answer)
    assert (row["routed_to"], row["answers"]) == ("greeter", told["notification_id"])
    stranger = letter(f"{message}: me too", f"{uuid4().hex}@x.org", f"<{uuid4().hex}@x.org>", event={"reply_to": ours})
    assert (await routed(house, stranger))["answers"] is None


async def test_a_mail_from_another_address_of_the_same_contact_answers_ours_if_it_is_vouched_for(
    house: House, message: str
) -> None:
    written_to, other = f"{uuid4().hex}@example.org", f"{uuid4().hex}@example.org"
    contact = await contacts.add_contact(house.sql, f"Anna {uuid4().hex}", [])
    for address in (written_to, other):
        await contacts.add_address(house.sql, contact, "email", address)
    await house.rule({"recipient": written_to})
    told = await house.notify("greeter", channel="email", recipient=written_to, message=message)
    ours = {"reply_to": str(told["delivery"]["delivery_id"])}  # type: ignore[index]  # an object
    forged = await routed(house, letter(f"{message}: no", other, f"<{uuid4().hex}@x.org>", event={**ours}))
    assert (forged["routed_to"], forged["answers"]) == ("health", None)
    answer = letter(f"{message}: ok", other, f"<{uuid4().hex}@x.org>", event={**ours})
    row = await routed(house, {**answer, "sender": {"identity": other, "verified": True}})
    assert (row["routed_to"], row["answers"]) == ("greeter", told["notification_id"])


async def test_the_owner_names_a_butler_and_the_thread_stays_with_it(house: House, message: str) -> None:
    named = await routed(house, event(f"/greeter {message}", OWNER))
    assert (named["routed_to"], named["routed_because"]) == ("greeter", "the owner named it")
    then = await routed(house, event(f"and {message}", OWNER))
    assert (then["routed_to"], then["routed_because"]) == ("greeter", "its thread went there before")
    unknown = await routed(house, event(f"@nobody {message}", OWNER))
    assert unknown["routed_because"] == "its thread went there before; no butler is called nobody"
    back = await routed(house, event(f"/health {message}", OWNER))
    assert back["routed_to"] == "health"


async def passes(house: House, time: timedelta) -> None:
    """Let all that was said have been said so much earlier."""
    await house.sql.execute("UPDATE switchboard.inbox SET received_at = received_at - $1::interval", time)
    await house.sql.execute("UPDATE messenger.deliveries SET settled_at = settled_at - $1::interval", time)


async def test_words_in_the_owners_chat_go_to_the_butler_that_wrote_there_since_the_owner_did(
    house: House, message: str
) -> None:
    await there(house)
    words = f"/health {message}"
    await house.box.api("say", as_=OWNER, text=words)
    named = await eventually(partial(house.sql.fetchrow, ROUTED, words))
    for butler in ("health", "greeter"):
        assert (await house.notify(butler, message=f"{message}: shall I?"))["status"] == "ok"
    liked = {"intent": "react", "emoji": "\U0001f44d", "request_context": named["request_context"]}
    assert (await house.notify("health", **liked))["status"] == "ok"
    row = await routed(house, event(f"{message}: yes", OWNER))
    assert (row["routed_to"], row["routed_because"]) == ("greeter", "it wrote to the owner last, after health")
    then = await routed(house, event(f"{message}: and", OWNER))
    assert (then["routed_to"], then["routed_because"]) == ("greeter", "its thread went there before")
    assert (await house.notify("health", message=f"{message}: or I?"))["status"] == "ok"
    answer = await routed(house, event(f"{message}: this", OWNER, event={"reply_to": then["thread"]}))
    assert (answer["routed_to"], answer["routed_because"]) == ("greeter", "its thread went there before")
    await passes(house, timedelta(minutes=31))
    late = await routed(house, event(f"{message}: late", OWNER))
    assert (late["routed_to"], late["routed_because"]) == ("health", "the default butler")


@pytest.mark.parametrize("kind", ["question", "tool_call"])
async def test_words_after_a_butlers_question_go_to_that_butler(house: House, message: str, kind: str) -> None:
    await routed(house, event(f"/health {message}", OWNER))
    await house.sql.execute(CARD, str(OWNER), kind)
    row = await routed(house, event(f"{message}: yes", OWNER))
    assert (row["routed_to"], row["routed_because"]) == ("greeter", "it wrote to the owner last")


@pytest.mark.parametrize("kind", ["reaction", "edit"])
async def test_a_reaction_or_an_edit_is_no_turn_of_the_talk(house: House, message: str, kind: str) -> None:
    named = await routed(house, event(f"/health {message}", OWNER))
    assert (await house.notify("greeter", message=f"{message}: shall I?"))["status"] == "ok"
    old = {"kind": kind, "reply_to": named["thread"]}
    assert (await routed(house, event(f"{message}: old", OWNER, event=old)))["routed_to"] == "health"
    row = await routed(house, event(f"{message}: yes", OWNER))
    assert (row["routed_to"], row["routed_because"]) == ("greeter", "it wrote to the owner last")


async def test_words_that_come_late_are_no_answer_to_what_was_said_after_them(house: House, message: str) -> None:
    await routed(house, event(f"/health {message}", OWNER))
    assert (await house.notify("greeter", message=f"{message}: good morning"))["status"] == "ok"
    written = {"observed_at": (datetime.now(UTC) - timedelta(hours=8)).isoformat()}
    late = await routed(house, event(f"{message}: of last night", OWNER, event=written))
    assert (late["routed_to"], late["routed_because"]) == ("health", "its thread went there before")


async def test_words_that_come_late_answer_what_was_said_before_them(house: House, message: str) -> None:
    await there(house)
    await passes(house, timedelta(days=2))
    assert (await house.notify("greeter", message=f"{message}: shall I water the plants?"))["status"] == "ok"
    written = {"observed_at": (datetime.now(UTC) - timedelta(hours=12)).isoformat()}
    went = list[tuple[str, str]]()
    for text, slept in (("yes", True), ("and the garden", False), ("and the lawn", True)):
        await passes(house, timedelta(hours=12, minutes=3) if slept else timedelta())
        row = await routed(house, event(f"{message}: {text}", OWNER, event=written))
        went.append((row["routed_to"], row["routed_because"]))
    assert went == [("greeter", "it wrote to the owner last"), *[("greeter", "its thread went there before")] * 2]


async def test_a_new_mail_of_the_owners_goes_to_no_butler_because_it_wrote_before(house: House, message: str) -> None:
    told = await house.notify("greeter", channel="email", message=message)
    assert told["status"] == "ok"
    address = str(
        await house.sql.fetchval(
            "SELECT address FROM messenger.deliveries WHERE notification_id = $1", UUID(str(told["notification_id"]))
        )
    )
    row = await routed(house, letter(f"{message}: new", address, f"<{uuid4().hex}@x.org>"))
    assert (row["routed_to"], row["routed_because"]) == ("health", "the default butler")


async def test_what_nobody_vouches_for_says_not_where_the_owners_mail_goes(house: House, message: str) -> None:
    address = f"{uuid4().hex}@example.org"
    owner = await contacts.owner(house.sql)
    assert owner is not None
    await contacts.add_address(house.sql, owner["id"], "email", address)
    forged = await routed(house, letter(f"{message}: forged", address, f"<{uuid4().hex}@x.org>"))
    await house.sql.execute("UPDATE switchboard.inbox SET routed_to = 'greeter' WHERE id = $1", forged["id"])
    mail = letter(message, address, f"<{uuid4().hex}@x.org>")
    row = await routed(house, {**mail, "sender": {"identity": address, "verified": True}})
    assert (row["routed_to"], row["routed_because"]) == ("health", "the default butler")


async def test_a_blocked_sender_proves_no_thread(house: House, message: str) -> None:
    chat = new_chat()
    made = await routing_rules.add_route(house.sql, routing_rules.NewRoute(None, "telegram", chat), "owner")
    row = await routed(house, event(message, chat))
    assert (row["routed_to"], row["routed_because"]) == (None, f"blocked by rule {made}")
    answer = await house.notify("health", message=message, **by_telegram(str(row["thread"])))
    assert (answer["status"], "note" in answer) == ("pending_approval", True)
    assert await routing_rules.remove_route(house.sql, made, "owner")


async def test_an_answer_names_the_place_where_the_message_came_in(house: House, message: str) -> None:
    chat, sender, named = new_chat(), f"{uuid4().hex}@example.org", f"<{uuid4().hex}@example.org>"
    for to in (chat, sender):
        await house.rule({"recipient": to, "intent": "reply"})
    row = await routed(house, event(message, chat))
    await routed(house, letter(f"{message} by mail", sender, named))
    for given in (by_telegram(str(row["thread"])), by_mail(sender, named)):
        context = given["request_context"]
        assert isinstance(context, dict)
        context["source_endpoint_identity"] = "of another realm"
        answer = await house.notify("health", message=f"{message} {uuid4()}", **given)
        assert (answer["status"], "note" in answer) == ("pending_approval", True)


async def test_what_came_in_at_another_bot_proves_nothing_here(house: House, message: str) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat, "intent": "reply"})
    row = await routed(house, event(message, chat, source={"endpoint_identity": "424242"}))
    assert row["request_context"]["request_id"].startswith("telegram:424242:")
    given = {"request_context": row["request_context"], "intent": "reply"}
    assert (await house.notify("health", message=message, **given))["status"] == "pending_approval"


async def test_a_route_carries_the_request_it_belongs_to(house: House, message: str) -> None:
    context = {**by_telegram(f"{OWNER}:1")["request_context"], "request_id": message, "extra": 1}  # type: ignore[dict-item]
    told = await house.notify("health", message=message, request_context=context)
    text = "SELECT * FROM switchboard.routes WHERE notification_id = $1"
    row = await eventually(lambda: house.sql.fetchrow(text, UUID(str(told["notification_id"]))))
    assert row["request_id"] == message


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": {"text": "x" * 100_001}},
        {"payload": {"text": "x", "attachments": [{"bytes": "AAAA"}]}},
        {"payload": {"text": "x", "attachments": [{"name": "a"}] * 33}},
        {"sender": {"identity": "7", "display_name": "x" * 201}},
        {"event": {"kind": "A kind"}},
        {"source": {"channel": "carrier pigeon"}},
        {"event": {"external_event_id": ""}},
        {"payload": {"text": "x\0"}},
        {"payload": {"text": "x", "attachments": [{"name": "a", "type": "x\0"}]}},
    ],
)
async def test_an_event_that_does_not_fit_is_refused_and_stored_nowhere(
    house: House, wrong: Mapping[str, Mapping[str, object]]
) -> None:
    before = await house.sql.fetchval("SELECT count(*) FROM switchboard.inbox WHERE sender = '7'")
    told = await house.hop("messenger", "switchboard", "ingest", event("x", 7, **wrong))
    assert (told["status"], bool(told["error"])) == ("error", True)
    assert await house.sql.fetchval("SELECT count(*) FROM switchboard.inbox WHERE sender = '7'") == before


async def test_what_an_earlier_program_brought_in_without_noting_it_is_not_brought_in_again(house: House) -> None:
    chat, bot = int(new_chat()), uuid4().hex
    who = {"chat": {"id": chat}, "from": {"id": chat}}
    # Updates by their number, each with the name and the words of its row in the inbox, if it has one.
    came: list[tuple[Mapping[str, object], str | None, str]] = [
        ({"message": {**who, "message_id": 7, "text": "by its own number"}}, f"{chat}:7", "by its own number"),
        ({"message": {**who, "message_id": 8, "text": "by its update's"}}, "1", "by its update's"),
        ({"message": {**who, "message_id": 9, "media_group_id": "1"}}, None, ""),
        ({"message": {**who, "message_id": 10, "media_group_id": "1", "caption": "all"}}, f"{chat}:10", "one\n\nall"),
        ({"edited_message": {**who, "message_id": 7, "text": "x", "edit_date": 5}}, f"{chat}:7:edit:5:4", "x"),
        ({"message_reaction": {**who, "message_id": 7, "date": 6, "user": {"id": 1}}}, f"{chat}:7:reaction:6:1", ""),
        ({"message": {**who, "message_id": 11, "text": "other words than stand there"}}, f"{chat}:11", ""),
        ({"message": {**who, "message_id": 12, "text": "not brought in"}}, None, ""),
    ]
    for update_id, (body, name, text) in enumerate(came):
        await house.sql.execute("INSERT INTO messenger.updates VALUES ($1, $2, $3)", bot, update_id, body)
        if name is not None:
            await house.sql.execute(STORED_BEFORE, bot, name, str(chat), text)
    await house.sql.execute(import_module("migrations.versions.0095_events_named_by_a_tag").DONE)
    left = await house.sql.fetch(LEFT_TO_BRING, bot)
    assert [row["update_id"] for row in left] == [6, 7]


async def test_a_long_name_of_an_event_makes_a_short_request_id(house: House, message: str) -> None:
    one = await bring(house, event(message, 7, event={"external_event_id": "e" * 900}))
    other = await bring(house, event(f"{message}!", 7, event={"external_event_id": "e" * 901}))
    ids = [str(row["request_context"]["request_id"]) for row in (one, other)]
    assert len(set(ids)) == 2
    assert max(map(len, ids)) <= 200


async def waiting(house: House, chat: str, *texts: str) -> list[Record]:
    return [await bring(house, event(text, chat)) for text in texts]


async def test_of_one_conversation_only_the_oldest_is_taken(still_house: House, message: str) -> None:
    await still_house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    chat, other = new_chat(), new_chat()
    first, second = await waiting(still_house, chat, message, f"{message} 2")
    [third] = await waiting(still_house, other, f"{message} 3")
    lease = timedelta(seconds=10)
    async with still_house.context("switchboard").db.work() as connection:
        taken = [row["id"] for row in await inbox.claim(connection, "a", lease, 10)]
    assert taken == [first["id"], third["id"]]
    async with still_house.context("switchboard").db.work() as connection:
        assert await inbox.claim(connection, "b", lease, 10) == []
        await inbox.done(connection, first["id"], "a")
    async with still_house.context("switchboard").db.work() as connection:
        assert [row["id"] for row in await inbox.claim(connection, "b", lease, 10)] == [second["id"]]


async def test_only_the_holder_of_a_lease_that_lasts_routes(still_house: House, message: str) -> None:
    [row] = await waiting(still_house, new_chat(), message)
    async with still_house.context("switchboard").db.work() as connection:
        assert await inbox.route(connection, row["id"], "nobody", ("health", "x"), None) == (False, None)
        await still_house.sql.execute(
            "UPDATE switchboard.inbox SET route_holder = 'late', route_until = clock_timestamp() - interval '1 ms'"
            " WHERE id = $1",
            row["id"],
        )
        assert await inbox.route(connection, row["id"], "late", ("health", "x"), None) == (False, None)
    assert (await still_house.row(FOUND, message))["routed_to"] is None


async def test_what_a_process_left_is_taken_again_and_stays_where_it_went(still_house: House, message: str) -> None:
    await still_house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    [row] = await waiting(still_house, str(OWNER), message)
    context = still_house.context("switchboard")
    async with context.db.work() as connection:
        [taken] = await inbox.claim(connection, "gone", timedelta(seconds=10), 10)
        assert (await inbox.route(connection, taken["id"], "gone", ("greeter", "then"), None))[0]
    assert await incoming.route_waiting(context) == 0
    await still_house.sql.execute(
        "UPDATE switchboard.inbox SET route_until = clock_timestamp() - interval '1 ms' WHERE id = $1", row["id"]
    )
    assert await incoming.route_waiting(context) == 1
    found = await still_house.row(FOUND, message)
    assert (found["routed_to"], found["routed_because"], found["route_until"]) == ("greeter", "then", None)


async def test_who_was_blocked_meanwhile_reaches_no_butler_by_what_waits(still_house: House, message: str) -> None:
    await still_house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    owner, chat = await contacts.owner(still_house.sql), new_chat()
    assert owner is not None
    await waiting(still_house, chat, message)
    context = still_house.context("switchboard")
    async with context.db.work() as connection:
        [taken] = await inbox.claim(connection, "gone", timedelta(seconds=10), 10)
        assert (await inbox.route(connection, taken["id"], "gone", ("health", "then"), None))[0]
    await routing_rules.block(still_house.sql, "telegram", chat, owner["id"])
    await still_house.sql.execute(
        "UPDATE switchboard.inbox SET route_until = clock_timestamp() WHERE text = $1", message
    )
    assert await incoming.route_waiting(context) == 1
    found = await still_house.row(FOUND, message)
    assert (found["routed_to"], found["stranger"], found["route_until"]) == (None, None, None)
    assert found["routed_because"].startswith("blocked by rule")


async def test_a_message_waits_until_a_butler_is_known(still_house: House, message: str) -> None:
    await still_house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    await waiting(still_house, new_chat(), message)
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
    context = still_house.context("switchboard")
    assert await incoming.route_waiting(context) == 0
    assert (await still_house.row(FOUND, message))["route_until"] is not None
    await there(still_house)
    await still_house.sql.execute(
        "UPDATE switchboard.inbox SET route_until = clock_timestamp() WHERE text = $1", message
    )
    assert await incoming.route_waiting(context) == 1
    assert (await still_house.row(FOUND, message))["routed_to"] == "health"


async def test_only_the_owners_private_chat_is_the_owners_own(still_house: House, message: str) -> None:
    await still_house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    address = await still_house.sql.fetchval(
        "SELECT lookup FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id"
        " WHERE 'owner' = ANY (roles) AND type = 'email'"
    )
    for given in (
        event(f"{message} own", OWNER),
        event(f"{message} group", -100_777, sender={"identity": str(OWNER)}),
        letter(f"{message} mail", str(address or "owner@sandbox.test"), f"<{uuid4().hex}@x.org>"),
        event(f"{message} stranger", new_chat()),
    ):
        await bring(still_house, given)
    async with still_house.context("switchboard").db.work() as connection:
        rows = await inbox.claim(connection, "a", timedelta(seconds=10), 10)
    assert [row["text"] for row in rows if incoming.is_owners_own(row)] == [f"{message} own"]


async def begun(house: House, given: Mapping[str, object], *, thinks: bool = True) -> list[Record]:
    """Bring it in where something thinks for the default butler, or nothing, and route it twice; what that begins."""
    await house.sql.execute("UPDATE switchboard.inbox SET route_until = NULL")
    row = await bring(house, given)
    async with house.context("switchboard").db.work() as connection:
        for name in ("greeter", "health"):  # its thread may have gone to either
            beat = (name, "http://127.0.0.1:1", "butler", list[str](), "ready", thinks)
            await registry.all_seen(connection, [beat])
    for _ in range(2):
        await incoming.route_waiting(house.context("switchboard"))
        await house.sql.execute("UPDATE switchboard.inbox SET route_until = clock_timestamp() WHERE id = $1", row["id"])
    return list(await house.sql.fetch("SELECT * FROM shared.sessions WHERE prompt = $1", row["text"]))


async def test_what_the_owner_writes_begins_one_session_that_knows_what_it_answers(
    still_house: House, message: str
) -> None:
    said = f"/health {message}"
    [session] = await begun(still_house, event(said, OWNER))
    assert (session["butler"], session["cause"], session["prompt"]) == ("health", "message", said)
    assert session["status"] == "waiting"
    assert session["request_context"]["source_sender_identity"] == str(OWNER)


async def test_nothing_else_begins_a_session(still_house: House, message: str) -> None:
    assert await begun(still_house, event(message, OWNER), thinks=False) == []
    assert await begun(still_house, event(f"{message} 2", OWNER, event={"kind": "forward"})) == []
    assert await begun(still_house, event(f"{message} 3", new_chat())) == []
    assert await begun(still_house, event(" ", OWNER, payload={"text": " "})) == []
    await still_house.sql.execute("UPDATE shared.channels SET realm = 'live' WHERE channel = 'email'")
    try:
        assert await begun(still_house, event(f"{message} 4", OWNER)) == []
    finally:
        await still_house.sql.execute("UPDATE shared.channels SET realm = 'sandbox' WHERE channel = 'email'")
