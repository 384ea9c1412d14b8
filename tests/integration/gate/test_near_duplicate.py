"""Words that may have arrived: other ones of their request, and equal ones, are asked about, but never to the owner."""

from uuid import uuid4

import pytest

from messenger.delivery import loop
from messenger.storage import transitions
from shared.gate.accept import accept
from shared.hashing import reference
from shared.idempotency import notification_key
from tests.integration.delivery.test_late_receipts import late_desk
from tests.integration.doubts import say, uncertain
from tests.integration.house import House
from tests.integration.workers import ACTION, admitted, enqueue, friend, in_queue, work
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


DUE = "UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE notification_id = $1"
LATER = "UPDATE messenger.deliveries SET send_at = clock_timestamp() + interval '1 hour' WHERE notification_id = $1"
LONG_AGO = """
UPDATE messenger.attempts SET started_at = started_at - interval '2 minutes', ended_at = ended_at - interval '2 minutes'
WHERE delivery_id = (SELECT id FROM messenger.deliveries WHERE notification_id = $1)
"""
NOTED_BEFORE = """
UPDATE shared.notifications SET request_sha = $2, key = $3, content_sha = NULL WHERE request_sha = $1
"""
REWORDED = "Fact: the same in other words, "


async def anna_and_request(house: House) -> dict[str, object]:
    """Somebody a rule allows to be written to, in a request of its own."""
    return {"contact_id": await friend(house), **request()}


def request() -> dict[str, object]:
    """What names a request of its own."""
    return {"request_context": {"request_id": str(uuid4())}}


async def test_other_words_of_a_request_that_may_have_arrived_are_asked_about(still_house: House, message: str) -> None:
    to = await anna_and_request(still_house)
    first = await uncertain(still_house, message, **to)
    second = await in_queue(still_house, REWORDED + message, **to)
    await work(still_house.worker())
    assert await still_house.status(second) == "pending_approval"
    assert len(still_house.sent(message)) == 1
    action = await still_house.row(ACTION, second)
    ref = reference((await still_house.delivery(first))["id"])
    assert f"is being sent or may have arrived (ref {ref})" in action["agent_summary"]
    await work(still_house.worker())
    assert (await still_house.decide(action["id"])).code == "approved"
    await enqueue(still_house, second)
    await work(still_house.worker())
    assert await still_house.status(second) == "ok"


async def test_other_words_while_the_first_are_on_their_way_are_asked_about(still_house: House, message: str) -> None:
    to = await anna_and_request(still_house)
    await in_queue(still_house, message, **to)
    late = late_desk(still_house)
    await loop.claim_some(late.worker)
    await until(lambda: still_house.sent(message))
    second = await in_queue(still_house, REWORDED + message, **to)
    await late.answered()
    await work(still_house.worker())
    assert await still_house.status(second) == "pending_approval"


async def test_other_words_while_the_first_wait_for_their_next_try_are_asked_about(
    still_house: House, message: str
) -> None:
    to = await anna_and_request(still_house)
    first = await tried_in_vain(still_house, message, to)
    second = await in_queue(still_house, REWORDED + message, **to)
    await work(still_house.worker())
    assert await still_house.status(second) == "pending_approval"
    await still_house.sql.execute(DUE, first)
    await work(still_house.worker())
    assert await still_house.status(first) == "ok", "who came first waits for nobody"


async def test_other_words_that_were_asked_before_the_first_arrived_are_asked_about(
    still_house: House, message: str
) -> None:
    to = await anna_and_request(still_house)
    first = await tried_in_vain(still_house, message, to)
    second = await in_queue(still_house, REWORDED + message, **to)
    await still_house.sql.execute(LATER, second)
    await still_house.sql.execute(DUE, first)
    await work(still_house.worker())
    assert (await still_house.status(first), await still_house.status(second)) == ("ok", "queued")
    await still_house.sql.execute(DUE, second)
    await work(still_house.worker())
    assert await still_house.status(second) == "pending_approval"


async def test_what_the_provider_refused_holds_no_other_words_up(still_house: House, message: str) -> None:
    to = await anna_and_request(still_house)
    first = await tried_in_vain(still_house, message, to)
    second = await in_queue(still_house, REWORDED + message, **to)
    await still_house.fault(message, "403", times=1)
    await still_house.sql.execute(DUE, first)
    await work(still_house.worker())
    assert [await still_house.status(one) for one in (first, second)] == ["error", "queued"]
    await work(still_house.worker())
    assert await still_house.status(second) == "ok"


async def tried_in_vain(house: House, message: str, to: dict[str, object]) -> str:
    """It failed once before its marker, so long ago that nobody waits behind it."""
    told = await in_queue(house, message, **to)
    await house.fault(message, "drop_before_body", times=1)
    await work(house.worker())
    assert (await house.delivery(told))["status"] == "queued"
    await house.sql.execute(LONG_AGO, told)
    await house.sql.execute(LATER, told)
    return told


async def test_other_requests_other_people_and_what_was_settled_are_not_held_up(
    still_house: House, message: str
) -> None:
    to = await anna_and_request(still_house)
    await uncertain(still_house, message, **to)
    other_request = {**to, "request_context": {"request_id": str(uuid4())}}
    other_person = {**to, "contact_id": await friend(still_house)}
    settled = await anna_and_request(still_house)
    await in_queue(still_house, f"sent {message}", **settled)
    await work(still_house.worker())
    for more in (other_request, other_person, settled):
        told = await in_queue(still_house, f"{REWORDED} {uuid4()}", **more)
        await work(still_house.worker())
        assert await still_house.status(told) == "ok"


@pytest.mark.parametrize("by", [("email", "B.$@example.org"), ("telegram", "@B_$")])
async def test_an_address_on_no_contact_is_one_recipient_in_every_spelling(
    still_house: House, message: str, by: tuple[str, str]
) -> None:
    to = by[1].replace("$", message[-9:])
    said, again = [{"channel": by[0], "recipient": spelling} for spelling in (to, to.lower())]
    waits = await admitted(still_house, message, **said)
    assert await admitted(still_house, message, **again) == waits, "asked twice"
    await still_house.rule({"recipient": to.lower()})
    for more in ({}, {"request_context": {"request_id": str(uuid4())}}):
        words = f"{message} {len(more)}"
        told = await in_queue(still_house, words, **said, **more)
        assert await admitted(still_house, words, **again, **more) == told, "sent twice"
        await work(still_house.worker())
        assert (await still_house.delivery(told))["address"] == to, "the wire keeps the spelling"
        assert await still_house.status(told) == "ok"


async def test_other_words_to_another_spelling_of_an_address_are_asked_about(still_house: House, message: str) -> None:
    to, request = f"@B_{message[-9:]}", {"request_context": {"request_id": str(uuid4())}}
    await still_house.rule({"recipient": to})
    first = await uncertain(still_house, message, recipient=to, **request)
    second = await in_queue(still_house, REWORDED + message, recipient=to.lower(), **request)
    await work(still_house.worker())
    assert (await still_house.status(first), await still_house.status(second)) == ("uncertain", "pending_approval")


async def test_a_call_that_an_older_program_noted_is_the_same_call(still_house: House, message: str) -> None:
    """It kept every hash by the spelling that was said."""
    to = f"Bob.{uuid4()}@example.org"
    await still_house.rule({"recipient": to})
    said = {"channel": "email", "recipient": to, "request_context": {"request_id": str(uuid4())}}
    told = await admitted(still_house, message, **said)
    call = accept("greeter", {"message": message, **said})
    row = await still_house.row("SELECT lineage FROM shared.notifications WHERE id = $1", told)
    key = notification_key("greeter", row["lineage"], call.said_sha)
    assert await still_house.sql.execute(NOTED_BEFORE, call.request_sha, call.said_sha, key) == "UPDATE 1"
    assert await admitted(still_house, message, **said) == told


async def test_the_same_words_of_another_request_wait_while_the_first_may_have_arrived(
    still_house: House, message: str
) -> None:
    to = {"contact_id": await friend(still_house)}
    first = await uncertain(still_house, message, **to)
    second, third = [await in_queue(still_house, message, **to, **request()) for _ in range(2)]
    for one in (second, third):
        await work(still_house.worker())
        assert await still_house.status(one) == "pending_approval"
    assert await say(still_house, first, "again") == "done"
    await work(still_house.worker())
    assert (await still_house.status(first), len(still_house.sent(message))) == ("ok", 2), "the owner had it sent again"
    fourth = await in_queue(still_house, message, **to, **request())
    await work(still_house.worker())
    assert await still_house.status(fourth) == "ok", "nothing is uncertain any more"


async def test_the_same_words_wait_for_what_a_backup_made_uncertain_too(still_house: House, message: str) -> None:
    to = {"contact_id": await friend(still_house)}
    never_marked = await in_queue(still_house, message, **to)
    async with still_house.context("messenger").db.work() as connection:
        assert await transitions.make_uncertain(connection, never_marked)
    again = await in_queue(still_house, message, **to, **request())
    await work(still_house.worker())
    assert await still_house.status(again) == "pending_approval"


async def test_what_the_owner_has_sent_again_waits_for_no_equal_message(still_house: House, message: str) -> None:
    to = {"contact_id": await friend(still_house)}
    first = await uncertain(still_house, message, **to)
    second = await in_queue(still_house, message, **to, **request())
    await work(still_house.worker())
    assert (await still_house.decide((await still_house.row(ACTION, second))["id"])).code == "approved"
    await still_house.fault(message, "accept_reset", times=1)
    await enqueue(still_house, second)
    await work(still_house.worker())
    assert await still_house.status(second) == "uncertain"
    assert await say(still_house, first, "again") == "done"
    await work(still_house.worker())
    assert await still_house.status(first) == "ok"


async def test_the_owner_hears_other_words_at_once(still_house: House, message: str) -> None:
    of: dict[str, object] = {"request_context": {"request_id": str(uuid4())}}
    first = await admitted(still_house, message, **of)
    await enqueue(still_house, first)
    await still_house.fault(message, "accept_reset", times=1)
    await work(still_house.worker())
    second = await admitted(still_house, REWORDED + message, **of)
    await enqueue(still_house, second)
    await work(still_house.worker())
    assert (await still_house.status(first), await still_house.status(second)) == ("uncertain", "ok")
