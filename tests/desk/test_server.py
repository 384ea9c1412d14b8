"""The stand-alone server of the tool `notify`, in a process of its own: on a pipe, and over HTTP with a token."""

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from butlers.daemon.connection_limits import MOST_BODY, MOST_HEADERS
from butlers.desk.server import MEMORY_MB
from tests.desk.screen import Screen

COMMAND: Final = ["-m", "butlers.cli", "desk", "mcp"]
# Of the contract, by parameter: its type, its default, and what else bounds it.
AGREED: Final[Mapping[str, tuple[str, str | bool | None, Mapping[str, object]]]] = {
    "message": ("string", None, {"minLength": 1, "maxLength": 10_000}),
    "wait_for_response": ("boolean", True, {}),
    "timeout": ("number", None, {"minimum": 5, "maximum": 300}),
    "title": ("string", "VoiceMode", {}),
    "show_history": ("boolean", True, {}),
    "chime_enabled": ("boolean", False, {}),
    "theme": ("string", "auto", {"enum": ["auto", "light", "dark"]}),
}


def on_a_pipe(seen: Screen, errors: Path, *flags: str) -> "Client[StdioTransport]":
    transport = StdioTransport(sys.executable, [*COMMAND, *flags], env=dict(seen.env), log_file=errors)
    return Client(transport)


async def told(client: "Client[StdioTransport]", seen: Screen, typed: str, **arguments: object) -> str:
    """What the tool returns when a person types that."""
    asked = {"message": "How are you?", "title": "Piped", **arguments}
    call = asyncio.create_task(client.call_tool("notify", asked))
    await asyncio.to_thread(seen.window, "Piped", 10)
    await asyncio.to_thread(seen.type, typed)
    await asyncio.to_thread(seen.key, "Return")
    answer = await asyncio.wait_for(call, 5)
    assert answer.structured_content is None
    return str(getattr(answer.content[0], "text", None))


async def test_on_a_pipe_its_one_tool_is_the_contracts(seen: Screen, tmp_path: Path) -> None:
    async with on_a_pipe(seen, tmp_path / "errors") as client:
        [tool] = await client.list_tools()
        published = tool.input_schema["properties"]
        assert (tool.name, tool.input_schema["required"], set(published)) == ("notify", ["message"], set(AGREED))
        for name, (kind, default, bounds) in AGREED.items():
            said: dict[str, object] = {"type": kind, "default": default, **bounds}
            found = {key: value for key, value in published[name].items() if key != "description"}
            assert found == {key: value for key, value in said.items() if value is not None}
        assert await told(client, seen, "Fine") == "User response: Fine"
        refused = await client.call_tool("notify", {"message": ""}, raise_on_error=False)
        assert refused.is_error
        assert "Error: Message cannot be empty" in str(refused.content)


def written(folder: Path) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file()]


async def test_what_is_typed_into_a_sensitive_popup_is_kept_nowhere(seen: Screen, tmp_path: Path) -> None:
    secret, found = "hunter2 and more", list[str]()
    async with on_a_pipe(seen, tmp_path / "errors", "--folder", str(tmp_path), "--history-limit", "1") as client:
        call = asyncio.create_task(client.call_tool("notify", {"message": "Key?", "title": "Piped", "sensitive": True}))
        await asyncio.to_thread(seen.window, "Piped", 10)
        await asyncio.to_thread(seen.clip, "before")
        await asyncio.to_thread(seen.type, secret)
        await asyncio.to_thread(seen.key, "ctrl+a", "ctrl+c")
        await asyncio.sleep(0.1)
        found.append(await asyncio.to_thread(seen.run, "xclip", "-o", "-selection", "clipboard"))
        await asyncio.to_thread(seen.key, "Return")
        answer = await asyncio.wait_for(call, 5)
        assert getattr(answer.content[0], "text", None) == f"User response: {secret}"
        call = asyncio.create_task(client.call_tool("notify", {"message": "And now?", "title": "Piped"}))
        at = await asyncio.to_thread(seen.window, "Piped", 10)
        x, y, _, height = seen.place(at)
        await asyncio.to_thread(seen.click, x + 60, y + height - 170)
        await asyncio.to_thread(seen.key, "ctrl+a", "ctrl+c")
        await asyncio.sleep(0.1)
        found.append(await asyncio.to_thread(seen.run, "xclip", "-o", "-selection", "clipboard"))
        await asyncio.to_thread(seen.key, "Escape")
        await asyncio.wait_for(call, 5)
    assert found == ["\u2022" * len(secret), "Key?\n> (not kept)"]
    assert not [file for file in written(tmp_path) if secret in file]


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def over_http(seen: Screen, folder: Path) -> AsyncIterator[tuple[str, int]]:
    """The address of a server that listens, in a process of its own, and that process's number."""
    port = 20_000 + os.getpid() % 20_000
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMAND, "--http", str(port), "--folder", str(folder), env=dict(seen.env)
    )
    try:
        async with asyncio.timeout(15):
            while not await listens(port):
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process.pid
    finally:
        process.terminate()
        await process.wait()


async def test_over_http_nobody_is_answered_without_the_token_or_from_elsewhere(seen: Screen, tmp_path: Path) -> None:
    async with over_http(seen, tmp_path) as (url, _):
        kept = tmp_path / "mcp-token"
        token = kept.read_text(encoding="utf-8").strip()
        assert kept.stat().st_mode & 0o777 == 0o600
        good = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        listing = json.loads('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}')
        wrongs = (
            {"Authorization": ""},
            {"Authorization": "Bearer x"},
            {"Host": "evil.x"},
            {"Origin": "https://evil.x"},
        )
        async with httpx2.AsyncClient() as http:
            refused = [(await http.post(url, headers={**good, **wrong}, json=listing)).status_code for wrong in wrongs]
        assert refused[:2] == [401, 401]
        assert all(status in {400, 403, 421} for status in refused[2:]), refused
        async with Client(StreamableHttpTransport(url, auth=token)) as client:
            answer = await client.call_tool(
                "notify", {"message": "Done.", "title": "Wired", "wait_for_response": False}
            )
            assert getattr(answer.content[0], "text", None) == "✓ Message displayed successfully"
        assert seen.windows("Wired")


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"a:\r\n" * (MOST_HEADERS + 1) + b"b", b"431"),
        (b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n", b"401"),
    ],
    ids=["headers", "upgrade"],
)
async def test_over_http_no_head_gets_past_a_daemons_limits(
    seen: Screen, tmp_path: Path, more: bytes, status: bytes
) -> None:
    async with over_http(seen, tmp_path) as (url, _):
        port = httpx2.URL(url).port or 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port + more)
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 " + status)
        writer.close()


async def test_over_http_a_body_is_no_longer_than_a_daemons(seen: Screen, tmp_path: Path) -> None:
    async with over_http(seen, tmp_path) as (url, _), httpx2.AsyncClient() as http:
        token = (tmp_path / "mcp-token").read_text(encoding="utf-8").strip()
        good = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        assert (await http.post(url, headers=good, content=b" " * (MOST_BODY + 1))).status_code == 413


async def test_over_http_its_memory_has_an_end_and_is_never_dumped(seen: Screen, tmp_path: Path) -> None:
    async with over_http(seen, tmp_path) as (_, number):
        assert resource.prlimit(number, resource.RLIMIT_DATA)[0] == MEMORY_MB * 2**20
        assert resource.prlimit(number, resource.RLIMIT_CORE) == (0, 0)
