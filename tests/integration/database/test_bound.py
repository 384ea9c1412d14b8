"""What a line of the audit binds: rows that were changed after a yes or a marker are named, and no others."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

import pytest

from messenger.delivery import expire
from shared.gate.tool_call import Declared, admit_call
from shared.retention import WORDS
from shared.storage import audit_bindings, contacts
from shared.storage.tool_calls import NewCall
from tests.integration.delivery.test_half_sent import in_two
from tests.integration.doubts import say
from tests.integration.gate.test_editing import change
from tests.integration.house import House
from tests.integration.workers import PAST, admitted, enqueue, in_queue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACTION = "SELECT id::text FROM shared.pending_actions WHERE notification_id = $1"
OPEN = f"{ACTION} AND status = 'pending'"
LINE = "SELECT * FROM shared.approval_events WHERE notification_id = $1 AND event_type = $2"
# By what is said of it: one statement of a superuser each, given the notification.
CHANGES = {
    "the hash of its content": "UPDATE messenger.deliveries SET content_sha = 'x' WHERE notification_id = $1",
    "the hash of its bytes": """
        UPDATE messenger.parts SET wire_sha = 'x'
        WHERE delivery_id = (SELECT id FROM messenger.deliveries WHERE notification_id = $1)""",
    "its address": "UPDATE messenger.deliveries SET address = 'eve@example.org' WHERE notification_id = $1",
    "its words": """
        UPDATE shared.notifications SET envelope = jsonb_set(envelope, '{delivery,message}', '"Never said."')
        WHERE id = $1""",
}
ASKED = "UPDATE shared.notifications SET content_sha = 'x' WHERE id = $1"
OWNERS_WORDS = "UPDATE shared.notifications SET owner_text = 'Never said.' WHERE id = $1"
YES = "UPDATE shared.pending_actions SET content_sha = 'x' WHERE notification_id = $1"
YES_STATE = "UPDATE shared.pending_actions SET content_sha = 'x', status = 'pending' WHERE notification_id = $1"
YES_REVISION = "UPDATE shared.pending_actions SET revision = revision + 1 WHERE notification_id = $1"
YES_BACK = "UPDATE shared.pending_actions SET content_sha = 'x', revision = revision - 1 WHERE notification_id = $1"
YES_BYTES = "UPDATE shared.pending_actions SET wire_shas = '{x}' WHERE notification_id = $1"
CALL_CHANGES = ("arguments = '9000'", "says = 'Do nothing.'", "arguments = '[wiped]', says = '[wiped]'")
CALL_LINES = "SELECT seq FROM shared.approval_events WHERE action_id = $1"
WITHOUT_WORDS = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, detail)
SELECT event_type, action_id, notification_id, actor, detail - 'words' FROM shared.approval_events
WHERE notification_id = $1 AND event_type = 'approved'
"""
OWN_LINE = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, detail)
SELECT 'revised', id, notification_id, origin_butler, jsonb_build_object('revision', $2::jsonb)
FROM shared.pending_actions WHERE notification_id = $1
"""
GONE = """
WITH d AS (DELETE FROM messenger.deliveries WHERE notification_id = $1 RETURNING notification_id)
DELETE FROM shared.rule_uses WHERE notification_id = $1
"""
OLD = """
INSERT INTO shared.approval_events (event_type, action_id, actor, detail)
VALUES ('approved', gen_random_uuid(), 'owner', '{"revision": 1}')
"""
WIPED = """
UPDATE shared.notifications SET wiped_at = clock_timestamp() + $2::interval,
    envelope = jsonb_set(envelope, '{delivery,message}', '"[wiped]"') WHERE id = $1
"""


async def said_of(house: House, notification_id: str) -> Sequence[str]:
    """What the comparison says of this message."""
    return [one.text for one in (await audit_bindings.compare(house.sql)).differs if notification_id in one.text]


async def by_rule(house: House, message: str) -> str:
    told = await in_queue(house, message)
    await work(house.worker())
    assert await house.status(told) == "ok"
    return told


async def by_yes(house: House, message: str) -> str:
    contact = await house.contact("Anna")
    told = await admitted(house, message, contact_id=contact)
    assert (await house.decide(await house.sql.fetchval(ACTION, told))).code == "approved"
    await enqueue(house, told)
    await work(house.worker())
    assert await house.status(told) == "ok"
    return told


async def test_the_lines_hold_hashes_and_nothing_of_the_message(still_house: House, message: str) -> None:
    told = await by_yes(still_house, message)
    yes, marked = [await still_house.row(LINE, told, kind) for kind in ("approved", "marked")]
    assert set(yes["detail"]) == {"revision", "surface", "contact", "content", "wire", "address", "words"}
    assert set(marked["detail"]) == {"part", "attempt", "asked", "content", "wire", "address", "words", "yes"}
    assert yes["detail"]["address"] == marked["detail"]["address"]
    assert yes["detail"]["content"] == marked["detail"]["content"]
    assert yes["detail"]["words"] == marked["detail"]["words"]
    assert message not in f"{yes} {marked}"
    assert (await still_house.delivery(told))["address"] not in f"{yes} {marked}"


async def test_a_rules_leave_names_the_rule(still_house: House, message: str) -> None:
    contact = await still_house.contact("Anna")
    rule = await still_house.rule({"contact_id": contact})
    told = await in_queue(still_house, message, contact_id=contact)
    await work(still_house.worker())
    assert (await still_house.row(LINE, told, "marked"))["rule_id"] == rule


@pytest.mark.parametrize("way", [by_rule, by_yes])
async def test_what_nobody_changed_is_as_it_was(still_house: House, message: str, way: object) -> None:
    assert callable(way)
    assert await said_of(still_house, await way(still_house, message)) == []


@pytest.mark.parametrize("what", CHANGES)
async def test_a_row_that_was_changed_after_its_marker_is_named(still_house: House, message: str, what: str) -> None:
    told = await by_rule(still_house, message)
    await still_house.sql.execute(CHANGES[what], told)
    [said] = await said_of(still_house, told)
    assert what in said
    assert not any(other in said for other in CHANGES if other != what)


async def test_so_is_one_of_which_a_part_has_left_and_the_rest_did_not(still_house: House, message: str) -> None:
    told = await in_queue(still_house, in_two(message))
    await still_house.fault(f"last {message}", "403", times=1)
    for _ in range(2):
        await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    assert await said_of(still_house, told) == []
    for one in CHANGES.values():
        await still_house.sql.execute(one, told)
    [said] = await said_of(still_house, told)
    assert all(what in said for what in CHANGES)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (ASKED, "content"),
        (OWNERS_WORDS, "words"),
        (YES, "content was changed after its yes"),
        (YES_BYTES, "bytes was changed after its yes"),
        (YES_STATE, "content was changed after its yes"),
        (YES_REVISION, "the revision of its question was changed after its yes"),
    ],
)
async def test_so_is_one_that_was_changed_after_a_yes(still_house: House, message: str, change: str, what: str) -> None:
    told = await by_yes(still_house, message)
    await still_house.sql.execute(change, told)
    assert any(what in said for said in await said_of(still_house, told))


async def test_so_are_words_that_had_a_yes_and_never_left(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Anna"))
    await still_house.decide(await still_house.sql.fetchval(ACTION, told))
    await enqueue(still_house, told)
    await still_house.sql.execute(PAST, told)
    async with still_house.context("messenger").db.work() as connection:
        assert await expire.end_late(connection) == 1
    assert await said_of(still_house, told) == []
    await still_house.sql.execute(CHANGES["its words"], told)
    [said] = await said_of(still_house, told)
    assert "its words was changed after its yes" in said
    await still_house.sql.execute(WITHOUT_WORDS, told)
    assert await said_of(still_house, told) == [], "a line from before holds none"


@pytest.mark.parametrize("change", CALL_CHANGES)
async def test_so_is_a_call_that_was_changed_after_a_yes(still_house: House, message: str, change: str) -> None:
    call = NewCall(str(uuid4()), "greeter", message, '{"litres": 10}', "Flood it.", "low", repeatable=False)
    async with still_house.context("greeter").db.work() as connection:
        await admit_call(connection, call, Declared("ask", "low"), timedelta(hours=72))
    assert (await still_house.decide(call.id)).code == "approved"
    lines = {row["seq"] for row in await still_house.sql.fetch(CALL_LINES, call.id)}
    for changed in (None, change):
        if changed:
            await still_house.sql.execute(f"UPDATE shared.tool_calls SET {changed} WHERE id = $1", call.id)
        found = [one.text for one in (await audit_bindings.compare(still_house.sql)).differs if one.seq in lines]
        assert [("its words" in one) for one in found] == [True] * bool(changed)


@pytest.mark.parametrize("revision", ["soon", 2])
async def test_a_line_of_its_butlers_stops_no_look_and_covers_no_revision(
    still_house: House, message: str, revision: object
) -> None:
    told = await by_yes(still_house, message)
    await still_house.sql.execute(OWN_LINE, told, revision)
    assert await said_of(still_house, told) == []
    await still_house.sql.execute(YES_REVISION, told)
    [said] = await said_of(still_house, told)
    assert "the revision of its question" in said


async def test_words_that_were_wiped_in_their_time_are_no_change(still_house: House, message: str) -> None:
    told = await by_rule(still_house, message)
    await still_house.sql.execute(WIPED, told, WORDS)
    assert await said_of(still_house, told) == []
    await still_house.sql.execute(WIPED, told, WORDS - timedelta(hours=1))
    [said] = await said_of(still_house, told)
    assert "its words" in said


async def test_a_line_from_before_is_counted_and_blames_nobody(still_house: House) -> None:
    before = await audit_bindings.compare(still_house.sql)
    await still_house.sql.execute(OLD)
    after = await audit_bindings.compare(still_house.sql)
    assert (after.without, after.lines, len(after.differs)) == (before.without + 1, before.lines, len(before.differs))


async def test_a_message_that_was_taken_away_is_missed(still_house: House, message: str) -> None:
    told = await by_rule(still_house, message)
    await still_house.sql.execute(GONE, told)
    assert await said_of(still_house, told)


async def test_an_answered_question_that_was_taken_away_is_missed(still_house: House, message: str) -> None:
    told = await by_yes(still_house, message)
    await still_house.sql.execute(
        "UPDATE shared.pending_actions SET notification_id = NULL, id = gen_random_uuid() WHERE notification_id = $1",
        told,
    )
    [said] = await said_of(still_house, told)
    assert "is gone" in said


async def test_the_lives_that_questions_have_are_no_change(still_house: House, message: str) -> None:
    contact, elsewhere = await still_house.contact("Anna"), await still_house.contact("Ben")
    lives = ("edited", "denied", "late", "refused", "moved")
    told = {
        life: await admitted(still_house, f"{message} {life}", contact_id=elsewhere if life == "moved" else contact)
        for life in lives
    }
    of = {life: str(await still_house.sql.fetchval(ACTION, told[life])) for life in lives}
    await change(still_house, of["edited"], f"{message} edited, in other words")
    for life in lives:
        outcome = await still_house.decide(of[life], approve=life != "denied")
        assert outcome.code == ("denied" if life == "denied" else "approved")
    await contacts.add_address(still_house.sql, elsewhere, "telegram", new_chat(), primary=True)
    await still_house.sql.execute(PAST, told["late"])
    await still_house.fault(f"{message} refused", "400", times=1)
    for life in lives:
        if life != "denied":
            await enqueue(still_house, told[life])
    await work(still_house.worker())
    states = {life: await still_house.status(told[life]) for life in lives}
    assert (states["edited"], states["denied"], states["moved"]) == ("ok", "error", "pending_approval")
    for life in lives:
        assert await said_of(still_house, told[life]) == [], life


async def test_an_address_that_was_mended_after_a_yes_is_no_change(house: House, message: str) -> None:
    anna = await house.contact("Anna", telegram=new_chat())
    told = str((await house.notify(message=message, contact_id=anna))["notification_id"])
    await house.fault(message, "400", times=1)
    assert (await house.decide(await house.sql.fetchval(ACTION, told))).code == "approved"
    await house.settled(told, "error")
    await contacts.add_address(house.sql, anna, "telegram", new_chat(), primary=True)
    await say(house, told, "retry")
    assert (await house.decide((await house.row(OPEN, told))["id"])).code == "approved"
    await house.settled(told, "ok")
    assert await said_of(house, told) == []
    await house.sql.execute(CHANGES["its address"], told)
    assert any("its address was changed" in said for said in await said_of(house, told))


async def test_no_earlier_line_stands_for_the_one_that_a_revision_lacks(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Anna"))
    action = await still_house.sql.fetchval(ACTION, told)
    for words in ("Once.", "Twice."):
        assert (await change(still_house, action, f"{words} {message}")).code == "edited"
    assert (await still_house.decide(action)).code == "approved"
    assert await said_of(still_house, told) == []
    await still_house.sql.execute(YES_BACK, told)
    [said] = await said_of(still_house, told)
    assert "the revision of its question" in said
