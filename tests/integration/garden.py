"""A butler with gated tools that open valves, which its tests hold, count and let fail."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from butlers.butler import Butler, Components, Context, Daemon, Result, Tool, ToolCall
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from shared.auth.tokens import Verifier
from shared.db.pool import Record
from shared.errors import ButlersError
from tests.integration.daemon.test_daemon import Served, served
from tests.integration.house import House
from tests.rig.waiting import eventually

ANY = {"type": "object"}
FORCE = {"type": "object", "properties": {"bed": {"type": "string"}, "hard": {"type": "boolean"}}, "required": ["bed"]}
# What the far end of a tool may answer: long, with a NUL, half a character and words of others.
ODD = f"The other server wrote: \0 \ud800 {'<p>Bad gateway</p> ' * 300}"


@dataclass(slots=True)
class Valves:
    """What the tools did: the arguments of each run, as they were given."""

    runs: list[Mapping[str, object]] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, bed: str) -> int:
        return sum(run.get("bed") == bed for run in self.runs)

    async def open(self, call: ToolCall) -> Result:
        self.runs.append(call.arguments)
        if call.arguments.get("stuck"):
            raise ButlersError("The valve is stuck.", "Look at it.")
        if call.arguments.get("hold"):
            await self.hold.wait()
        return Result({"opened": call.arguments.get("bed")})

    async def fail(self, _: ToolCall) -> Result:
        raise ButlersError(ODD)


@dataclass(frozen=True, slots=True)
class Garden:
    """The butler with its valves, on a port, in a house at work."""

    house: House
    at: Served
    valves: Valves
    daemon: Daemon

    async def call(self, tool: str = "water", /, **arguments: object) -> Mapping[str, object]:
        async with self.at.client() as client:
            answer: Mapping[str, object] | None = (await client.call_tool(tool, arguments)).structured_content
        assert answer is not None
        return answer

    async def stands(self, action_id: object, wait: float = 10) -> Mapping[str, object]:
        return await self.call("notification_status", notification_id=action_id, wait_seconds=wait)

    async def row(self, action_id: object) -> Record:
        return await self.house.row("SELECT * FROM shared.pending_actions WHERE id = $1", str(action_id))

    async def ended(self, action_id: object, status: str) -> Record:
        async def look() -> Record | None:
            found = await self.row(action_id)
            return found if found["status"] == status else None

        return await eventually(look)

    async def card(self, words: str) -> Mapping[str, object]:
        async def look() -> Mapping[str, object] | None:
            return next(iter(self.house.cards(words)), None)

        return await eventually(look)

    async def events(self, action_id: object) -> list[Record]:
        text = "SELECT event_type, actor, rule_id, reason FROM shared.approval_events WHERE action_id = $1 ORDER BY seq"
        return await self.house.sql.fetch(text, str(action_id))


def says(arguments: Mapping[str, object]) -> str:
    return f"Open the valve of bed {arguments['bed']}."


def tools(valves: Valves) -> list[Tool]:
    return [
        Tool("water", "Water a bed.", ANY, valves.open, gate="rules", says=says),
        Tool("flood", "Flood a bed.", ANY, valves.open, gate="rules", risk="high", says=says),
        Tool("prune", "Prune a bed.", ANY, valves.open, gate="ask", says=says),
        Tool("measure", "Measure a bed.", ANY, valves.open, gate="ask", repeatable=True, says=says),
        Tool("drain", "Drain a bed.", ANY, valves.fail, gate="rules", says=says),
        Tool("look", "Look at a bed.", ANY, valves.open),
        Tool("force", "Force a valve.", FORCE, valves.open, gate="rules", says=says),
    ]


async def gardened(house: House) -> AsyncIterator[Garden]:
    """The garden in this house, as long as the caller looks at it."""
    valves = Valves()
    made: list[Daemon] = []

    def gardening(_: Context) -> Components:
        return Components(tools(valves))

    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        hosts = [url.removeprefix("http://")]
        made.append(build(Butler("greeter", "Gardens.", build=gardening), context, verifier, hosts)[0])
        return made[0]

    stopping = asyncio.Event()
    async for at in served(house, "greeter", make):
        tasks = [asyncio.ensure_future(loop(stopping)) for loop in made[0].loops]
        yield Garden(house, at, valves, made[0])
        stopping.set()
        valves.hold.set()
        await asyncio.gather(*tasks)
