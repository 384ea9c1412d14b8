"""A process that may open few files: idle connections take their share of them and never all."""

import asyncio
import resource
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import pytest

from butlers.cli import main
from tests.integration.daemon.test_memory import sandbox
from tests.rig.bench import Bench
from tests.rig.waiting import LONGEST

FILES: Final = 128


def with_few_files() -> None:
    """Run the command line in a process that may open no more."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    main()


@pytest.mark.slow
async def test_idle_connections_leave_a_process_of_few_files_room(bench: Bench) -> None:
    async with (
        sandbox(bench, "tests.integration.daemon.test_few_files:with_few_files") as (process, faults),
        AsyncExitStack() as at_the_end,
    ):
        assert "few connections" in process.err.read_text()
        port = urlsplit(faults).port
        for _ in range(2 * FILES):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            at_the_end.callback(writer.close)
        async with asyncio.timeout(LONGEST), aiohttp.ClientSession() as http, http.delete(faults) as answer:
            assert answer.status == 200
