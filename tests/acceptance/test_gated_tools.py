"""A gated tool of a module in a running fleet: what a killed daemon began is left to the owner, run by no machine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rig.bench import Bench, House
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
VALVE = '''
"""A valve, which writes each opening into a file and then takes its time."""
import asyncio
from pathlib import Path
from pydantic import BaseModel, ConfigDict
from butlers.butler import Components, Module, Result, Tool


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    file: str


def build(context, config):
    async def run(call):
        with Path(config.file).open("a") as file:
            file.write(f"{call.arguments['bed']}\\n")
        await asyncio.sleep(call.arguments.get("seconds", 0))
        return Result({"opened": call.arguments["bed"]})

    says = lambda arguments: f"Open the valve of bed {arguments['bed']}."
    any_ = {"type": "object"}
    return Components([
        Tool("open_valve", "Open a valve.", any_, run, gate="rules", says=says),
        Tool("read_valve", "Read a valve.", any_, run, gate="ask", says=says, repeatable=True),
    ])


MODULE = Module("valve", build, Config)
'''


@pytest_asyncio.fixture(loop_scope="session")
async def house(bench: Bench) -> AsyncIterator[House]:
    made = await bench.house()
    folder = made.folder / "fleet"
    (folder / "valve").mkdir()
    (folder / "valve" / "__init__.py").write_text(VALVE)
    with (folder / "greeter" / "butler.toml").open("a") as file:
        file.write(f'modules = ["valve"]\n[valve]\nfile = "{runs_of(made)}"\n')
    yield made
    made.close()


def runs_of(house: House) -> Path:
    return house.folder / "runs.txt"


STATUS = "SELECT status FROM shared.pending_actions WHERE id::text = $1"


@pytest.mark.slow
async def test_a_daemon_killed_in_the_call_leaves_it_to_the_owner(house: House) -> None:
    code, _, err = await house.butlers("migrate")
    assert code == 0, err
    fleet = await Fleet.start(house, "each")
    try:
        client = await fleet.client("greeter")
        asked = {}
        for tool in ("open_valve", "read_valve"):
            answer = (await client.call_tool(tool, {"bed": tool, "seconds": 2})).structured_content
            assert answer is not None
            assert answer["status"] == "pending_approval", answer
            asked[tool] = answer["action_id"]
            code, _, err = await house.butlers("approvals", "approve", answer["action_id"])
            assert code == 0, err

        async def status(tool: str) -> str:
            return str(await fleet.db.fetchval(STATUS, asked[tool]))

        async def both_run() -> bool:
            return runs_of(house).exists() and len(runs_of(house).read_text().split()) == 2

        await eventually(both_run)
        await fleet.kill("greeter")
        await fleet.restart("greeter")
        async with asyncio.timeout(LONGEST):
            while await status("read_valve") != "executed" or await status("open_valve") != "uncertain":
                await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        assert await status("open_valve") == "uncertain"
        told = (await house.butlers("approvals", "show", asked["open_valve"]))[1]
        assert "Outcome not known" in told
    finally:
        await fleet.stop()
    assert sorted(runs_of(house).read_text().split()) == ["open_valve", "read_valve", "read_valve"]
