"""Clients of other people wait 40 and 120 seconds for the owner's answer, all at once, and read it."""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from tests.integration.gate.test_asking import Desk, desk
from tests.rig.model_server import model_server
from tests.verify.test_asking_clients import CLIENTS, Waits, by_claude, waited
from tests.verify.test_claude_runtime import program

__all__ = ["desk", "program"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
WAITS: Final = (40, 120)


async def test_every_client_reads_an_answer_after_forty_and_after_a_hundred_and_twenty_seconds(
    desk: Desk, program: Path, tmp_path: Path
) -> None:
    async def choice(name: str, client: Waits, seconds: float) -> str:
        found = await waited(desk, client, f"{name} for {seconds} s", seconds, 300)
        assert found.seconds >= seconds, (name, found)
        return str(json.loads(found.said)["choice"])

    async with model_server() as short, model_server() as long:
        waiting = {(name, after): choice(name, client, after) for name, client in CLIENTS.items() for after in WAITS}
        for after, models in zip(WAITS, (short, long), strict=True):
            folder = tmp_path / str(after)
            folder.mkdir()
            waiting["Claude Code", after] = choice("Claude Code", by_claude(program, folder, models), after)
        read = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
    print(read)
    assert set(read.values()) == {"Yes"}
    assert len(read) == (len(CLIENTS) + 1) * len(WAITS)
