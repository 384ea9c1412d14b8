"""The line at one address: who fails keeps its place for a minute, and of who has begun to arrive nobody goes ahead."""

import asyncio

import pytest

from messenger.delivery.lease import Worker
from messenger.storage import deliveries
from shared.config.timings import STANDARD
from shared.storage import brakes, contacts
from shared.storage.brakes import Scope
from tests.integration.house import House, opened
from tests.integration.workers import DUE, FREE, admitted, enqueue, friend, in_queue, work
from tests.rig.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Longer ago than a message keeps its place.
MADE_LONG_AGO = "UPDATE messenger.deliveries SET created_at = created_at - interval '2 minutes'"
FAILED_LONG_AGO = """
UPDATE messenger.attempts a SET ended_at = a.ended_at - interval '61 seconds'
FROM messenger.deliveries d WHERE d.id = a.delivery_id AND d.notification_id = $1
"""
LATER = """
UPDATE messenger.deliveries SET send_at = clock_timestamp() + interval '1 hour', reason = $2 WHERE notification_id = $1
"""
AS_A_CARD = """
UPDATE messenger.deliveries SET class = 'card', card_kind = 'channel_paused', notification_id = NULL
WHERE notification_id = $1
"""
CHAT = "SELECT value FROM shared.contact_info WHERE contact_id = $1 AND type = 'telegram'"
FIRST_PART_SENT = """
WITH d AS (UPDATE messenger.deliveries SET fence = 1 WHERE notification_id = $1 RETURNING id)
INSERT INTO messenger.parts (delivery_id, n, wire_sha, status, provider_id) SELECT id, 1, 'sha', 'sent', '7' FROM d
"""
# As a row that nobody can read leaves the card of the butler that wrote it.
AS_A_BROKEN_CARD = """
UPDATE messenger.deliveries SET class = 'card', card_kind = 'question', notification_id = NULL, attempt = 1,
    origin_butler = 'another', created_at = clock_timestamp() WHERE notification_id = $1
"""
LONG = "\n".join(f"line {n} of a text that is longer than one message may be" for n in range(160))


async def waiting(house: House, message: str, first: str = "") -> list[str]:
    """Three for one chat, the first of which cannot be sent at once; all asked for before an outage of two minutes."""
    contact = await friend(house)
    words = (first or f"{message} 0", f"{message} 1", f"{message} 2")
    told = [await in_queue(house, text, contact_id=contact) for text in words]
    await house.sql.execute(MADE_LONG_AGO)
    await house.sql.execute(FREE)
    return told


def numbers(house: House, message: str) -> list[str]:
    """What came of them, in its order."""
    texts = [str(line["payload"]["text"]) for line in house.sent(message)]  # type: ignore[index]
    return [text.rpartition(" ")[2] for text in texts]


async def rest(house: House, worker: Worker, first: str) -> None:
    await house.sql.execute(DUE, first)
    for _ in range(3):
        await work(worker)


async def test_after_a_long_outage_who_fails_once_is_not_overtaken(still_house: House, message: str) -> None:
    told = await waiting(still_house, message)
    await still_house.fault(f"{message} 0", "drop_before_body", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(LATER, told[0], "unavailable")
    await work(worker)
    assert numbers(still_house, message) == []
    await rest(still_house, worker, told[0])
    assert numbers(still_house, message) == ["0", "1", "2"]


async def test_a_minute_after_its_first_failure_the_next_goes(still_house: House, message: str) -> None:
    told = await waiting(still_house, message)
    await still_house.fault(f"{message} 0", "drop_before_body", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(LATER, told[0], "unavailable")
    await still_house.sql.execute(FAILED_LONG_AGO, told[0])
    await work(worker)
    assert numbers(still_house, message) == ["1"]


async def test_between_the_parts_of_a_long_text_nothing_goes(still_house: House, message: str) -> None:
    told = await waiting(still_house, message, f"{message} first\n{LONG}\n{message} last")
    await still_house.fault(f"{message} last", "drop_before_body", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(LATER, told[0], "unavailable")
    await still_house.sql.execute(FAILED_LONG_AGO, told[0])
    await work(worker)
    assert len(numbers(still_house, message)) == 1, "the first part alone"
    await rest(still_house, worker, told[0])
    assert numbers(still_house, message)[1:] == ["last", "1", "2"]


async def test_what_is_kept_back_on_purpose_after_its_first_part_holds_up_nobody(
    still_house: House, message: str
) -> None:
    told = await waiting(still_house, message, f"{message} first\n{LONG}\n{message} last")
    await still_house.fault(f"{message} last", "drop_before_body", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(LATER, told[0], "braked")
    await work(worker)
    assert numbers(still_house, message)[1:] == ["1"]


@pytest.mark.parametrize("brake", ["", "on"])
async def test_a_butler_that_speaks_without_end_keeps_no_others_words_from_the_chat(
    still_house: House, message: str, brake: str
) -> None:
    owner = await contacts.owner(still_house.sql)
    assert owner is not None
    for n in range(40):
        await enqueue(still_house, await admitted(still_house, f"{message} flood {n}"))
    single = await admitted(still_house, f"{message} single", "health")
    await enqueue(still_house, single)
    if brake:
        await brakes.put_on(still_house.sql, Scope(butler="greeter"), owner["id"], owner_too=True)
    worker = still_house.worker()
    for _ in range(25):  # as often as not it is the other's turn
        await work(worker)
    await brakes.lift(still_house.sql, Scope(butler="greeter"), owner["id"])
    assert await still_house.status(single) == "ok"
    flood = [int(n) for n in numbers(still_house, f"{message} flood")]
    assert flood == list(range(0 if brake else len(flood))), "each one's own order"


async def test_a_butler_with_a_few_texts_seldom_goes_before_one_with_a_single_but_does(
    still_house: House, message: str
) -> None:
    """Seven times of eight the single goes first."""
    contact = await friend(still_house)
    for n in range(5):
        await in_queue(still_house, f"{message} {n}", contact_id=contact)
    await enqueue(still_house, await admitted(still_house, f"{message} single", "health", contact_id=contact))
    first = [await _claimed_first(still_house, contact) for _ in range(120)]
    for _ in range(6):
        await work(still_house.worker())
    assert 0 < first.count("greeter") < 45, first.count("greeter")


@pytest.mark.parametrize(
    ("stands", "single", "fewest", "most"),
    [("whole", "card", 0, 0), ("begun", "card", 120, 120), ("whole", "text", 30, 90), ("begun", "text", 120, 120)],
)
async def test_a_butler_with_two_cards_goes_behind_a_single_card_and_in_turns_with_a_text_unless_one_has_begun(
    still_house: House, message: str, stands: str, single: str, fewest: int, most: int
) -> None:
    contact, butlers = await friend(still_house), ("greeter", "greeter", "health")
    told = [
        await admitted(still_house, f"{message} {n}", butler, contact_id=contact) for n, butler in enumerate(butlers)
    ]
    for one in told:
        await enqueue(still_house, one)
    undone = still_house.sql.transaction()
    await undone.start()
    try:
        if stands == "begun":
            await still_house.sql.execute(FIRST_PART_SENT, told[0])
        for one in told if single == "card" else told[:2]:
            await still_house.sql.execute(AS_A_CARD, one)
        first = [await _claimed_first(still_house, contact) for _ in range(120)]
    finally:
        await undone.rollback()
    for _ in told:
        await work(still_house.worker())
    assert fewest <= first.count("greeter") <= most, first.count("greeter")


async def _claimed_first(house: House, contact: str) -> str:
    """Whose is claimed of what waits for this contact; nothing of it is kept."""
    chat = await house.sql.fetchval(CHAT, contact)
    undone = house.sql.transaction()
    await undone.start()
    try:
        claimed = await deliveries.claim(house.sql, "somebody", {"telegram": 10}, STANDARD)
    finally:
        await undone.rollback()
    return next(one.origin for one in claimed if one.address == chat)


async def test_who_is_next_is_found_by_indexes(still_house: House) -> None:
    plan = await still_house.plan_of(deliveries.CLAIM)
    assert [table for table in ("deliveries", "parts", "attempts") if f"Seq Scan on {table}" in plan] == [], plan
    assert ("parts_pkey" in plan, "attempts_pkey" in plan) == (True, True), plan


async def test_half_a_card_that_is_put_off_holds_nobody_up(still_house: House, message: str) -> None:
    told = await waiting(still_house, message, f"{message} first\n{LONG}\n{message} last")
    await still_house.fault(f"{message} last", "drop_before_body", times=1)
    worker = still_house.worker()
    await work(worker)
    await still_house.sql.execute(FAILED_LONG_AGO, told[0])
    await still_house.sql.execute(LATER, told[0], "unavailable")
    await still_house.sql.execute(AS_A_CARD, told[0])
    await work(worker)
    assert numbers(still_house, message)[1:] == ["1"]


async def test_what_waits_behind_another_goes_as_soon_as_that_one_has_ended(cluster: Cluster, message: str) -> None:
    async with opened(cluster, BUTLERS_SWEEP_SECONDS="60") as house:
        contact = await friend(house)
        # As many as no caller would wait for if each waited for a tick.
        several = [house.notify(message=f"{message} {n}", contact_id=contact) for n in range(7)]
        assert [told["status"] for told in await asyncio.gather(*several)] == ["ok"] * 7


async def test_a_card_that_is_put_off_holds_up_no_other_butlers_words(still_house: House, message: str) -> None:
    told = await waiting(still_house, message)
    await still_house.sql.execute(LATER, told[0], "broken")
    await still_house.sql.execute(AS_A_BROKEN_CARD, told[0])
    await work(still_house.worker())
    assert numbers(still_house, message) == ["1"]
