"""One process polls a bot; where it dies, another takes over by itself within ten seconds."""

import asyncio
from datetime import timedelta

import pytest

from tests.rig import fresh
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST, eventually

INBOX = "SELECT count(*) FROM switchboard.inbox WHERE text = $1"
RECEIVED = "SELECT received_at FROM switchboard.inbox WHERE text = $1"
HELD = "SELECT max(lease_until) - clock_timestamp() FROM messenger.pollers"
HANDLED = "SELECT count(*) FROM messenger.updates WHERE body #>> '{message,text}' = $1"


@pytest.mark.modes("each")
@pytest.mark.slow
async def test_another_takes_over_within_ten_seconds_and_nothing_is_lost_or_doubled(fleet: Fleet) -> None:
    await heard(fleet, fresh.words("before"))
    await fleet.kill("messenger")
    held = await fleet.value(HELD)
    assert isinstance(held, timedelta)
    assert held < timedelta(seconds=10)
    said = fresh.words("meanwhile")
    await fleet.outside.say(5000000000000001, said)
    await fleet.restart("messenger")
    # Counted from when there is another, whatever time a process takes to start here.
    there = await fleet.value("SELECT clock_timestamp()")
    [row] = await eventually(lambda: fleet.sql(RECEIVED, said))
    assert row["received_at"] - there < timedelta(seconds=10)
    assert await fleet.value(HANDLED, said) == 1
    await heard(fleet, fresh.words("after"))


async def heard(fleet: Fleet, said: str) -> None:
    """Say something as the owner and wait until it is in the inbox, once."""
    await fleet.outside.say(5000000000000001, said)
    async with asyncio.timeout(LONGEST):
        while await fleet.value(INBOX, said) != 1:
            await asyncio.sleep(0.05)
