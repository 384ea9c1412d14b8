"""The timekeeper as a butler's module over HTTP: which folders a client declares for what is saved."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers.butler import Butler, Daemon
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from butlers.modules.manictime import MODULE, ManicTime
from shared.auth.tokens import Verifier
from tests.integration.conftest import house as house  # noqa: PLC0414  # a fixture
from tests.integration.daemon.test_daemon import Served, served
from tests.integration.house import House

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SOME = {"startDate": "2025-01-20", "endDate": "2025-01-23"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def butler(house: House, real: Path) -> AsyncIterator[Served]:
    async for one in timekeeper(house, ManicTime(data=real, timezone="Europe/Vienna")):
        yield one


async def timekeeper(house: House, config: ManicTime) -> AsyncIterator[Served]:
    """A butler of this house that has the module."""

    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        tells = Butler("greeter", "Tells.", build=lambda one: MODULE.build(one, config))
        return build(tells, context, verifier, [url.removeprefix("http://")])[0]

    async for one in served(house, "greeter", make):
        yield one


async def test_a_client_is_asked_for_its_roots_over_http(butler: Served, tmp_path: Path) -> None:
    """Who declares none saves nothing where none is configured."""
    transport = StreamableHttpTransport(f"{butler.url}/mcp", auth=butler.house.tokens["greeter"])
    async with Client(transport, roots=[tmp_path.as_uri()]) as client:
        listed = await client.call_tool("list_screenshots", SOME)
        assert listed.structured_content is not None
        ref = {"screenshotRef": listed.structured_content["screenshots"][0]["screenshotRef"]}
        saved = await client.call_tool("save_screenshot", {**ref, "outputPath": "x/y"})
    async with butler.client() as client:
        unsaved = await client.call_tool("save_screenshot", ref, raise_on_error=False)
        assert unsaved.is_error
    assert saved.structured_content is not None
    assert saved.structured_content["path"] == str(tmp_path / "x/y.jpg")
