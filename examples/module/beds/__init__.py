"""Garden beds: a module with a table, a tool that answers with a picture, one that asks, a resource, and a loop."""

import asyncio
import base64
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from mcp_types import ImageContent

from butlers.butler import Arguments, Components, Context, Module, NoConfig, Resource, Result, Tool, ToolCall
from shared.loops import pause
from shared.retention import Kept

WATER = "INSERT INTO beds.waterings (butler, bed) VALUES ($1, $2)"
COUNT = "SELECT bed, count(*) FROM beds.waterings GROUP BY bed ORDER BY bed"
FORGET = "DELETE FROM beds.waterings WHERE watered_at < clock_timestamp() - interval '30 days'"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 9"><rect height="9" width="{}"/></svg>'
BED = {"type": "object", "properties": {"bed": {"type": "string"}}, "required": ["bed"]}


def build(context: Context, _: NoConfig) -> Components:
    """Make them for one butler."""

    async def counts() -> dict[str, int]:
        async with context.db.work() as connection:
            return dict(await connection.fetch(COUNT))

    async def water(call: ToolCall) -> Result:
        async with context.db.work() as connection:
            await connection.execute(WATER, context.name, str(call.arguments["bed"]))
        bar = base64.b64encode(SVG.format(sum((found := await counts()).values())).encode()).decode()
        return Result({"waterings": found}, [ImageContent(type="image", mime_type="image/svg+xml", data=bar)])

    async def read(_: ToolCall) -> Sequence[tuple[str, str]]:
        return [("application/json", json.dumps(await counts()))]

    async def forget(stopping: asyncio.Event) -> None:
        while not await pause(stopping, 3600):
            async with context.db.work() as connection:
                await connection.execute(FORGET)

    def says(arguments: Arguments) -> str:
        return f"Open the valve of the bed {arguments['bed']}."

    every = Resource("beds://all", "beds", "Waterings by bed.", "application/json", read)
    tools = [
        Tool("water", "Note that a bed was watered.", BED, water),
        Tool("open_valve", "Water a bed.", BED, water, gate="rules", says=says),
    ]
    return Components(tools, [forget], [every])


KEPT = (Kept("beds.waterings", "butler bed", "removed", timedelta(days=30), "after the watering"),)
MODULE = Module("beds", build, migrations=Path(__file__).parent / "migrations", retention=KEPT)
