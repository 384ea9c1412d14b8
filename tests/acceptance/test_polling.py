"""One process polls a bot; where it dies, another takes over by itself within ten seconds."""

import asyncio
import time

import pytest

from tests.rig import fresh
from tests.rig.fleet import Fleet

INBOX = "SELECT count(*) FROM switchboard.inbox WHERE text = $1"
HANDLED = "SELECT count(*) FROM messenger.updates WHERE body #>> '{message,text}' = $1"


@pytest.mark.modes("each")
@pytest.mark.slow
async def test_another_takes_over_within_ten_seconds_and_nothing_is_lost_or_doubled(fleet: Fleet) -> None:
    await heard(fleet, fresh.words("before"))
    await fleet.kill("messenger")
    died = time.monotonic()
    said = fresh.words("meanwhile")
    await fleet.outside.say(5000000000000001, said)
    await fleet.restart("messenger")
    async with asyncio.timeout(20):
        while await fleet.value(INBOX, said) != 1:
            await asyncio.sleep(0.05)
    assert time.monotonic() - died < 10
    assert await fleet.value(HANDLED, said) == 1
    await heard(fleet, fresh.words("after"))


async def heard(fleet: Fleet, said: str) -> None:
    """Say something as the owner and wait until it is in the inbox, once."""
    await fleet.outside.say(5000000000000001, said)
    async with asyncio.timeout(10):
        while await fleet.value(INBOX, said) != 1:
            await asyncio.sleep(0.05)
