"""Words go when they are over, never from what is open or uncertain, and whoever asks again gets the first answer."""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import pytest

from messenger.maintenance import resolver
from shared import answers, retention
from shared.channels.realms import SANDBOX
from shared.storage import deliveries, history, notifications, rules
from shared.storage.resolutions import Resolution
from tests.integration.house import House
from tests.integration.purged import ANCIENT, OLD, age, everything, purge, row
from tests.integration.signed_in import page, plain, signed_in
from tests.integration.workers import ACTION, friend, in_queue, new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Every column that can hold text: neither a number, a truth, a time, nor an id.
TEXTUAL: Final = """
SELECT n.nspname || '.' || c.relname || '.' || a.attname FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg_temp%'
    AND c.relkind IN ('r', 'p', 'm') AND a.attnum > 0 AND NOT a.attisdropped
    AND coalesce(e.typcategory, t.typcategory) NOT IN ('N', 'B', 'D', 'T', 'R')
    AND coalesce(e.typname, t.typname) <> 'uuid'
"""
STATUS: Final = """
UPDATE messenger.deliveries SET status = $2, settled_at = clock_timestamp() WHERE notification_id = $1
"""


async def test_every_column_that_can_hold_text_is_in_the_list_once(house: House) -> None:
    listed = retention.columns()
    assert sorted(listed) == sorted(set(listed))
    real = {line[0] for line in await house.sql.fetch(TEXTUAL)}
    assert real - set(listed) == set(), "these columns are missing in shared/retention.py"
    assert set(listed) - real == set(), "these columns of shared/retention.py are gone"


async def test_the_words_of_a_message_are_wiped_and_its_fence_stays(house: House, message: str) -> None:
    asked: Mapping[str, object] = {
        "channel": "email",
        "message": message,
        "subject": f"subject {message}",
        "contact_id": await house.contact("Zoe", email=f"{uuid4().hex}@example.org"),
        "request_context": {"request_id": uuid4().hex, "said": message},
    }
    told = await house.notify(**asked)
    await until(lambda: house.cards(message))
    assert (await house.decide(told["action_id"])).code == "approved"
    assert await house.settled(told["notification_id"], "ok") == "ok"
    before, dump = await row(house, told["notification_id"]), await everything(house)
    assert message in dump
    await age(house, told["notification_id"], 29)
    await purge(house)
    assert (await row(house, told["notification_id"]))["wiped_at"] is None
    await age(house, told["notification_id"], 2)
    assert await purge(house) == 1
    after = await row(house, told["notification_id"])
    assert message not in await everything(house)
    fence = ("key", "lineage", "request_sha", "content_sha", "status", "whom", "origin_butler")
    assert [after[name] for name in fence] == [before[name] for name in fence]
    assert after["answer"] == {k: v for k, v in before["answer"].items() if k != "note"}
    assert await purge(house) == 0

    again = await house.notify(**asked)
    assert (again["status"], again["duplicate"]) == ("ok", True)
    assert again["delivery"] == before["answer"]["delivery"]
    assert len(house.sent(message)) == 1


async def test_what_did_not_go_is_not_taken_up_again_once_its_words_are_gone(house: House, message: str) -> None:
    await house.fault(message, "400", times=1)
    asked: Mapping[str, object] = {"message": message, "contact_id": await friend(house)}
    context = {"request_id": uuid4().hex}
    told = await house.notify(**asked, request_context=context)
    assert told["status"] == "error"
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    again = await house.notify(**asked, request_context=context)
    assert (again["status"], again["duplicate"]) == ("error", True)
    assert again["error"] == {"class": "provider_rejected", "message": answers.WIPED, "retryable": False}
    delivery = await house.delivery(told["notification_id"])
    owner = str(await house.sql.fetchval("SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)"))
    async with house.context("messenger").db.work() as connection:
        word = Resolution(delivery["id"], delivery["attempt"], "retry", owner, "test")
        assert await resolver.heed_press(connection, word, SANDBOX, house.context("messenger")) == "late"
    assert house.sent_to_others(message) == []


async def test_what_the_owner_wrote_instead_is_wiped_too(house: House, message: str) -> None:
    told = await house.notify(message="x", contact_id=await house.contact("Yan", telegram=new_chat()))
    await until(lambda: house.cards("Greeter"))
    action = await house.row(ACTION, told["notification_id"])
    async with house.context("messenger").db.work() as connection:
        await notifications.edit(connection, str(told["notification_id"]), message)
    assert (await house.decide(action["id"], approve=False, reason="No.")).code == "denied"
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    assert message not in await everything(house)
    found = await history.life(house.sql, str(told["notification_id"]))
    assert found.steps[0].text.endswith(f': "{retention.WIPED}"')


@pytest.mark.parametrize("status", ["queued", "claimed", "sending", "parked", "uncertain"])
async def test_what_is_open_or_uncertain_keeps_its_words_however_old(still_house: House, status: str) -> None:
    message = f"words {uuid4()}"
    told = await in_queue(still_house, message)
    await still_house.sql.execute(STATUS, told, status)
    said = "uncertain" if status == "uncertain" else "ok"
    await still_house.sql.execute("UPDATE shared.notifications SET status = $2 WHERE id = $1", told, said)
    for _ in range(2):
        await age(still_house, told, ANCIENT)
        await purge(still_house)
    found = await row(still_house, told)
    assert found["envelope"]["delivery"]["message"] == message
    assert (await still_house.delivery(told))["status"] == status
    await still_house.sql.execute("DELETE FROM messenger.deliveries WHERE notification_id = $1", told)


async def test_what_the_owner_left_at_that_is_wiped_and_still_says_so(house: House, message: str) -> None:
    await house.fault(message, "500", times=1)
    asked: Mapping[str, object] = {"message": message, "contact_id": await friend(house)}
    context = {"request_id": uuid4().hex}
    told = await house.notify(**asked, request_context=context)
    assert told["status"] == "uncertain"
    await age(house, told["notification_id"], OLD)
    await purge(house)
    assert (await row(house, told["notification_id"]))["wiped_at"] is None
    delivery = await house.delivery(told["notification_id"])
    owner = str(await house.sql.fetchval("SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)"))
    async with house.context("messenger").db.work() as connection:
        word = Resolution(delivery["id"], delivery["attempt"], "leave", owner, "test")
        assert await resolver.heed_press(connection, word, SANDBOX, house.context("messenger")) == "done"
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    assert message not in await everything(house)
    again = await house.notify(**asked, request_context=context)
    assert (again["status"], again["duplicate"], again["message"]) == ("uncertain", True, answers.LEFT)
    assert len(house.sent(message)) <= 1


async def test_the_second_fence_holds_after_the_wipe(house: House, message: str) -> None:
    address = f"{uuid4().hex}@example.org"
    contact = await house.contact("Zoe", email=address)
    await house.rule({"contact_id": contact})
    context = {"request_id": uuid4().hex}
    asked: Mapping[str, object] = {"channel": "email", "message": message, "request_context": context}
    told = await house.notify(**asked, contact_id=contact)
    assert told["status"] == "ok"
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    again = await house.notify(**asked, recipient=address)
    assert (again["status"], again["duplicate"], again["note"]) == ("ok", True, answers.SAME_WORDS)
    assert again["notification_id"] == told["notification_id"]
    assert len(house.sent(message)) == 1


async def test_every_surface_shows_that_the_words_are_gone(house: House, message: str) -> None:
    told = await house.notify(message=message, contact_id=await house.contact("Yan", telegram=new_chat()))
    assert (await house.decide(told["action_id"])).code == "approved"
    assert await house.settled(told["notification_id"], "ok") == "ok"
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    delivery = (await house.delivery(told["notification_id"]))["id"]
    async with signed_in(house) as console:
        for path in (f"/approvals/{told['action_id']}", f"/deliveries/{delivery}", "/approvals", "/deliveries", "/"):
            said = plain(await page(console, path))
            assert message not in said
            assert retention.WIPED in said or path in {"/", "/approvals"}, path
    action = await house.row(ACTION, told["notification_id"])
    assert action["tool_args"] == {"channel": "telegram", "intent": "send", "message": retention.WIPED}
    assert retention.WIPED in str(await deliveries.latest(house.sql, None, 200))


async def test_a_standing_rule_is_not_tried_on_what_has_no_words_any_more(house: House, message: str) -> None:
    told = await house.notify(message=message)
    assert told["notification_id"] in await rules.past(house.sql)
    await age(house, told["notification_id"], OLD)
    assert await purge(house) == 1
    assert told["notification_id"] not in await rules.past(house.sql)
