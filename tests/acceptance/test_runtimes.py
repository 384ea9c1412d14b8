"""A runtime works with a real daemon: what it tells the owner arrives, by its session's token alone."""

import asyncio
from pathlib import Path

import pytest

from butlers.runtime.base import Ended, Job, Limits
from butlers.runtime.registry import RUNTIMES
from tests.integration.runtime.small_butler import KEYS
from tests.integration.runtime.story import MESSAGES, Player
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.model_server import Call, Words, model_server


async def tells_the_owner(player: Player, fleet: Fleet, folder: Path, prefix: str = "") -> str:
    """Let the butler's runtime say something to the owner; what its model read of the answer, if it has one."""
    said, runtime = fresh.words("from a runtime"), RUNTIMES[player.runtime]
    call = {"channel": "telegram", "message": said}
    table = player.table or {"steps": [{"call": "notify", "arguments": call}, {"say": "Told."}]}
    session_id, token = await fleet.session("health")
    (folder / "room").mkdir(mode=0o700)
    (folder / "token").write_text(token)
    async with model_server() as models:
        models.play(Call(f"{prefix}notify", call), Words("Told."))
        job = Job(
            session_id,
            "health",
            "You look after health.",
            "Tell me.",
            f"{fleet.url('health')}/mcp",
            folder / "token",
            folder / "room",
            Limits(),
            runtime.config.model_validate(table),
            KEYS | player.environment(models),
        )
        async with asyncio.timeout(120):
            events = [event async for event in runtime.run(job, asyncio.Event())]
        assert events[-1] == Ended("done", "Told.")
        await fleet.outside.arrived(said, OWNER)
        return "\n".join(models.asked[-1].results) if models.asked else ""


@pytest.mark.modes("one")
async def test_a_script_tells_the_owner(fleet: Fleet, tmp_path: Path) -> None:
    await tells_the_owner(Player("script", {}), fleet, tmp_path)


@pytest.mark.slow
@pytest.mark.modes("one")
async def test_a_model_tells_the_owner_and_reads_that_it_arrived(fleet: Fleet, tmp_path: Path) -> None:
    assert '"status":"ok"' in await tells_the_owner(MESSAGES, fleet, tmp_path)
