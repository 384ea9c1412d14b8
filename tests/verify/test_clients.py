"""Nine clients of other people connect with what `butlers mcp-config` prints, untouched.

Two Python packages are those of this project's own lock file. The older ones, and the npm packages, are installed here
by lock files of their own in `clients`, which hold versions and hashes and name no index; without them the test fails.
"""

import asyncio
import http.server
import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.daemon.test_daemon import Served
from tests.integration.daemon.test_notices import Got, gets_the_block, painting, token_for_notices
from tests.integration.house import opened
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.cluster import Cluster
from tests.rig.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).parent / "clients"
FASTMCP = str(ROOT / "examples" / "tell_owner.py")
SDK_1 = """
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def tell(server, message):
    async with streamablehttp_client(server["url"], headers=server["headers"]) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            answer = await session.call_tool("notify", {"channel": "telegram", "message": message})
            print(json.dumps(answer.structuredContent))

with open(sys.argv[1]) as file:
    [server] = json.load(file)["mcpServers"].values()
asyncio.run(tell(server, sys.argv[2]))
"""
SDK_2 = """
import asyncio, json, sys
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

async def tell(server, message):
    async with create_mcp_http_client(headers=server["headers"]) as http:
        async with Client(streamable_http_client(server["url"], http_client=http)) as client:
            answer = await client.call_tool("notify", {"channel": "telegram", "message": message})
            print(json.dumps(answer.structured_content))

with open(sys.argv[1]) as file:
    [server] = json.load(file)["mcpServers"].values()
asyncio.run(tell(server, sys.argv[2]))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """Where the clients lie, and the variables they run with: the machine's without anybody's settings."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def older(self) -> str:
        """The Python with fastmcp 2 and the Python SDK 1."""
        return str(self.folder / "older" / "bin" / "python")

    @property
    def node(self) -> Path:
        """The folder with the npm packages."""
        return self.folder / "node"

    async def ran(self, *command: str, cwd: Path | None = None, **more: str) -> str:
        """What the program printed; it must end well."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd or self.folder,
            env={**self.environment, **more},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(300):
            printed, wrong = await process.communicate()
        assert process.returncode == 0, f"{command}\n{printed.decode()}\n{wrong.decode()}"
        return printed.decode()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The clients as their lock files name them, from the package indexes that this machine is set up for."""
    folder = tmp_path_factory.mktemp("clients")
    shutil.copytree(LOCKS, folder / "node")
    (folder / "home").mkdir()
    made = Installed(folder, {"PATH": os.environ["PATH"], "HOME": str(folder / "home")})
    uv = str(Path(sys.executable).parent / "uv")
    lock = str(LOCKS / "older.lock")

    async def install(*command: str, cwd: Path = folder) -> None:
        await Installed(folder, os.environ).ran(*command, cwd=cwd)

    async def pythons() -> None:
        await install(uv, "venv", "--quiet", "--python", sys.executable, "older")
        await install(uv, "pip", "install", "--quiet", "--python", made.older, "--require-hashes", "-r", lock)

    async def both() -> None:
        await asyncio.gather(pythons(), install("npm", "ci", "--no-audit", "--no-fund", cwd=made.node))

    asyncio.run(both())
    return made


@pytest.fixture
async def printed(fleet: Fleet, tmp_path: Path) -> Path:
    """A file with what `butlers mcp-config` prints, and nothing else done to it."""
    code, said, wrong = await fleet.house.butlers("mcp-config", "health")
    assert (code, wrong) == (0, "")
    file = tmp_path / "health.json"
    file.write_text(said)
    return file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def painter(cluster: Cluster) -> AsyncIterator[Served]:
    """A butler with a tool for each kind of result."""
    async with opened(cluster) as house:
        async for one in painting(house):
            yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def noticing(painter: Served) -> str:
    """A client's token that was made for notices."""
    return await token_for_notices(painter.house)


def server_in(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text())["mcpServers"]["health"]
    return found


@pytest.mark.parametrize("client", ["fastmcp 4", "fastmcp 2", "SDK 2", "SDK 1", "TypeScript"])
@pytest.mark.modes("one")
async def test_a_client_program_tells_the_owner(client: str, installed: Installed, printed: Path, fleet: Fleet) -> None:
    said = fresh.words("client")
    command = {
        "fastmcp 4": (sys.executable, FASTMCP),
        "fastmcp 2": (installed.older, FASTMCP),
        "SDK 2": (sys.executable, "-c", SDK_2),
        "SDK 1": (installed.older, "-c", SDK_1),
        "TypeScript": ("node", str(installed.node / "typescript.mjs")),
    }[client]
    answer = json.loads(await installed.ran(*command, str(printed), said))
    entry = await fleet.outside.arrived(said, OWNER)
    assert (answer["status"], answer["delivery"]["delivery_id"]) == ("ok", entry.provider_id)


async def by_typescript(installed: Installed, butler: Served, token: str, tool: str) -> Got:
    """What the TypeScript SDK's client gets of a tool."""
    program = str(installed.node / "results.mjs")
    said = json.loads(await installed.ran("node", program, f"{butler.url}/mcp", token, tool))
    texts = [one["text"] for one in said["content"] if one["type"] == "text"]
    pictures = sum(one["type"] == "image" for one in said["content"])
    return Got(texts, pictures, said.get("structuredContent"), said.get("isError") is True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("tool", ["number", "told", "drawn", "refused"])
async def test_the_typescript_client_gets_notices_with_every_kind_of_result(
    tool: str, installed: Installed, painter: Served, noticing: str
) -> None:
    await gets_the_block(painter, partial(by_typescript, installed, painter, noticing, tool))


@pytest.mark.modes("one")
async def test_curl_tells_the_owner(installed: Installed, printed: Path, fleet: Fleet) -> None:
    said, server = fresh.words("curl"), server_in(printed)
    headers = server["headers"]
    assert isinstance(headers, dict)
    arguments = {"channel": "telegram", "message": said}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "notify", "arguments": arguments}}
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    words += ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"]
    answer = await installed.ran("curl", "-sSf", str(server["url"]), *words, "-d", json.dumps(call))
    entry = await fleet.outside.arrived(said, OWNER)
    assert json.loads(answer)["result"]["structuredContent"]["delivery"]["delivery_id"] == entry.provider_id


class NoModel(http.server.BaseHTTPRequestHandler):
    """Refuses every prompt, as a provider whose model is unknown does."""

    def do_POST(self) -> None:
        """Read the request whole, and answer 400."""
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "There is no model here."}}'
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def offline() -> Iterator[dict[str, str]]:
    """The variables by which Claude Code asks a server of this test, and nobody else."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoModel) as server:
        threading.Thread(target=server.serve_forever).start()
        yield {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        server.shutdown()


@dataclass(frozen=True, slots=True)
class Claude:
    """Claude Code in a project of its own, for a person who has never used it."""

    installed: Installed
    project: Path
    offline: Mapping[str, str]

    async def says(self, *words: str, ends: int = 0) -> str:
        """What it prints."""
        wrapper = str(self.installed.node / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs")
        command = ["node", wrapper, *words]
        if ends:
            command = ["sh", "-c", f'"$@"; test $? -eq {ends}', "sh", *command]
        return await self.installed.ran(*command, cwd=self.project, HOME=str(self.project), **self.offline)


@pytest.fixture
def claude(installed: Installed, offline: Mapping[str, str], tmp_path: Path) -> Claude:
    project = tmp_path / "project"
    project.mkdir()
    return Claude(installed, project, offline)


@pytest.mark.modes("one")
async def test_claude_code_connects_by_a_file(claude: Claude, printed: Path, fleet: Fleet) -> None:
    assert fleet.names
    words = ("--strict-mcp-config", "-p", "hello", "--output-format", "stream-json", "--verbose")
    said = await claude.says("--mcp-config", str(printed), *words, ends=1)
    first = json.loads(said.splitlines()[0])
    assert first["mcp_servers"] == [{"name": "health", "status": "connected"}]
    assert "mcp__health__notify" in first["tools"]


@pytest.mark.modes("one")
async def test_claude_code_connects_by_the_projects_mcp_json(claude: Claude, printed: Path, fleet: Fleet) -> None:
    shutil.copy(printed, claude.project / ".mcp.json")
    (claude.project / ".claude").mkdir()
    # What Claude Code asks its user when it first sees such a file.
    (claude.project / ".claude" / "settings.json").write_text('{"enabledMcpjsonServers": ["health"]}')
    assert f"health: {fleet.url('health')}/mcp (HTTP) - ✔ Connected" in await claude.says("mcp", "list")
