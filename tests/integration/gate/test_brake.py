"""The brake delays and decides nothing; a rule counts until it is revoked; a message can explain itself."""

from datetime import timedelta

import pytest
import pytest_asyncio

from shared import answers
from shared.storage import brakes, contacts, rules
from shared.storage.brakes import Scope
from shared.storage.history import life
from shared.storage.rules import NewRule
from tests.integration.house import House
from tests.integration.workers import DUE, admitted, enqueue, friend, in_queue, new_chat, work, worker_where
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Before the twenty seconds after which any brake is looked at again.
ENDS = "INSERT INTO shared.brakes (contact_id, until) VALUES ($1, clock_timestamp() + interval '15 seconds')"
BY_ITS_END = """
SELECT abs(extract(epoch FROM send_at - until)) < 0.001 FROM messenger.deliveries d, shared.brakes b
WHERE d.id = $1 AND b.contact_id = $2
"""
SINCE = "SELECT clock_timestamp() - $1::timestamptz"
TOO_LATE = "UPDATE shared.notifications SET not_after = clock_timestamp() WHERE id = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def owner(still_house: House) -> str:
    return await owner_of(still_house)


async def owner_of(house: House) -> str:
    found = await contacts.owner(house.sql)
    assert found is not None
    return str(found["id"])


async def test_a_brake_put_on_after_preparing_stops_at_the_marker(still_house: House, message: str, owner: str) -> None:
    contact = await friend(still_house)
    told, scope = await in_queue(still_house, message, contact_id=contact), Scope(contact_id=contact)
    await work(worker_where(still_house, lambda: brakes.put_on(still_house.sql, scope, owner)))
    row = await still_house.delivery(told)
    assert (row["status"], row["reason"], row["attempt"]) == ("queued", "braked", 0)
    assert still_house.sent(message) == []
    stored = await still_house.row("SELECT status, answer FROM shared.notifications WHERE id = $1", told)
    assert (stored["status"], stored["answer"]["message"]) == ("queued", answers.BRAKED)
    assert len(await brakes.lift(still_house.sql, scope, owner)) == 1
    await still_house.sql.execute(DUE, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1
    assert (await still_house.delivery(told))["attempt"] == 1


async def test_a_delayed_message_blocks_nobody_in_its_chat(still_house: House, message: str, owner: str) -> None:
    chat = new_chat()
    await still_house.rule({"recipient": chat})
    scope = Scope(butler="health")
    await brakes.put_on(still_house.sql, scope, owner)
    first = await admitted(still_house, f"{message} first", "health", recipient=chat)
    await enqueue(still_house, first)
    await work(still_house.worker())
    await in_queue(still_house, f"{message} second", recipient=chat)
    await work(still_house.worker())
    assert (await still_house.delivery(first))["reason"] == "braked"
    assert len(still_house.sent(f"{message} second")) == 1
    await brakes.lift(still_house.sql, scope, owner)


async def test_a_brake_with_an_end_is_looked_at_again_then(still_house: House, message: str) -> None:
    contact = await friend(still_house)
    await still_house.sql.execute(ENDS, contact)
    told = await in_queue(still_house, message, contact_id=contact)
    await work(still_house.worker())
    row = await still_house.delivery(told)
    assert row["reason"] == "braked"
    assert await still_house.sql.fetchval(BY_ITS_END, row["id"], contact)


async def test_what_is_delayed_past_its_time_is_not_sent(still_house: House, message: str, owner: str) -> None:
    contact = await friend(still_house)
    await brakes.put_on(still_house.sql, Scope(contact_id=contact), owner)
    told = await in_queue(still_house, message, contact_id=contact)
    await work(still_house.worker())
    await still_house.sql.execute(TOO_LATE, told)
    await still_house.sql.execute(DUE, told)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "expired"
    assert await still_house.status(told) == "error"


async def test_lifting_sends_at_once_and_who_waits_is_told_why(house: House, message: str) -> None:
    by, contact = await owner_of(house), await friend(house)
    scope = Scope(contact_id=contact)
    await brakes.put_on(house.sql, scope, by)
    asked_at = await house.sql.fetchval("SELECT clock_timestamp()")
    answer = await house.notify(message=message, contact_id=contact)
    assert await house.sql.fetchval(SINCE, asked_at) < timedelta(seconds=8)  # who waits in vain waits ten
    assert (answer["status"], answer["message"]) == ("queued", answers.BRAKED)
    again = await house.notify(message=message, contact_id=contact)
    assert (again["status"], again["message"], again["duplicate"]) == ("queued", answers.BRAKED, True)
    async with house.sql.transaction():
        await brakes.lift(house.sql, scope, by)
    lifted_at = await house.sql.fetchval("SELECT clock_timestamp()")
    await house.settled(answer["notification_id"], "ok")
    sent_at = (await house.delivery(answer["notification_id"]))["settled_at"]
    assert sent_at - lifted_at < timedelta(seconds=10)  # by itself it would be looked at after twenty
    assert len(house.sent(message)) == 1


async def test_the_owner_is_told_and_asked_under_the_brake(house: House, message: str) -> None:
    by = await owner_of(house)
    await brakes.put_on(house.sql, Scope(butler="health"), by)
    assert (await house.notify("health", message=message))["status"] == "ok"
    asked = await house.notify("health", message=f"{message} asked", recipient=new_chat())
    assert asked["status"] == "pending_approval"
    await until(lambda: house.cards(f"{message} asked") or None)
    await brakes.lift(house.sql, Scope(butler="health"), by)
    await brakes.put_on(house.sql, Scope(butler="health"), by, owner_too=True)
    answer = await house.notify("health", message=f"{message} too")
    assert (answer["status"], answer["message"]) == ("queued", answers.BRAKED)
    async with house.sql.transaction():
        await brakes.lift(house.sql, Scope(butler="health"), by)
    await house.settled(answer["notification_id"], "ok")


async def test_a_rule_counts_until_it_is_revoked_and_a_message_explains_itself(house: House, message: str) -> None:
    by, contact = await owner_of(house), await house.contact("Ruth")
    rule = await rules.add(house.sql, NewRule("allow", {"contact_id": contact}), by)
    sent = await house.notify(message=message, contact_id=contact)
    assert sent["status"] == "ok"
    assert await rules.revoke(house.sql, rule, by)
    assert not await rules.revoke(house.sql, rule, by)
    after = await house.notify(message=f"{message} after", contact_id=contact)
    assert after["status"] == "pending_approval"
    text = "SELECT event_type FROM shared.approval_events WHERE rule_id = $1 AND actor = 'owner' ORDER BY seq"
    assert [row["event_type"] for row in await house.sql.fetch(text, rule)] == ["rule_made", "rule_revoked"]
    found = await life(house.sql, str(sent["notification_id"])[:12])
    happened = [step.what for step in found.steps if step.what != "route"]
    assert happened == ["asked", "admitted", "delivery", "marked", "rule", "sent"]
    assert (found.notification_id, found.status) == (sent["notification_id"], "ok")
    await house.decide(after["action_id"], reason="Fine.")
    await house.settled(after["notification_id"], "ok")
    by_action = await life(house.sql, str(after["action_id"]))
    said = {step.what: step.text for step in by_action.steps}
    assert "No rule allows it." in said["parked"]
    assert said["approved"].startswith("owner (")
    assert "via test. Fine." in said["approved"]
    assert by_action.notification_id == after["notification_id"]
