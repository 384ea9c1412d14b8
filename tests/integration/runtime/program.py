"""A program of somebody else's: its MCP servers stand in the file it is given, its prompt on its standard input."""

import asyncio
import json
import sys
from pathlib import Path

from fastmcp import Client


async def main(config: str) -> None:
    """Read the beds, tell the owner, and say so."""
    assert sys.stdin.read() == "How are the beds?"
    async with Client(json.loads(config)) as client:
        found = await client.call_tool("beds", {})
        await client.call_tool("notify", {"message": f"There are {found.structured_content['count']} beds."})
    print("The owner knows.")


asyncio.run(main(Path(sys.argv[1]).read_text()))
