"""Tell the owner something through a butler, as any MCP client would.

    butlers mcp-config greeter > greeter.json
    python tell_owner.py greeter.json "The bread is in the oven."

The file holds a token: let nobody else read it.
"""
# ruff: noqa: INP001  # a program to copy, not a package

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fastmcp import Client


async def tell(config: Mapping[str, object], message: str) -> object:
    """Return the butler's answer: the object documented in docs/schemas/notify_response.v1.json."""
    async with Client(dict(config)) as butler:
        result = await butler.call_tool("notify", {"channel": "telegram", "message": message})
        return result.structured_content


def refusal(config: Mapping[str, Any]) -> str:
    """Return why a butler lets nobody in, in its own sentence, which the MCP client keeps to itself."""
    [server] = config["mcpServers"].values()
    try:
        with urlopen(Request(server["url"], b"{}", server["headers"]), timeout=10):  # noqa: S310  # what mcp-config says
            return "The butler did not answer as it should. Try again."
    except HTTPError as refused:
        said = json.loads(refused.read() or b"{}")
        return str(said.get("error_description") or said.get("error") or refused.reason)
    except (URLError, OSError):
        return f"Nobody answers at {server['url']}. Start it with `butlers up`."


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004  # the two words of the usage line
        sys.exit("Say: python tell_owner.py CONFIG.json MESSAGE")
    mcp_config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        answer = asyncio.run(tell(mcp_config, sys.argv[2]))
    except Exception:  # noqa: BLE001  # whichever the client's libraries raise
        sys.exit(refusal(mcp_config))
    sys.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")
