"""A thread of somebody else counts only if a message routed to this very butler proves it, wherever it is looked at."""

from email import message_from_string
from email.message import Message
from uuid import uuid4

import pytest

from shared import answers
from shared.auth import keystore
from shared.db import dsn
from shared.db.pool import Record
from shared.gate.accept import accept
from shared.gate.decide import OWN_REACTIONS
from shared.gate.resolve import resolve
from shared.rpc import Answer
from shared.storage.contacts import Target
from tests.integration.house import OWNER_EMAIL, House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, admitted, enqueue, forced_on_the_owner, new_chat, work
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECEIVED = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, text, routed_to, kind,
    request_context)
SELECT channel, endpoint, gen_random_uuid()::text, $2, $3, 'what they said', $4, $5, '{}' FROM shared.channels
WHERE channel = $1
"""
UNPROVED = "The conversation could not be verified, so it would be sent as a new message."
LIKE = {"intent": "react", "emoji": "\U0001f44d"}
NOT_SEEN = "The message it reacts to could not be verified."


async def received(
    house: House, thread: str | None, sender: str, butler: str | None = "greeter", kind: str = "message"
) -> None:
    """A message that came in and was routed to that butler, or a reaction to one."""
    channel = "email" if "@" in sender else "telegram"
    await house.sql.execute(RECEIVED, channel, thread, sender, butler, kind)


async def said(house: House, chat: str) -> str:
    """The thread of a message that is really there, in a chat of the sandbox."""
    told = await house.box.api("say", as_=int(chat), text=f"hello {uuid4()}")
    return f"{chat}:{told['message_id']}"


def by_telegram(thread: str, **more: object) -> dict[str, object]:
    """A reply's arguments; the thread named is enough, since its chat is whom it is for."""
    context = {
        "request_id": str(uuid4()),
        "source_channel": "telegram_bot",
        "source_endpoint_identity": "1",
        "source_sender_identity": thread.partition(":")[0],
        "source_thread_identity": thread,
    }
    return {"intent": "reply", "request_context": context, **more}


def by_mail(sender: str, thread: str | None, **more: object) -> dict[str, object]:
    context = {
        "request_id": str(uuid4()),
        "source_channel": "email",
        "source_endpoint_identity": "butlers@sandbox.test",
        "source_sender_identity": sender,
    }
    if thread:
        context["source_thread_identity"] = thread
    return {"channel": "email", "intent": "reply", "request_context": context, **more}


async def approved(house: House, answer: Answer) -> str:
    """What the owner's card said, once the yes has let it out."""
    action = await house.row("SELECT * FROM shared.pending_actions WHERE id = $1", answer["action_id"])
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    return str(action["agent_summary"])


def payload(house: House, words: str) -> dict[str, object]:
    [line] = house.sent(words)
    found = line["payload"]
    assert isinstance(found, dict)
    return found


def mail(house: House, words: str) -> Message:
    raw = payload(house, words)["raw"]
    assert isinstance(raw, str)
    return message_from_string(raw)


async def test_a_proved_thread_is_asked_about_and_answered_in(house: House, message: str) -> None:
    chat = new_chat()
    thread = await said(house, chat)
    await received(house, thread, chat)
    answer = await house.notify(message=message, **by_telegram(thread))
    assert (answer["status"], answer.get("note"), house.sent(message)) == ("pending_approval", None, [])
    [card] = await until(lambda: house.cards(message))
    assert "Greeter wants to reply to " in str(card)
    number = thread.partition(":")[2]
    assert f"Reply to message {number} in chat {chat}" in str(card["payload"]["text"])  # type: ignore[index]
    assert UNPROVED not in await approved(house, answer)
    assert payload(house, message)["reply_parameters"] == {"message_id": int(thread.partition(":")[2])}


async def test_a_reply_to_a_message_that_is_gone_reaches_the_owner_and_nobody_else(house: House, message: str) -> None:
    chat, gone = new_chat(), 999_999
    await received(house, f"{OWNER}:{gone}", str(OWNER))
    answer = await house.notify(message=message, **by_telegram(f"{OWNER}:{gone}"))
    assert (answer["status"], len(house.sent(message))) == ("ok", 1)
    await received(house, f"{chat}:{gone}", chat)
    other = f"{message} to others"
    answer = await house.notify(message=other, **by_telegram(f"{chat}:{gone}"))
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "error")
    assert house.sent(other) == []


async def test_an_invented_thread_is_asked_about_and_sent_as_a_new_message(house: House, message: str) -> None:
    chat = new_chat()
    answer = await house.notify(message=message, **by_telegram(f"{chat}:77"))
    assert (answer["status"], answer["note"]) == ("pending_approval", answers.NEW_MESSAGE)
    [card] = await until(lambda: house.cards(message))
    assert "Greeter wants to message " in str(card)
    assert UNPROVED in str(card)
    assert UNPROVED in await approved(house, answer)
    went = payload(house, message)
    assert (str(went["chat_id"]), "reply_parameters" in went) == (chat, False)


@pytest.mark.parametrize("butler", ["health", None])
async def test_what_was_routed_to_another_butler_or_to_none_proves_nothing(
    house: House, message: str, butler: str | None
) -> None:
    chat = new_chat()
    await received(house, f"{chat}:5", chat, butler)
    answer = await house.notify(message=message, **by_telegram(f"{chat}:5"))
    assert (answer["status"], answer["note"]) == ("pending_approval", answers.NEW_MESSAGE)
    await approved(house, answer)
    assert "reply_parameters" not in payload(house, message)


async def test_another_message_of_the_same_chat_proves_nothing(house: House, message: str) -> None:
    chat = new_chat()
    await received(house, f"{chat}:5", chat)
    answer = await house.notify(message=message, **by_telegram(f"{chat}:6"))
    assert answer["note"] == answers.NEW_MESSAGE


async def test_in_the_owners_chat_a_butler_points_at_what_reached_it(house: House, message: str) -> None:
    thread = await said(house, str(OWNER))
    await received(house, thread, str(OWNER))
    answer = await house.notify(message=message, **by_telegram(thread))
    assert (answer["status"], answer.get("note")) == ("ok", None)
    number = int(thread.partition(":")[2])
    assert payload(house, message)["reply_parameters"] == {"message_id": number, "allow_sending_without_reply": True}
    assert (await house.notify(**{**by_telegram(thread), **LIKE}))["status"] == "ok"
    by_letter = await house.notify(message=message, **by_mail(OWNER_EMAIL, "<invented@example.org>"))
    assert (by_letter["status"], by_letter.get("note")) == ("ok", None)


@pytest.mark.parametrize("stored", ["<question@example.org>", "question@example.org"])
async def test_a_mail_that_came_is_answered_in_its_thread(house: House, message: str, stored: str) -> None:
    sender = f"Ann.{uuid4().hex}@Example.ORG"
    await received(house, stored, sender)
    answer = await house.notify(message=message, **by_mail(sender.lower(), "<question@example.org>", subject="Yes"))
    assert (answer["status"], answer.get("note")) == ("pending_approval", None)
    await approved(house, answer)
    assert mail(house, message)["In-Reply-To"] == mail(house, message)["References"] == "<question@example.org>"


@pytest.mark.parametrize("known", ["<other@example.org>", None])
async def test_a_mail_that_nothing_proves_goes_without_a_thread(house: House, message: str, known: str | None) -> None:
    sender = f"{uuid4().hex}@example.org"
    if known:
        await received(house, known, sender)
    answer = await house.notify(message=message, **by_mail(sender, "<question@example.org>", subject="As given"))
    assert (answer["status"], answer["note"]) == ("pending_approval", answers.NEW_MESSAGE)
    await approved(house, answer)
    sent = mail(house, message)
    assert (sent["In-Reply-To"], sent["References"], sent["Subject"]) == (None, None, "As given")


async def test_a_mail_answered_without_its_id_is_proved_by_its_sender(house: House, message: str) -> None:
    sender = f"{uuid4().hex}@example.org"
    await house.rule({"recipient": sender, "intent": "reply"})
    early = await house.notify(message=message, **by_mail(sender, None))
    assert early["status"] == "pending_approval"
    await received(house, "<question@example.org>", sender)
    late = await house.notify(message=f"{message} again", **by_mail(sender, None))
    assert (late["status"], late.get("note")) == ("ok", None)


async def test_a_rule_for_replies_lets_out_proved_ones_only(house: House, message: str) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat, "intent": "reply"})
    thread = await said(house, chat)
    answer = await house.notify(message=f"{message} invented", **by_telegram(f"{chat}:77"))
    assert answer["status"] == "pending_approval"
    await received(house, thread, chat, kind="reaction")
    answer = await house.notify(message=f"{message} reacted to", **by_telegram(thread))
    assert answer["status"] == "pending_approval"
    await received(house, thread, chat)
    answer = await house.notify(message=f"{message} real", **by_telegram(thread))
    assert answer["status"] == "ok"
    assert "reply_parameters" in payload(house, f"{message} real")


async def test_a_rule_for_sending_lets_an_unproved_reply_out_as_a_send(house: House, message: str) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat, "intent": "send"})
    thread = await said(house, chat)
    answer = await house.notify(message=message, **by_telegram(thread))
    assert (answer["status"], answer["note"]) == ("ok", answers.NEW_MESSAGE)
    assert "reply_parameters" not in payload(house, message)
    await received(house, thread, chat)
    answer = await house.notify(message=f"{message} proved", **by_telegram(thread))
    assert answer["status"] == "pending_approval", "proved it is a reply, of which the rule does not speak"


async def test_an_unproved_reaction_waits_for_the_owner_whatever_a_rule_says(house: House) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat})
    thread = await said(house, chat)
    react = {"intent": "react", "emoji": "\U0001f44d"}
    answer = await house.notify(**{**by_telegram(thread), **react})
    assert (answer["status"], answer["note"]) == ("pending_approval", answers.UNSEEN_MESSAGE)
    assert NOT_SEEN in await approved(house, answer)
    await received(house, thread, chat)
    answer = await house.notify(**{**by_telegram(thread), **react, "emoji": "\u2764"})
    assert (answer["status"], answer.get("note")) == ("ok", None)


@pytest.mark.parametrize(
    "whose",
    ["a card", "a card the owner reacted to", "another butler's words", "what was routed to another", "nobody's"],
)
async def test_in_the_owners_chat_a_butler_points_at_nothing_of_others(house: House, message: str, whose: str) -> None:
    thread = f"{OWNER}:99999"
    if whose.startswith("a card"):
        await house.notify(recipient=new_chat(), message=f"{message} for somebody")
        [card] = await until(lambda: house.cards(f"{message} for somebody"))
        thread = f"{OWNER}:{card['provider_id']}"
        if whose != "a card":
            await received(house, thread, str(OWNER), kind="reaction")
    elif whose == "another butler's words":
        other = await house.notify("health", message=f"health: {uuid4()}")
        thread = f"{OWNER}:{other['delivery']['delivery_id']}"  # type: ignore[index]  # an object
    elif whose == "what was routed to another":
        thread = await said(house, str(OWNER))
        here = "UPDATE switchboard.inbox SET routed_to = 'health' WHERE thread = $1 RETURNING id"
        await eventually(lambda: house.sql.fetch(here, thread))
    answer = await house.notify(message=message, **by_telegram(thread))
    assert (answer["status"], answer["note"]) == ("ok", answers.NEW_MESSAGE)
    assert "reply_parameters" not in payload(house, message)
    answer = await house.notify(**{**by_telegram(thread), **LIKE})
    assert (answer["status"], answer["error"]["class"]) == ("error", "forbidden")  # type: ignore[index]  # an object
    assert (answer["error"]["message"], "note" in answer) == (OWN_REACTIONS, False)  # type: ignore[index]


async def action_of(house: House, notification_id: str) -> Record:
    return await house.row(ACTION, notification_id)


async def test_what_becomes_proved_before_the_press_is_asked_anew(still_house: House, message: str) -> None:
    chat = new_chat()
    thread = await said(still_house, chat)
    told = await admitted(still_house, message, **by_telegram(thread))
    first = await action_of(still_house, told)
    await received(still_house, thread, chat)
    assert (await still_house.decide(first["id"])).code == "changed"
    again = await action_of(still_house, told)
    assert (again["id"], again["revision"], again["status"]) == (first["id"], 2, "pending")
    assert UNPROVED not in again["agent_summary"]
    assert (await still_house.decide(first["id"])).code == "approved"
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert "reply_parameters" in payload(still_house, message)


async def test_what_becomes_proved_after_the_yes_is_asked_anew_at_the_marker(still_house: House, message: str) -> None:
    chat = new_chat()
    told = await admitted(still_house, message, **by_telegram(f"{chat}:7"))
    asked = await action_of(still_house, told)
    assert (await still_house.decide(asked["id"])).code == "approved"
    await received(still_house, f"{chat}:7", chat)
    await enqueue(still_house, told)
    await work(still_house.worker())
    again = await action_of(still_house, told)
    assert (again["status"], again["revision"], still_house.sent(message)) == ("pending", 2, [])
    assert UNPROVED not in again["agent_summary"]


async def test_what_is_proved_no_more_does_not_leave_by_a_rule_for_replies(still_house: House, message: str) -> None:
    chat = new_chat()
    await still_house.rule({"recipient": chat, "intent": "reply"})
    await received(still_house, f"{chat}:7", chat)
    told = await admitted(still_house, message, **by_telegram(f"{chat}:7"))
    await enqueue(still_house, told)
    await still_house.sql.execute("UPDATE switchboard.inbox SET routed_to = 'health' WHERE thread = $1", f"{chat}:7")
    await work(still_house.worker())
    assert ((await action_of(still_house, told))["status"], still_house.sent(message)) == ("pending", [])


@pytest.mark.parametrize("name", ["greeter", "switchboard", "messenger", "console", keystore.OWNER])
async def test_everybody_who_looks_sees_the_same(still_house: House, name: str) -> None:
    chat, other = new_chat(), new_chat()
    await received(still_house, f"{chat}:7", chat)
    await received(still_house, f"{other}:7", other, "health")
    role = dsn.role_of(still_house.dsn, name)
    for thread, unproved in ((f"{chat}:7", False), (f"{chat}:8", True), (f"{other}:7", True)):
        call = accept("greeter", {"channel": "telegram", "message": "x", **by_telegram(thread)})
        async with still_house.sql.transaction():
            await still_house.sql.execute("SELECT set_config('role', $1, true)", role)
            target = await resolve(still_house.sql, call.envelope, call.whom)
        assert isinstance(target, Target)
        assert target.unproved is unproved


async def test_what_cannot_be_read_lets_nothing_out(house: House, message: str) -> None:
    chat = new_chat()
    await house.rule({"recipient": chat})
    await received(house, f"{chat}:7", chat)
    await house.sql.execute("REVOKE SELECT ON shared.threads FROM butlers_group_butler")
    try:
        answer = await house.notify(message=message, **by_telegram(f"{chat}:7"))
    finally:
        await house.sql.execute("GRANT SELECT ON shared.threads TO butlers_group_butler")
    assert answer["status"] == "error"
    count = "SELECT count(*) AS n FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
    assert ((await house.row(count, message))["n"], house.sent(message)) == (0, [])


async def test_a_group_the_owner_is_in_is_not_the_owners_own_thread(house: House, message: str) -> None:
    await forced_on_the_owner(house, "-100888")
    answer = await house.notify(message=message, **by_telegram("-100888:3"))
    assert (answer["status"], answer["note"]) == ("pending_approval", answers.NEW_MESSAGE)
