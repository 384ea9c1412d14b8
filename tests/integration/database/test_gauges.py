"""The metrics say of all deliveries what their rows say, whoever ended them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from messenger.maintenance import metrics, rechecker
from shared.storage import brakes, contacts, withdrawals
from shared.storage.brakes import Scope
from shared.telemetry.metrics import metrics_text
from tests.integration.doubts import say, uncertain
from tests.integration.house import House
from tests.integration.workers import in_queue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_STATE = "SELECT status, count(*) AS n FROM messenger.deliveries WHERE channel = 'telegram' GROUP BY status"
AN_HOUR_AGO = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '1 hour' WHERE id = $1"
FAILING = """
UPDATE messenger.deliveries SET created_at = created_at - interval '10 minutes',
    send_at = clock_timestamp() + interval '1 hour' WHERE notification_id = $1
"""


async def shown(house: House) -> tuple[dict[str, float], float]:
    """The deliveries by Telegram in each state, and the age of the oldest open one."""
    async with house.context("messenger").db.work() as connection:
        await metrics.read(connection)
    families = {family.name: family.samples for family in text_string_to_metric_families(metrics_text().decode())}
    by_state = {
        one.labels["state"]: one.value
        for one in families["butlers_deliveries_by_state"]
        if one.labels["channel"] == "telegram"
    }
    return by_state, families["butlers_oldest_open_delivery_seconds"][0].value


async def test_every_end_is_counted_whoever_wrote_it(still_house: House, message: str) -> None:
    left, arrived = [await uncertain(still_house, f"{message} {n}") for n in range(2)]
    taken_back = await in_queue(still_house, f"{message} 2")
    before, _ = await shown(still_house)
    assert (before["uncertain"], before["queued"]) == (2, 1)
    await say(still_house, left, "leave")
    await say(still_house, arrived, "arrived")
    async with still_house.context("greeter").db.work() as connection:
        await withdrawals.want_back(connection, taken_back, "greeter")
    async with still_house.context("messenger").db.work() as connection:
        await rechecker.withdrawn(connection)
    after, _ = await shown(still_house)
    assert after == {row["status"]: row["n"] for row in await still_house.sql.fetch(BY_STATE)}
    assert after == {"abandoned": 1, "sent": 1, "cancelled": 1}, "and no state in which nothing is left"


async def test_what_waits_for_the_owner_and_the_brake_are_shown(still_house: House, message: str) -> None:
    async def gauges() -> dict[str, float]:
        await shown(still_house)
        families = text_string_to_metric_families(metrics_text().decode())
        named = ("butlers_approvals_waiting", "butlers_oldest_approval_seconds", "butlers_brakes_on")
        return {
            "".join([one.name, *one.labels.values()]): one.value
            for family in families
            for one in family.samples
            if one.name in named
        }

    before = await gauges()
    assert before == {"butlers_oldest_approval_seconds": 0, "butlers_brakes_on": 0}
    asked = [await still_house.notify(message=f"{message} {n}", recipient=new_chat()) for n in range(2)]
    await still_house.sql.execute(AN_HOUR_AGO, asked[0]["action_id"])
    owner = await contacts.owner(still_house.sql)
    assert owner is not None
    brake = await brakes.put_on(still_house.sql, Scope(), owner["id"])
    now = await gauges()
    assert (now["butlers_approvals_waitinggreeter"], now["butlers_brakes_on"]) == (2, 1)
    assert 3600 <= now["butlers_oldest_approval_seconds"] < 4000
    await brakes.lift_one(still_house.sql, brake, owner["id"])
    for one in asked:
        await still_house.decide(one["action_id"], approve=False)
    assert await gauges() == before


async def test_what_is_tried_again_and_again_grows_old(still_house: House, message: str) -> None:
    await work(still_house.worker())
    told = await in_queue(still_house, message)
    await still_house.sql.execute(FAILING, told)
    assert (await shown(still_house))[1] >= 600
