"""Saving a screenshot where the owner said that it asks first: parked, shown in a sentence, and run after the yes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from butlers.butler import Butler, Daemon
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from butlers.modules.manictime import MODULE, ManicTime
from butlers.modules.manictime.tools.saving import would_save
from shared.auth.tokens import Verifier
from shared.errors import Unavailable
from tests.integration.commands import said
from tests.integration.conftest import house as house  # noqa: PLC0414  # a fixture
from tests.integration.daemon.test_daemon import Served, served
from tests.integration.house import House
from tests.manictime.desks import desk_over
from tests.rig.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SOME = {"startDate": "2025-01-20", "endDate": "2025-01-23"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def butler(house: House, real: Path, kept: Path) -> AsyncIterator[Served]:
    """A butler that asks before it saves into this folder, with its loops at work."""
    made: list[Daemon] = []

    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        config = ManicTime(data=real, timezone="Europe/Vienna", roots=[kept], gate="ask")
        asks = Butler("greeter", "Asks.", build=lambda one: MODULE.build(one, config))
        made.append(build(asks, context, verifier, [url.removeprefix("http://")])[0])
        return made[0]

    stopping = asyncio.Event()
    async for one in served(house, "greeter", make):
        tasks = [asyncio.ensure_future(loop(stopping)) for loop in made[0].loops]
        yield one
        stopping.set()
        await asyncio.gather(*tasks)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that screenshots are saved into."""
    return tmp_path_factory.mktemp("kept")


async def test_it_is_saved_after_the_yes_and_not_before(butler: Served, house: House, kept: Path) -> None:
    async with butler.client() as client:
        listed = await client.call_tool("list_screenshots", SOME)
        assert listed.structured_content is not None
        shot = listed.structured_content["screenshots"][0]
        given = {"screenshotRef": shot["screenshotRef"], "outputPath": "day/one"}
        asked = (await client.call_tool("save_screenshot", given)).structured_content
    assert asked is not None
    assert asked["status"] == "pending_approval"
    assert not any(kept.iterdir())  # noqa: ASYNC240  # an empty folder
    shown = await said(house, "approvals", "show", asked["action_id"])
    assert f"Save the screenshot of {shot['displayLocalTime']} as day/one." in shown
    await said(house, "approvals", "approve", asked["action_id"])
    assert await until(lambda: [one.name for one in kept.glob("day/*")]) == ["one.jpg"]


async def test_what_could_not_be_saved_is_not_asked(real: Path, tmp_path: Path) -> None:
    given = {"screenshotRef": "A" * 22, "cropWidth": 5}
    with pytest.raises(Unavailable, match="No folder is open for saving"):
        would_save(desk_over(real, gate="ask"), given)
    asks = desk_over(real, gate="ask", roots=[tmp_path])
    assert would_save(asks, given) == f"Save a part of the screenshot {'A' * 22} by its time."
