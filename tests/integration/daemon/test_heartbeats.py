"""All that one process serves is announced in one unit of work, and no heartbeat spoils another's."""

import asyncio
from typing import Final

import pytest

from shared.errors import ButlersError
from switchboard.daemon import Beat, Heartbeats
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOTED: Final = """
SELECT count(*) AS rows, count(DISTINCT xmin::text) AS commits FROM switchboard.butlers WHERE url = $1
"""


def beat(name: str, url: str, status: str = "ready") -> Beat:
    return Beat(name, url, "butler", ("notify",), status)


async def test_twenty_in_one_breath_are_one_unit_of_work(still_house: House) -> None:
    heartbeats, url = Heartbeats(still_house.context("switchboard").db), "http://127.0.0.1:7001"
    await asyncio.gather(*(heartbeats.note(beat(f"butler{n}", url)) for n in range(20)))
    assert tuple(await still_house.row(NOTED, url)) == (20, 1)
    await heartbeats.note(beat("later", url))
    assert tuple(await still_house.row(NOTED, url)) == (21, 2)


async def test_one_that_cannot_be_noted_spoils_none_but_itself(still_house: House) -> None:
    heartbeats, url = Heartbeats(still_house.context("switchboard").db), "http://127.0.0.1:7002"
    beats = [beat("health", url), beat("ill", url, "a status that no row has"), beat("greeter", url)]
    ended = await asyncio.gather(*(heartbeats.note(one) for one in beats), return_exceptions=True)
    assert [isinstance(one, ButlersError) for one in ended] == [False, True, False]
    assert (await still_house.row(NOTED, url))["rows"] == 2
