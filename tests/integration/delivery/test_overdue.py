"""What runs out of time in the queue: `expired` if it was never tried, a dead letter if it was tried in vain."""

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest

from messenger.delivery import expire
from messenger.maintenance import reaper
from shared.contracts import route_request
from shared.display.fates import DELIVERY
from shared.display.visible import MARK
from shared.storage import deliveries
from shared.storage.history import life
from tests.integration.doubts import all_cards, cards_written, closed, error, say, shown
from tests.integration.house import House
from tests.integration.workers import (
    ACTION,
    PAST,
    admitted,
    due,
    enqueue,
    friend,
    in_queue,
    new_chat,
    work,
    worker_where,
)
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER: Final = "UPDATE messenger.deliveries SET send_at = send_at + interval '1 hour' WHERE notification_id = $1"
USES: Final = "SELECT rule_id FROM shared.rule_uses WHERE notification_id = $1"
AUDIT: Final = "SELECT event_type FROM shared.approval_events WHERE notification_id = $1 ORDER BY seq DESC LIMIT 1"
PARK: Final = "UPDATE messenger.deliveries SET status = 'parked' WHERE notification_id = $1"
# Before all others of its butler, and nobody can make anything of it.
BREAK: Final = """
UPDATE shared.notifications SET envelope = '{"origin_butler": "greeter"}', not_after = '2000-01-01Z' WHERE id = $1
"""
PUT_OFF: Final = """
SELECT n.id::text FROM shared.notifications n JOIN messenger.deliveries d ON d.notification_id = n.id
WHERE d.status = 'queued' AND d.attempt = 1 AND n.envelope #>> '{delivery,message}' = $1
"""
IN_ITS_NAME: Final = "UPDATE shared.notifications SET admitted_by = 'switchboard' WHERE id = $1"
TIME_OVER: Final = "Expired before it could be sent."


async def tick(house: House) -> int:
    async with house.context("messenger").db.work() as connection:
        return await expire.end_late(connection)


async def tried(house: House, message: str, times: int = 1, **arguments: object) -> str:
    """Queued again after so many attempts that the provider put off."""
    told = await in_queue(house, message, **arguments)
    await house.fault(message, "429", times=times)
    for _ in range(times):
        await due(house, told)
        await work(house.worker())
    assert ((await house.delivery(told))["status"], (await house.delivery(told))["attempt"]) == ("queued", times)
    return told


async def test_what_was_never_tried_expires(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    assert await tick(still_house) == 0
    await still_house.sql.execute(PAST, told)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "queued", "what is late is not taken"
    assert [await tick(still_house), await tick(still_house)] == [1, 0]
    assert (await still_house.delivery(told))["status"] == "expired"
    assert await error(still_house, told) == {
        "class": "timeout",
        "message": f"{TIME_OVER} Not sent.",
        "retryable": True,
    }
    assert still_house.sent(message) == []


async def test_what_another_admitted_and_expires_is_not_to_be_tried_again(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.sql.execute(IN_ITS_NAME, told)
    await still_house.sql.execute(PAST, told)
    assert await tick(still_house) == 1
    assert (await error(still_house, told))["retryable"] is False


async def test_what_was_tried_in_vain_is_a_dead_letter_however_far_its_next_try(
    still_house: House, message: str
) -> None:
    told = await tried(still_house, message, 2)
    assert await still_house.sql.fetch(USES, told)
    await still_house.sql.execute(LATER, told)
    await still_house.sql.execute(PAST, told)
    assert await tick(still_house) == 1
    row, found = await still_house.delivery(told), await error(still_house, told)
    assert (row["status"], row["reason"], row["attempt"]) == ("dead", "too_late", 2)
    assert (found["class"], found["retryable"]) == ("timeout", True)
    said = str(found["message"])
    why = "Last reason: the provider asked to wait."
    assert said == f"Gave up after retrying: tried 2 times, not sent. {why}", "none of the provider's words"
    assert (await still_house.row(AUDIT, told))["event_type"] == "dead"
    assert await still_house.sql.fetch(USES, told) == [], "nothing has left, so the rule has its use again"
    assert [one["id"] for one in await deliveries.latest(still_house.sql, "dead", 1)] == [row["id"]]
    assert still_house.sent(message) == []


async def test_time_that_ends_between_claim_and_marker_ends_it_the_same_way(still_house: House, message: str) -> None:
    first = await in_queue(still_house, message)
    await work(worker_where(still_house, lambda: still_house.sql.execute(PAST, first)))
    second = await tried(still_house, f"{message} second")
    await due(still_house, second)
    await work(worker_where(still_house, lambda: still_house.sql.execute(PAST, second)))
    ended = [await still_house.delivery(one) for one in (first, second)]
    assert [(row["status"], row["attempt"]) for row in ended] == [("expired", 0), ("dead", 1)]
    assert still_house.sent(message) == []


async def test_a_dead_letter_goes_out_when_the_owner_has_it_tried_again(still_house: House, message: str) -> None:
    told = await tried(still_house, message)
    await still_house.sql.execute(PAST, told)
    await tick(still_house)
    assert await say(still_house, told, "retry") == "done"
    await enqueue(still_house, told)
    await due(still_house, told)
    await work(still_house.worker())
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def approved(house: House, message: str, *, brought: bool = True) -> tuple[str, Mapping[str, object]]:
    """A message in the queue by the owner's yes, and the card that asked for it."""
    told = await admitted(house, message, contact_id=await house.contact("Zoe", telegram=new_chat()))
    await cards_written(house)
    await all_cards(house)
    assert (await house.decide((await house.row(ACTION, told))["id"])).code == "approved"
    if brought:
        await enqueue(house, told)
    return told, house.cards(message)[-1]


async def test_of_what_was_approved_and_tried_in_vain_the_owner_is_told_so(still_house: House, message: str) -> None:
    told, card = await approved(still_house, message)
    await still_house.fault(message, "429", times=1)
    await work(still_house.worker())
    await still_house.sql.execute(PAST, told)
    await tick(still_house)
    await closed(still_house)
    assert (await still_house.row(ACTION, told))["status"] == "failed"
    assert (await still_house.row(AUDIT, told))["event_type"] == "dead"
    assert shown(still_house, card).endswith("Approved. Not delivered.")
    steps = (await life(still_house.sql, told)).steps
    assert steps[-1].text == f"messenger gave up after retrying. {TIME_OVER}"
    assert "not sent" not in DELIVERY["dead"], "a part may have left"


async def test_of_what_was_approved_and_never_tried_nobody_says_that_no_one_answered(
    still_house: House, message: str
) -> None:
    told, card = await approved(still_house, message)
    await still_house.sql.execute(PAST, told)
    await tick(still_house)
    await closed(still_house)
    assert (await still_house.row(ACTION, told))["status"] == "expired"
    assert shown(still_house, card).endswith(f"\n\n{MARK} {TIME_OVER} Not sent.")


async def one_round(house: House) -> None:
    """One round of the Messenger's own."""
    stopping = asyncio.Event()
    tidying = asyncio.ensure_future(reaper.tidy(house.worker(), stopping))
    await asyncio.sleep(0)
    stopping.set()
    await tidying


@pytest.mark.parametrize("before", [False, True], ids=["never", "not again"])
async def test_what_no_switchboard_brings_ends_all_the_same(still_house: House, message: str, *, before: bool) -> None:
    odd = await admitted(still_house, f"{message} odd", contact_id=await friend(still_house))
    waits = await admitted(still_house, f"{message} waits", contact_id=await still_house.contact("Ann"))
    told, card = await approved(still_house, message, brought=before)
    await still_house.sql.execute(PARK, told)
    await one_round(still_house)
    assert await still_house.status(told) == "queued", "it has its time"
    await still_house.sql.execute(BREAK, odd)
    for late in (told, waits):
        await still_house.sql.execute(PAST, late)
    await one_round(still_house)
    await closed(still_house)
    assert [await still_house.status(one) for one in (odd, told, waits)] == ["error", "error", "pending_approval"]
    assert ((await still_house.delivery(told))["status"], (await error(still_house, told))["class"]) == (
        "expired",
        "timeout",
    )
    assert (await still_house.row(ACTION, told))["status"] == "expired"
    assert shown(still_house, card).endswith(f"\n\n{MARK} {TIME_OVER} Not sent.")
    assert still_house.sent(message) == []


async def test_what_left_in_part_is_no_letter_to_be_sent_again(still_house: House, message: str) -> None:
    long = f"{message} first {'word ' * 900}{message} second"
    await still_house.fault(f"{message} second", "429", times=1)
    told = await in_queue(still_house, long)
    await work(still_house.worker())
    await still_house.sql.execute(PAST, told)
    await tick(still_house)
    found = await error(still_house, told)
    assert ((await still_house.delivery(told))["status"], found["retryable"]) == ("dead", False)
    assert "may have arrived" in str(found["message"])
    assert await say(still_house, told, "retry") == "late"


async def test_a_dead_letter_begins_anew_under_its_key_when_its_butler_asks_again(house: House, message: str) -> None:
    asked = {"message": message, "contact_id": await friend(house)}
    context = {"request_id": message, "idempotency_key": f"key of {message}", "source_channel": "mcp"}
    await house.fault(message, "429", value=3600, times=1)
    calling = asyncio.ensure_future(house.notify(**asked, request_context=context))
    told = await eventually(lambda: house.sql.fetchval(PUT_OFF, message))
    await house.sql.execute(PAST, told)
    first = await calling
    assert (first["status"], (await house.delivery(told))["status"]) == ("error", "dead")
    await due(house, told)
    again = await house.notify(**asked, request_context={**context, "request_id": f"another than {message}"})
    assert (again["status"], again["notification_id"], again["duplicate"]) == ("ok", told, True)
    assert len(house.sent_to_others(message)) == 1


async def test_of_an_equal_call_the_channel_too_is_that_of_the_first(still_house: House, message: str) -> None:
    """The Switchboard says that a call repeats another, and may say what it likes beside that."""
    told = await admitted(still_house, message, contact_id=await friend(still_house))
    row = await still_house.row("SELECT envelope, origin_butler FROM shared.notifications WHERE id = $1", told)
    swapped = {**row["envelope"], "delivery": {**row["envelope"]["delivery"], "channel": "email"}}
    request = route_request({**swapped, "notification_id": told}, row["origin_butler"], "r", again=True)
    await still_house.hop("switchboard", "messenger", "route.execute", request)
    assert (await still_house.delivery(told))["channel"] == "telegram"
