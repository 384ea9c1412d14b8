"""Stages 2 to 5 with real rows: who is meant, what is the same call, and what waits for the owner."""

import asyncio
from collections import Counter
from uuid import uuid4

import pytest

from shared.errors import IdempotencyConflict
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.house import OWNER_EMAIL, House
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import forced_on_the_owner
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = "SELECT count(*)::int AS n FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
AGE_WINDOW = """
UPDATE shared.request_windows SET first_at = first_at - interval '5 minutes 1 second' WHERE request_sha = $1
"""


def words(about: str) -> str:
    """Words no other test uses."""
    return f"{about} {uuid4()}"


def context(thread: str = f"{OWNER}:1", **more: object) -> dict[str, object]:
    return {
        "request_id": str(uuid4()),
        "source_channel": "telegram_bot",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(OWNER),
        "source_thread_identity": thread,
        **more,
    }


async def admitted(house: House, message: str) -> int:
    row = await house.row(COUNT, message)
    return int(row["n"])


async def test_a_message_to_the_owner_goes_at_once_to_the_owners_own_chat(house: House) -> None:
    message = words("to the owner")
    answer = await house.notify(message=message)
    (line,) = house.sent(message)
    assert answer["status"] == "ok"
    assert answer["delivery"] == {"channel": "telegram", "delivery_id": line["provider_id"], "sandbox": True}
    assert line["to"] == str(OWNER)


async def test_a_mail_to_the_owner_goes_at_once(house: House) -> None:
    message = words("by mail")
    answer = await house.notify(channel="email", message=message, subject="Greetings")
    (line,) = house.sent(message)
    assert (answer["status"], line["to"]) == ("ok", OWNER_EMAIL)


async def test_the_same_call_again_gets_the_current_answer_of_the_first(house: House) -> None:
    message, of = words("twice"), context()
    first = await house.notify(message=message, request_context=of)
    again = await house.notify(message=message, request_context=of)
    assert first["status"] == again["status"] == "ok"
    assert again == {**first, "duplicate": True}
    assert len(house.sent(message)) == 1


async def test_fifty_equal_calls_at_once_reach_the_provider_once_and_all_get_the_answer(house: House) -> None:
    message, of = words("fifty"), context()
    answers = await asyncio.gather(*(house.notify(message=message, request_context=of) for _ in range(50)))
    assert Counter(str(answer["status"]) for answer in answers) == {"ok": 50}
    assert len({str(answer["notification_id"]) for answer in answers}) == 1
    assert Counter(bool(answer.get("duplicate")) for answer in answers) == {True: 49, False: 1}
    assert len(house.sent(message)) == 1


async def test_without_any_lineage_equal_calls_of_five_minutes_are_one_and_later_ones_another(house: House) -> None:
    message = words("no lineage")
    answers = await asyncio.gather(*(house.notify(message=message) for _ in range(10)))
    assert len({str(answer["notification_id"]) for answer in answers}) == 1
    sha = accept("greeter", {"channel": "telegram", "message": message}).request_sha
    assert await house.sql.execute(AGE_WINDOW, sha) == "UPDATE 1"
    later = await house.notify(message=message)
    assert later["notification_id"] != answers[0]["notification_id"]
    assert (await house.notify(message=message))["notification_id"] == later["notification_id"]
    assert len(house.sent(message)) == 2


async def test_another_butler_saying_the_same_in_the_same_request_is_another_message(house: House) -> None:
    message, of = words("both"), context()
    one = await house.notify("greeter", message=message, request_context=of)
    other = await house.notify("health", message=message, request_context=of)
    assert one["notification_id"] != other["notification_id"]
    assert len(house.sent(message)) == 2


async def test_other_words_in_the_same_request_are_another_message(house: House) -> None:
    message, of = words("first of two"), context()
    await house.notify(message=message, request_context=of)
    await house.notify(message=f"{message} and more", request_context=of)
    assert len(house.sent(message)) == 2


async def test_a_reply_with_the_words_of_a_send_is_another_message(house: House) -> None:
    to = await house.notify(message=words("the question"))
    delivery = to["delivery"]
    assert isinstance(delivery, dict)
    message, of = words("sent and replied"), context(f"{OWNER}:{delivery['delivery_id']}")
    send = await house.notify(message=message, request_context=of)
    reply = await house.notify(message=message, request_context=of, intent="reply")
    assert send["notification_id"] != reply["notification_id"]
    assert [line["payload"].get("reply_parameters") is None for line in house.sent(message)] == [True, False]  # type: ignore[attr-defined]


async def test_a_stated_key_names_one_request_and_other_words_under_it_are_a_conflict(house: House) -> None:
    message, of = words("keyed"), {"idempotency_key": str(uuid4())}
    first = await house.notify(message=message, request_context=of)
    assert (await house.notify(message=message, request_context=of))["notification_id"] == first["notification_id"]
    conflict = await house.notify(message=f"{message}!", request_context=of)
    error = conflict["error"]
    assert isinstance(error, dict)
    assert (conflict["status"], error["class"], error["retryable"]) == ("error", "idempotency_conflict", False)
    assert len(house.sent(message)) == 1


async def test_a_conflict_writes_nothing(house: House) -> None:
    message, of = words("conflict"), {"idempotency_key": str(uuid4())}
    context = house.context("greeter")
    admitter = Admitter("greeter", context.db, context.settings.approval_ttl, context.new_id)
    await admit(admitter, accept("greeter", {"channel": "telegram", "message": message, "request_context": of}))
    with pytest.raises(IdempotencyConflict):
        await admit(admitter, accept("greeter", {"channel": "email", "message": message, "request_context": of}))
    assert await admitted(house, message) == 1


async def test_the_same_words_to_a_contact_and_then_to_its_address_are_one_message(house: House) -> None:
    chat = str(7_000_000 + OWNER % 1000)
    anna, message, of = await house.contact("Anna", telegram=chat), words("second fence"), context()
    one = await house.notify(message=message, contact_id=anna, request_context=of)
    other = await house.notify(message=message, recipient=chat, request_context=of)
    assert one["status"] == other["status"] == "pending_approval"
    assert one["notification_id"] == other["notification_id"]
    assert one["action_id"] == other["action_id"]
    assert other["duplicate"] is True
    assert "idempotency_key" in str(other["note"])
    assert await admitted(house, message) == 1


async def test_the_second_fence_does_not_stop_what_goes_to_the_owner(house: House) -> None:
    message, of = words("owner twice"), context()
    await house.notify(message=message, request_context=of)
    await house.notify(message=message, recipient=str(OWNER), request_context=of)
    assert len(house.sent(message)) == 2


async def test_the_owners_address_changed_between_equal_calls_makes_no_second_message(house: House) -> None:
    message, of = words("owner moved"), context()
    first = await house.notify(channel="email", message=message, request_context=of)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    await contacts.add_address(house.sql, owner["id"], "email", "elsewhere@sandbox.test", primary=True)
    try:
        again = await house.notify(channel="email", message=message, request_context=of)
        moved = await house.notify(channel="email", message=f"{message}, new", request_context=of)
    finally:
        await contacts.add_address(house.sql, owner["id"], "email", OWNER_EMAIL, primary=True)
    assert again == {**first, "duplicate": True}
    assert moved["status"] == "ok"
    assert [line["to"] for line in house.sent(message)] == [OWNER_EMAIL, "elsewhere@sandbox.test"]


async def reactions(house: House, *emojis: str) -> tuple[list[Answer], int]:
    """React to one message with these emojis in turn, in one request; the answers and how many were set."""
    to = await house.notify(message=words("react to this"))
    delivery = to["delivery"]
    assert isinstance(delivery, dict)
    thread = f"{OWNER}:{delivery['delivery_id']}"
    of = context(thread)
    told = [await house.notify(intent="react", emoji=emoji, request_context=of) for emoji in emojis]
    lines = house.box.sandbox.lines
    number = int(delivery["delivery_id"])
    return told, sum(one["payload"].get("message_id") == number for one in lines if one["channel"] == "telegram")  # type: ignore[attr-defined]


async def test_like_heart_like_are_three_reactions(house: House) -> None:
    told, count = await reactions(house, "👍", "❤", "👍")
    assert [answer["status"] for answer in told] == ["ok"] * 3
    assert count == 3


async def test_like_like_is_one_reaction(house: House) -> None:
    told, count = await reactions(house, "👍", "👍")
    assert [answer["status"] for answer in told] == ["ok"] * 2
    assert (told[1]["duplicate"], count) == (True, 1)


async def test_a_missing_identifier_parks_with_a_summary_and_tells_the_owner(house: House) -> None:
    berta = await house.contact("Berta", email="berta@example.org")
    message = words("no chat")
    answer = await house.notify(message=message, contact_id=berta)
    assert answer == {
        "status": "pending_missing_identifier",
        "action_id": answer["action_id"],
        "message": "Cannot deliver telegram notification -- no telegram identifier on file.",
    }
    action = await house.row("SELECT * FROM shared.pending_actions WHERE id = $1", str(answer["action_id"]))
    assert (action["tool_name"], action["status"], action["origin_butler"]) == ("notify", "pending", "greeter")
    assert "no telegram identifier on file for Berta" in action["agent_summary"]
    assert action["tool_args"]["message"] == message
    (card,) = await until(lambda: house.cards(message))
    assert "no address on file" in str(card["payload"])
    again = await house.notify(message=message, contact_id=berta)
    assert again["action_id"] == answer["action_id"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((("first@example.org", False), ("second@example.org", True)), "second@example.org"),
        ((("first@example.org", False), ("second@example.org", False)), "first@example.org"),
    ],
)
async def test_the_primary_entry_is_used_or_else_the_first(
    house: House, entries: tuple[tuple[str, bool], ...], expected: str
) -> None:
    carl = await contacts.add_contact(house.sql, "Carl", [])
    insert = "INSERT INTO shared.contact_info (contact_id, type, value, is_primary) VALUES ($1, 'email', $2, $3)"
    tag = uuid4().hex
    for value, primary in entries:
        await house.sql.execute(insert, carl, f"{tag}-{value}", primary)
    await house.rule({"contact_id": carl})
    message = words("primary")
    await house.notify(channel="email", message=message, contact_id=carl)
    assert [line["to"] for line in house.sent(message)] == [f"{tag}-{expected}"]


async def test_an_unknown_address_is_parked(house: House) -> None:
    message = words("to a stranger")
    answer = await house.notify(channel="email", message=message, recipient="unknown@example.org")
    assert answer["status"] == "pending_approval"
    action = await house.row("SELECT * FROM shared.pending_actions WHERE id = $1", str(answer["action_id"]))
    assert "not in your contacts" in action["agent_summary"]
    assert action["tool_args"]["recipient"] == "unknown@example.org"
    assert not house.sent(message)


async def test_a_standing_rule_lets_it_out_at_once_and_is_counted(house: House) -> None:
    dora = await house.contact("Dora")
    rule, message = await house.rule({"contact_id": dora}), words("by rule")
    answer = await house.notify(message=message, contact_id=dora)
    assert (answer["status"], len(house.sent(message))) == ("ok", 1)
    used = await house.sql.fetch("SELECT notification_id FROM shared.rule_uses WHERE rule_id = $1", rule)
    assert [row["notification_id"] for row in used] == [answer["notification_id"]]


async def test_a_deny_rule_refuses_and_is_audited(house: House) -> None:
    emil = await house.contact("Emil")
    await house.rule({"contact_id": emil})
    rule, message = await house.rule({"contact_id": emil}, effect="deny"), words("denied")
    answer = await house.notify(message=message, contact_id=emil)
    error = answer["error"]
    assert isinstance(error, dict)
    assert (answer["status"], error["class"], error["retryable"]) == ("error", "forbidden", False)
    event = await house.row(
        "SELECT * FROM shared.approval_events WHERE notification_id = $1", str(answer["notification_id"])
    )
    assert (event["event_type"], event["actor"], event["rule_id"]) == ("denied_by_rule", "greeter", rule)
    assert not house.sent(message)


async def test_a_group_is_nobodys_own_chat_not_even_the_owners(house: House) -> None:
    await forced_on_the_owner(house, "-100777")
    message = words("to a group")
    answer = await house.notify(message=message, recipient="-100777")
    assert answer["status"] == "pending_approval"
    assert not house.sent(message)


async def test_an_unknown_contact_is_a_validation_error_and_nothing_is_written(house: House) -> None:
    message = words("to nobody")
    answer = await house.notify(message=message, contact_id=str(uuid4()))
    assert answer["status"] == "error"
    assert str(answer["error"]).startswith("No contact has the id")
    assert await admitted(house, message) == 0
