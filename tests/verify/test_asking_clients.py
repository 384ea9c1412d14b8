"""Clients of other people wait for the owner's answer: within their own limit, and beyond it.

What each does is written in docs/asking.md from these runs. The Claude Code command line is that of `clients`.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from tests.integration.daemon.test_daemon import Era
from tests.integration.gate.test_asking import Desk, desk
from tests.rig.model_server import Call, ModelServer, Words, model_server
from tests.verify.test_claude_runtime import program

__all__ = ["desk", "program"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

FIND: Final = "SELECT id::text FROM shared.questions WHERE question = $1"


@pytest.fixture
def message() -> str:
    """Words that no other test says."""
    return f"words {uuid4()}"


@dataclass(frozen=True, slots=True)
class Waited:
    """How a call ended: what the caller read, and after how many seconds."""

    said: str
    seconds: float


def arguments(words: str, timeout: float) -> dict[str, object]:
    asked = {"title": "Asked", "question": words, "options": ["Yes", "No"]}
    return {**asked, "wait_for_response": True, "timeout": timeout}


Waits = Callable[[Desk, str, float, float | None], Awaitable[str]]


def by_fastmcp(era: Era) -> Waits:
    """FastMCP's client, which gives up after `limit` seconds."""

    async def call(at: Desk, words: str, timeout: float, limit: float | None) -> str:
        transport = StreamableHttpTransport(f"{at.at.url}/mcp", auth=at.house.tokens["greeter"])
        async with Client(transport, mode=era, timeout=limit) as client:
            return json.dumps((await client.call_tool("ask_user", arguments(words, timeout))).structured_content)

    return call


async def by_the_sdk(at: Desk, words: str, timeout: float, limit: float | None) -> str:
    """The official Python SDK's client."""
    headers = {"Authorization": f"Bearer {at.house.tokens['greeter']}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        SdkClient(streamable_http_client(f"{at.at.url}/mcp", http_client=http), read_timeout_seconds=limit) as client,
    ):
        answer = await client.call_tool("ask_user", arguments(words, timeout))
        return json.dumps(answer.structured_content)


def by_claude(command: Path, folder: Path, models: ModelServer) -> Waits:
    """Claude Code; what its model reads of the call."""

    async def call(at: Desk, words: str, timeout: float, limit: float | None) -> str:
        headers = {"Authorization": f"Bearer {at.house.tokens['greeter']}"}
        server = {"type": "http", "url": f"{at.at.url}/mcp", "headers": headers}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"greeter": server}}))
        models.play(Call("mcp__greeter__ask_user", arguments(words, timeout)), Words("Done."))
        flags = ["--print", "--bare", "--no-session-persistence", "--strict-mcp-config", "--tools", ""]
        flags += [f"--mcp-config={config}", "--allowedTools=mcp__greeter", "--max-turns=3"]
        limits = {} if limit is None else {"MCP_TOOL_TIMEOUT": str(int(limit * 1000))}
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_API_KEY": "sk-ant-x", **limits}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "MCP_CONNECTION_NONBLOCKING": "0"}
        process = await asyncio.create_subprocess_exec(
            str(command),
            *flags,
            cwd=folder,
            env={**environment, **quiet, "ANTHROPIC_BASE_URL": models.url},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate(b"Ask.")
        assert len(models.asked) > 1, printed.decode()
        return models.asked[-1].results[-1]

    return call


async def waited(
    at: Desk, waits: Waits, words: str, answered_after: float, timeout: float, limit: float | None = None
) -> Waited:
    """Call and wait; the owner presses Yes after so many seconds."""

    async def read() -> str:
        try:
            return await waits(at, words, timeout, limit)
        except httpx2.TimeoutException:  # its own limit, or that of the library below it, whichever comes first
            return "Timed out"
        except (MCPError, ExceptionGroup) as gave_up:
            one: BaseException = gave_up
            while isinstance(one, BaseExceptionGroup):
                one = one.exceptions[0]
            return f"{type(one).__name__}: {one}"

    call = asyncio.ensure_future(read())
    card = await at.card(words)
    asked = time.monotonic()
    ended = list[float]()
    call.add_done_callback(lambda _: ended.append(time.monotonic()))
    await asyncio.sleep(max(0, answered_after - (time.monotonic() - asked)))
    await at.house.press(card, "q0")
    said = await call
    return Waited(said, round(ended[0] - asked, 1))


async def became_a_notice(at: Desk, words: str) -> Mapping[str, object]:
    notice = await at.notice(await at.house.sql.fetchval(FIND, words))
    return dict(notice)


CLIENTS: Final[Mapping[str, Waits]] = {
    "FastMCP, today's era": by_fastmcp("auto"),
    "FastMCP, the older era": by_fastmcp("legacy"),
    "SDK": by_the_sdk,
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_of_python_waits_and_reads_the_answer(desk: Desk, message: str, client: str) -> None:
    found = await waited(desk, CLIENTS[client], message, 3, 20)
    assert json.loads(found.said)["choice"] == "Yes"


@pytest.mark.parametrize("client", CLIENTS)
async def test_one_that_gives_up_before_the_answer_loses_nothing(desk: Desk, message: str, client: str) -> None:
    found = await waited(desk, CLIENTS[client], message, 6, 60, limit=3)
    assert "imed out" in found.said
    assert found.seconds < 6
    assert "“Yes”" in str((await became_a_notice(desk, message))["text"])


async def test_claude_code_waits_and_its_model_reads_the_answer(
    desk: Desk, program: Path, tmp_path: Path, message: str
) -> None:
    async with model_server() as models:
        found = await waited(desk, by_claude(program, tmp_path, models), message, 3, 60)
    assert json.loads(found.said)["choice"] == "Yes"


async def test_claude_code_that_gives_up_before_the_answer_loses_nothing(
    desk: Desk, program: Path, tmp_path: Path, message: str
) -> None:
    async with model_server() as models:
        found = await waited(desk, by_claude(program, tmp_path, models), message, 8, 60, limit=4)
    assert found.seconds < 8, found
    assert "“Yes”" in str((await became_a_notice(desk, message))["text"])
