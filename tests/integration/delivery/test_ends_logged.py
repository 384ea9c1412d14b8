"""Each end of a delivery is one line of the log, whoever ended it, with no word of the message and no address."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest
from structlog.testing import capture_logs

from messenger.delivery import expire
from messenger.maintenance import reaper, rechecker
from messenger.storage import transitions
from shared.db.pool import after_commit
from shared.errors import InvalidInput
from shared.storage import withdrawals
from tests.integration.doubts import all_cards, cards_written, say, uncertain
from tests.integration.house import House
from tests.integration.workers import PAST, admitted, in_queue, lose_lease, new_chat, reap, work
from tests.rig import fresh

pytestmark = pytest.mark.asyncio(loop_scope="module")

Lines = Sequence[Mapping[str, object]]
SENDING = """
WITH p AS (UPDATE messenger.parts SET status = 'sending' WHERE delivery_id IN (
    SELECT id FROM messenger.deliveries WHERE notification_id = $1))
UPDATE messenger.deliveries SET status = 'sending', lease_until = clock_timestamp() WHERE notification_id = $1
"""
SAYS = {"delivery", "notification", "butler", "kind", "channel", "state", "reason", "attempt", "seconds"}


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the process logs meanwhile."""
    with capture_logs() as found:
        yield found


def ends(lines: Lines, told: object) -> list[tuple[object, object]]:
    """How a notification's delivery ended, in order, and why."""
    mine = [one for one in lines if one["event"] == "delivery_ended" and one.get("notification") == str(told)]
    return [(one["state"], one.get("reason")) for one in mine]


async def test_each_end_is_one_line(still_house: House, message: str, lines: Lines) -> None:
    sent, chat = await in_queue(still_house, f"{message} sent"), new_chat()
    await work(still_house.worker())
    assert ends(lines, sent) == [("sent", None)]
    failed = await in_queue(still_house, f"{message} failed")
    await still_house.fault(f"{message} failed", "403", times=1)
    await work(still_house.worker())
    assert ends(lines, failed) == [("failed", "provider_rejected")]
    left, arrived = [await uncertain(still_house, f"{message} {n}") for n in range(2)]
    await say(still_house, left, "leave")
    await say(still_house, arrived, "arrived")
    assert [state for state, _ in ends(lines, left)] == ["uncertain", "abandoned"]
    assert [state for state, _ in ends(lines, arrived)] == ["uncertain", "sent"]
    late = await in_queue(still_house, f"{message} late")
    await still_house.sql.execute(PAST, late)
    async with still_house.context("messenger").db.work() as connection:
        await expire.end_late(connection)
    assert ends(lines, late) == [("expired", "too_late")]
    taken_back = await in_queue(still_house, f"{message} back")
    async with still_house.context("greeter").db.work() as connection:
        await withdrawals.want_back(connection, taken_back, "greeter")
    for _ in range(2):
        async with still_house.context("messenger").db.work() as connection:
            await rechecker.withdrawn(connection)
    assert ends(lines, taken_back) == [("cancelled", "withdrawn")]
    lost = await in_queue(still_house, f"{message} lost")
    await work(still_house.worker())
    await still_house.sql.execute(SENDING, lost)
    await lose_lease(still_house, lost)
    assert await reap(still_house) == 1
    assert [state for state, _ in ends(lines, lost)] == ["sent", "uncertain"]
    asked = await admitted(still_house, f"{message} asked", recipient=chat)
    await cards_written(still_house)
    await all_cards(still_house)
    assert ends(lines, asked) == []
    cards = [one for one in lines if one.get("kind") == "approval"]
    assert [(one["state"], one.get("notification")) for one in cards] == [("sent", None)]
    said = [one for one in lines if one["event"] == "delivery_ended"]
    addresses = {row["address"] for row in await still_house.sql.fetch("SELECT address FROM messenger.deliveries")}
    for one in said:
        assert set(one) - {"event", "log_level"} <= SAYS
        assert message not in str(one)
        assert not [address for address in addresses if address in str(one)]


async def test_what_is_undone_is_not_logged(still_house: House) -> None:
    happened, db = list[str](), still_house.context("messenger").db

    async def undone() -> None:
        async with db.work() as connection:
            after_commit(connection, partial(happened.append, "undone"))
            raise InvalidInput("It goes wrong.")

    with pytest.raises(InvalidInput):
        await undone()
    async with db.work() as connection:
        after_commit(connection, partial(happened.append, "done"))
        assert happened == []
    assert happened == ["done"]


async def test_a_butler_that_withdraws_what_nobody_took_twice_ends_it_once(still_house: House, lines: Lines) -> None:
    told = await in_queue(still_house, fresh.words("twice"))
    for _ in range(2):
        async with still_house.context("messenger").db.work() as connection:
            assert await transitions.cancel(connection, told)
    assert ends(lines, told) == [("cancelled", "withdrawn")]


LATE = """
WITH said AS (
    INSERT INTO shared.notifications SELECT r.* FROM generate_series(1, 30) n, shared.notifications one,
        LATERAL jsonb_populate_record(NULL::shared.notifications, to_jsonb(one) || jsonb_build_object(
            'id', gen_random_uuid(), 'key', md5(n || one.key), 'lineage', md5(n || one.key),
            'not_after', clock_timestamp())) r WHERE one.id = $1
    RETURNING id, not_after)
INSERT INTO messenger.deliveries SELECT r.* FROM said, messenger.deliveries one,
    LATERAL jsonb_populate_record(NULL::messenger.deliveries, to_jsonb(one) || jsonb_build_object(
        'id', gen_random_uuid(), 'notification_id', said.id, 'not_after', said.not_after)) r
WHERE one.notification_id = $1
"""
LATE_STILL = "SELECT count(*) FROM messenger.deliveries WHERE status = 'queued' AND not_after <= clock_timestamp()"
ITS_CARD = """
SELECT count(*) FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
WHERE a.notification_id = $1
"""


async def test_cards_do_not_wait_until_all_that_is_late_has_ended(still_house: House, message: str) -> None:
    await still_house.sql.execute(LATE, await in_queue(still_house, f"{message} late"))
    asked = await admitted(still_house, f"{message} asked", recipient=new_chat())
    for cards, left in ((1, True), (1, False)):
        stopping = asyncio.Event()
        one_round = asyncio.ensure_future(reaper.tidy(still_house.worker(), stopping))
        await asyncio.sleep(0)
        stopping.set()
        await one_round
        assert await still_house.sql.fetchval(ITS_CARD, asked) == cards
        assert (await still_house.sql.fetchval(LATE_STILL) > 0) == left
