"""What waited for an identifier is asked or let go once it is there, and never sent unasked."""

from uuid import uuid4

import pytest

from messenger.maintenance import rechecker
from messenger.storage import transitions
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.doubts import all_cards, cards_written
from tests.integration.house import House
from tests.integration.workers import ACTION, enqueue, new_chat, work
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_HAND = "INSERT INTO shared.contact_info (contact_id, type, value) VALUES ($1, 'telegram', $2)"
STATUS = "SELECT answer FROM shared.notifications WHERE id = $1"
EVENTS = "SELECT event_type FROM shared.approval_events WHERE notification_id = $1 ORDER BY seq"


# What greeter's process may write: the column names somebody who has an address, the message somebody who has none.
NEVER_LET_GO = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    contact_id, third_party, status, answer)
SELECT gen_random_uuid(), 'greeter', 'greeter', 'sandbox', $1 || n, $1 || n, $1 || n,
    '{"schema_version": "notify.v1", "origin_butler": "greeter", "delivery": {"channel": "telegram", "message": "x"}}',
    'contact:' || $2, $3::uuid, true, 'pending_missing_identifier', '{}' FROM generate_series(1, 200) n
"""
OF_ANOTHER = """
UPDATE shared.notifications SET origin_butler = 'health', admitted_by = 'health',
    envelope = envelope || '{"origin_butler": "health"}' WHERE key = $1 RETURNING id::text
"""
ASKED = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, agent_summary, notification_id, expires_at)
SELECT gen_random_uuid(), 'greeter', 'notify', '{}', 'x', id, clock_timestamp() + interval '1 day'
FROM shared.notifications WHERE starts_with(key, $1)
"""


async def short(house: House, message: str) -> tuple[Answer, str]:
    """The answer about a contact without a Telegram identifier, and the contact."""
    contact = await house.contact("Bo", email=f"{uuid4().hex}@example.org")
    answer = await house.notify(message=message, contact_id=contact)
    assert answer["status"] == "pending_missing_identifier", answer
    return answer, contact


async def look_again(house: House) -> int:
    return await rechecker.identified(house.context("messenger"))


async def test_it_is_asked_with_the_address_and_sent_after_the_yes(house: House, message: str) -> None:
    answer, contact = await short(house, message)
    [first] = await until(lambda: house.cards(message))
    chat = new_chat()
    await house.sql.execute(BY_HAND, contact, chat)
    card = (await until(lambda: found if len(found := house.cards(message)) > 1 else None))[-1]
    action = await house.row(ACTION, answer["action_id"])
    assert (action["id"], action["status"], action["revision"]) == (answer["action_id"], "pending", 2)
    assert "wants to send this to Bo" in action["agent_summary"]
    assert action["content_sha"]
    asked = await house.notify(message=message, contact_id=contact)
    assert (asked["status"], asked["action_id"]) == ("pending_approval", answer["action_id"])
    assert house.sent(message) == []
    assert (await house.press(first, "no"))["outcome"] == "stale"
    assert (await house.press(card))["outcome"] == "approved"
    await house.settled(asked["notification_id"], "ok")
    assert [line["to"] for line in house.sent(message)] == [chat]


async def test_an_identifier_added_between_two_equal_calls_makes_no_second_message(house: House, message: str) -> None:
    contact = await house.contact("Noor", email=f"{uuid4().hex}@example.org")
    asked = {"message": message, "contact_id": contact, "request_context": {"request_id": message}}
    first = await house.notify(**asked)
    assert first["status"] == "pending_missing_identifier"
    await house.sql.execute(BY_HAND, contact, new_chat())
    second = await house.notify(**asked)
    assert second["duplicate"] is True
    assert second["action_id"] == first["action_id"]
    count = "SELECT count(*) FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
    assert await house.sql.fetchval(count, message) == 1


async def test_a_standing_rule_lets_it_out_at_once(house: House, message: str) -> None:
    answer, contact = await short(house, message)
    rule = await house.rule({"contact_id": contact})
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    await house.settled(answer["action_id"], "ok")
    action = await house.row(ACTION, answer["action_id"])
    assert (action["status"], action["rule_id"], action["decided_by"]) == ("executed", rule, None)
    assert len(house.sent(message)) == 1
    told = [row["event_type"] for row in await house.sql.fetch(EVENTS, answer["action_id"])]
    assert told == ["parked", "approved", "marked", "executing", "executed"]


async def test_to_the_owner_it_goes_at_once(still_house: House, message: str) -> None:
    owner = await contacts.owner(still_house.sql)
    assert owner is not None
    chat = "DELETE FROM shared.contact_info WHERE contact_id = $1 AND type = 'telegram' RETURNING value"
    value = await still_house.sql.fetchval(chat, owner["id"])
    answer = await still_house.notify(message=message, contact_id=owner["id"])
    assert answer["status"] == "pending_missing_identifier", answer
    await still_house.sql.execute(BY_HAND, owner["id"], value)
    assert await look_again(still_house) == 1
    assert await still_house.status(answer["action_id"]) == "queued"
    await enqueue(still_house, str(answer["action_id"]))
    await work(still_house.worker())
    assert await still_house.status(answer["action_id"]) == "ok"


async def test_what_a_rule_let_go_is_asked_again_when_the_rule_is_gone_before_the_marker(
    still_house: House, message: str
) -> None:
    answer, contact = await short(still_house, message)
    rule = await still_house.rule({"contact_id": contact})
    await still_house.sql.execute(BY_HAND, contact, new_chat())
    assert await look_again(still_house) == 1
    await still_house.sql.execute("DELETE FROM shared.approval_rules WHERE id = $1", rule)
    await enqueue(still_house, str(answer["action_id"]))
    await work(still_house.worker())
    assert still_house.sent(message) == []
    assert await still_house.status(answer["action_id"]) == "pending_approval"
    await cards_written(still_house)
    await all_cards(still_house)
    assert "after you approved it" not in str(still_house.cards(message)[-1]["payload"]), "the owner approved nothing"


async def test_what_was_asked_with_the_address_already_is_not_asked_twice(still_house: House, message: str) -> None:
    answer, contact = await short(still_house, message)
    await still_house.sql.execute(BY_HAND, contact, new_chat())
    assert (await still_house.decide(answer["action_id"])).code == "changed"
    assert await look_again(still_house) == 1
    assert (await still_house.row(ACTION, answer["action_id"]))["revision"] == 2
    assert await still_house.status(answer["action_id"]) == "pending_approval"


async def test_a_deny_rule_ends_it(still_house: House, message: str) -> None:
    answer, contact = await short(still_house, message)
    await still_house.rule({"contact_id": contact}, effect="deny")
    await still_house.sql.execute(BY_HAND, contact, new_chat())
    await look_again(still_house)
    stored = (await still_house.row(STATUS, answer["action_id"]))["answer"]
    assert stored["error"]["class"] == "forbidden"
    assert (await still_house.row(ACTION, answer["action_id"]))["status"] == "cancelled"


async def test_an_identifier_of_another_channel_changes_nothing(still_house: House, message: str) -> None:
    answer, contact = await short(still_house, message)
    await contacts.add_address(still_house.sql, contact, "email", f"{uuid4().hex}@example.org")
    assert await look_again(still_house) == 0
    assert (await still_house.row(ACTION, answer["action_id"]))["revision"] == 1


async def test_an_entry_that_is_no_address_is_left_alone_and_holds_up_nobody(still_house: House, message: str) -> None:
    broken, contact = await short(still_house, f"{message} a")
    sound, other = await short(still_house, f"{message} b")
    await still_house.sql.execute(BY_HAND, contact, f"nobody {uuid4()}")
    await still_house.sql.execute(BY_HAND, other, new_chat())
    assert await look_again(still_house) == 2
    assert await still_house.status(broken["action_id"]) == "pending_missing_identifier"
    assert await still_house.status(sound["action_id"]) == "pending_approval"
    await still_house.sql.execute("DELETE FROM shared.contact_info WHERE contact_id = $1", contact)


async def test_what_one_butler_has_waiting_holds_up_no_other(still_house: House, message: str) -> None:
    has, has_not = (
        await still_house.contact("Has"),
        await still_house.contact("Not", email=f"{uuid4().hex}@example.org"),
    )
    undone = still_house.sql.transaction()
    await undone.start()
    try:
        await still_house.sql.execute(NEVER_LET_GO, message, has_not, has)
        await still_house.sql.execute(ASKED, message)
        other = await still_house.sql.fetchval(OF_ANOTHER, f"{message}200")
        for _ in range(20):
            assert other in await transitions.identified(still_house.sql)
    finally:
        await undone.rollback()
