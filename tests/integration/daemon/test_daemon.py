"""A daemon's MCP surface as clients and daemons meet it, in both protocol eras, over HTTP."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Literal
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool as McpTool
from mcp_types import ListToolsRequest

from butlers.butler import Daemon, Result, Tool, ToolCall
from butlers.daemon.discovery import keep_token
from butlers.daemon.mcp_server import NoState, ServedTool, ToolServer, skip_header_schemas
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token, mint_session_token
from shared.errors import HopFailed
from shared.rpc import request_of
from tests.integration.house import House
from tests.integration.sandbox_runner import KEPT
from tests.rig import outside_sessions
from tests.rig.served import Server
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

Era = Literal["auto", "legacy"]
READ_ONLY = dict.fromkeys(("notification_status", "contacts", "attachment", "question_status", "notices"), True)
ERAS: tuple[Era, ...] = ("auto", "legacy")


@dataclass(frozen=True, slots=True)
class Served:
    """The house with one of its daemons on a port."""

    house: House
    name: str
    url: str
    http: aiohttp.ClientSession

    def client(self, era: Era = "auto") -> Client[StreamableHttpTransport]:
        transport = StreamableHttpTransport(f"{self.url}/mcp", auth=self.house.tokens[self.name])
        return Client(transport, mode=era)

    async def post(
        self, token: str | None, tool: str, arguments: Mapping[str, object] | None = None, **extra: str
    ) -> tuple[int, str]:
        """One raw tools/call: the HTTP status and the body."""
        headers, body = request_of(token or "", tool, arguments or {}, 1)
        if token is None:
            del headers["authorization"]
        headers |= {name.replace("_", "-"): value for name, value in extra.items()}
        async with self.http.post(f"{self.url}/mcp", json=body, headers=headers) as answer:
            return answer.status, await answer.text()

    def hop_token(self, caller: str, audience: str | None = None) -> str:
        keys = keystore.read(self.house.settings.home, caller)
        return Signer(caller, keys.private_pem, time.time).token_for(audience or self.name)


async def served(house: House, name: str, make: Callable[[str], Daemon] | None = None) -> AsyncIterator[Served]:
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    made = make(url) if make else house.assembly.daemon(name, url)
    server = Server(
        uvicorn.Config(made.app, log_config=None, ws="none", timeout_keep_alive=KEPT, timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.005)
    async with aiohttp.ClientSession() as http:
        yield Served(house, name, url, http)
    server.should_exit = True
    await asyncio.wait_for(task, LONGEST)
    if made.parts.close is not None:
        await made.parts.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def greeter(house: House) -> AsyncIterator[Served]:
    async for one in served(house, "greeter"):
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def switchboard(house: House) -> AsyncIterator[Served]:
    async for one in served(house, "switchboard"):
        yield one


async def test_the_tools_are_the_same_in_both_eras(greeter: Served) -> None:
    listed = []
    for era in ERAS:
        async with greeter.client(era) as client:
            listed.append([tool.model_dump(exclude_none=True) for tool in await client.list_tools()])
    assert listed[0] == listed[1]
    assert listed[0]


async def test_notify_is_published_as_the_contract_says(greeter: Served) -> None:
    async with greeter.client() as client:
        (notify,) = [tool for tool in await client.list_tools() if tool.name == "notify"]
    schema = notify.model_dump()["input_schema"]
    assert schema["required"] == ["channel", "message"]
    kinds = {name: (one["type"], one.get("format")) for name, one in schema["properties"].items()}
    assert kinds == {
        "channel": ("string", None),
        "message": ("string", None),
        "contact_id": ("string", "uuid"),
        "recipient": ("string", None),
        "subject": ("string", None),
        "intent": ("string", None),
        "emoji": ("string", None),
        "request_context": ("object", None),
    }
    assert schema["properties"]["channel"]["enum"] == ["telegram", "email"]
    assert schema["properties"]["intent"]["enum"] == ["send", "reply", "react"]
    assert "idempotency_key" in schema["properties"]["request_context"]["properties"]


async def test_a_tool_says_whether_it_only_reads(greeter: Served) -> None:
    async with greeter.client() as client:
        hints = {tool.name: tool.model_dump()["annotations"]["read_only_hint"] for tool in await client.list_tools()}
    assert hints == {**READ_ONLY, "notify": False, "withdraw": False, "ask_user": False}


async def test_a_client_is_told_who_serves_it_and_who_the_butler_is(greeter: Served) -> None:
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    headers = {
        "authorization": f"Bearer {greeter.house.tokens['greeter']}",
        "accept": "application/json, text/event-stream",
    }
    async with greeter.http.post(f"{greeter.url}/mcp", json=body, headers=headers) as answer:
        text = await answer.text()
    told = json.loads(text[text.index("{") :])["result"]
    assert (told["serverInfo"]["name"], told["serverInfo"]["version"]) == ("greeter", version("butlers"))
    # The description, and then the persona.
    assert told["instructions"].strip() == "The greeter butler of a test.\n\n# greeter\n\nBrief and exact."


async def test_a_caller_whom_nobody_can_check_is_told_to_come_again_and_gets_nothing(greeter: Served) -> None:
    house = greeter.house
    keys = keystore.read(house.settings.home, keystore.OWNER)
    minted = mint_client_token(Signer(keystore.OWNER, keys.private_pem, time.time), "greeter", timedelta(hours=1))
    await keep_token(house.sql, minted.jti, "greeter", timedelta(hours=1))
    words = f"words {uuid4()}"
    asked = {"channel": "telegram", "message": words}
    await house.sql.execute("REVOKE SELECT ON shared.client_tokens FROM butlers_group_butler")
    status, body = await greeter.post(minted.token, "notify", asked)
    await house.sql.execute("GRANT SELECT ON shared.client_tokens TO butlers_group_butler")
    assert (status, json.loads(body)) == (
        503,
        {"error": "The caller cannot be verified right now. Try again in a moment."},
    )
    assert house.sent(words) == []
    assert (await greeter.post(minted.token, "notify", asked))[0] == 200


async def test_every_daemon_has_notify(house: House) -> None:
    assert all("notify" in one.context.tools for one in house.daemons.values() if one.context is not None)


@pytest.mark.parametrize("era", ERAS)
async def test_a_message_is_sent_and_its_answer_is_an_object_and_its_text(greeter: Served, era: Era) -> None:
    message = f"words {uuid4()}"
    async with greeter.client(era) as client:
        told = await client.call_tool("notify", {"channel": "telegram", "message": message})
    assert told.structured_content is not None
    assert told.structured_content["status"] == "ok"
    assert json.loads(told.content[0].text) == told.structured_content
    assert len(greeter.house.sent(message)) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({}, "Missing required 'channel'"),
        ({"channel": "sms", "message": "x"}, "Unsupported channel 'sms'"),
        ({"channel": "telegram"}, "Missing required 'message' parameter"),
        ({"channel": "telegram", "message": 5}, "Parameter 'message' must be a string"),
        ({"channel": "telegram", "message": "x", "recipent": "1"}, "Unknown parameter 'recipent'"),
        ({"channel": "telegram", "message": "x", "request_context": "{"}, "Parameter 'request_context'"),
    ],
)
async def test_a_validation_error_is_an_ordinary_result(
    greeter: Served, era: Era, arguments: dict[str, object], begins: str
) -> None:
    async with greeter.client(era) as client:
        told = await client.call_tool("notify", arguments, raise_on_error=False)
    assert not told.is_error
    assert told.structured_content is not None
    assert set(told.structured_content) == {"status", "error"}
    assert told.structured_content["error"].startswith(begins)


async def test_the_token_names_the_butler_whatever_else_is_said(greeter: Served) -> None:
    message = f"words {uuid4()}"
    told = await greeter.house.notify("health", message=message)
    row = await greeter.house.row("SELECT * FROM shared.notifications WHERE id = $1", told["notification_id"])
    assert (row["origin_butler"], row["envelope"]["origin_butler"]) == ("health", "health")
    claimed = {"channel": "telegram", "message": message, "origin_butler": "greeter"}
    async with greeter.client() as client:
        refused = await client.call_tool("notify", claimed)
    assert "Unknown parameter 'origin_butler'" in str(refused.structured_content)


async def test_without_a_token_of_this_butler_there_is_no_entry(greeter: Served) -> None:
    wrong = {
        "none": None,
        "empty": "",
        "noise": "a.b.c",
        "another butler's": greeter.house.tokens["health"],
        "for another daemon": greeter.hop_token("health", "messenger"),
    }
    for why, token in wrong.items():
        status, text = await greeter.post(token, "notify", {"channel": "telegram", "message": "x"})
        assert status == 401, why
        assert "jsonrpc" not in text, why


async def test_a_token_nobody_keeps_is_none(greeter: Served) -> None:
    keys = keystore.read(greeter.house.settings.home, keystore.OWNER)
    minted = mint_client_token(Signer(keystore.OWNER, keys.private_pem, time.time), "greeter", timedelta(hours=1))
    assert (await greeter.post(minted.token, "notify"))[0] == 401


@pytest.mark.parametrize(
    ("extra", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)]
)
async def test_another_host_or_origin_is_refused(greeter: Served, extra: Mapping[str, str], status: int) -> None:
    token = greeter.house.tokens["greeter"]
    assert (await greeter.post(token, "notify", None, **extra))[0] == status
    assert (await greeter.post(token, "notify"))[0] == 200


async def test_a_client_tool_is_refused_to_a_daemon(greeter: Served) -> None:
    message = f"words {uuid4()}"
    arguments = {"channel": "telegram", "message": message}
    status, text = await greeter.post(greeter.hop_token("health"), "notify", arguments)
    assert (status, json.loads(text)["result"]["isError"]) == (200, True)
    with pytest.raises(HopFailed, match="not available to a hop"):
        await greeter.house.hop("health", "greeter", "notify", arguments)
    assert greeter.house.sent(message) == []


@pytest.mark.parametrize("tool", ["route", "heartbeat"])
async def test_half_a_character_is_refused_before_a_daemons_tool_sees_it(switchboard: Served, tool: str) -> None:
    status, said = await switchboard.post(switchboard.hop_token("greeter"), tool, {"status": "a\ud800"})
    assert status == 200
    assert "The arguments contain an incomplete Unicode character." in said


async def test_a_hop_tool_is_refused_to_a_client_and_names_the_daemon_by_its_token(switchboard: Served) -> None:
    status, text = await switchboard.post(switchboard.house.tokens["switchboard"], "heartbeat", BEAT)
    assert (status, json.loads(text)["result"]["isError"]) == (200, True)
    assert "`heartbeat` is not available to a client." in text
    find = "SELECT name FROM switchboard.butlers WHERE url = $1"
    assert await switchboard.house.sql.fetch(find, BEAT["url"]) == []
    status, text = await switchboard.post(switchboard.hop_token("health"), "heartbeat", BEAT)
    assert (status, json.loads(text)["result"]["structuredContent"]) == (200, {"status": "ok"})
    assert (await switchboard.house.row(find, BEAT["url"]))["name"] == "health"


@pytest.mark.parametrize("kind", ["console", "switchboard", "messenger", "sandbox", "owner", None, ["butler"]])
async def test_a_heartbeat_of_another_kind_is_refused(switchboard: Served, kind: object) -> None:
    _, text = await switchboard.post(switchboard.hop_token("health"), "heartbeat", {**BEAT, "kind": kind})
    assert "health can only register as a butler." in text


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:9/x", "ftp://127.0.0.1:9", None])
async def test_a_heartbeat_with_an_odd_url_is_refused(switchboard: Served, url: str | None) -> None:
    _, text = await switchboard.post(switchboard.hop_token("health"), "heartbeat", {**BEAT, "url": url})
    assert "The url of a heartbeat must be http(s)://host:port." in text


BEAT: Mapping[str, object] = {
    "url": "http://127.0.0.1:9",
    "kind": "butler",
    "tools": ["notify"],
    "status": "ready",
    "name": "greeter",
}


async def test_a_broken_tool_says_nothing_of_its_inside() -> None:
    async def breaks(_: ToolCall) -> Result:
        raise ValueError("postgresql://user:password@host")

    server = FastMCP("x", mask_error_details=True, tools=[ServedTool.of(Tool("breaks", "x", {}, breaks))])
    async with Client(server) as client:
        with pytest.raises(ToolError) as failed:
            await client.call_tool("breaks", {})
    assert "password" not in str(failed.value)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_readiness_and_metrics_are_served(greeter: Served, path: str) -> None:
    async with greeter.http.get(f"{greeter.url}{path}") as answer:
        text = await answer.text()
    assert answer.status == 200, text
    assert {"/healthz": "ok", "/readyz": "ready", "/metrics": "# HELP"}[path] in text


class Counting(Middleware):
    """Counts how often the tools are listed."""

    listed = 0

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[McpTool]]
    ) -> Sequence[McpTool]:
        self.listed += 1
        return await call_next(context)


@pytest.mark.parametrize("skip", [True, False])
async def test_the_hook_that_spares_listing_all_tools_on_each_call_exists_and_works(skip: bool) -> None:  # noqa: FBT001
    counting = Counting()
    server = FastMCP("x", middleware=[counting])

    @server.tool
    async def echo(said: str) -> dict[str, str]:
        return {"said": said}

    if skip:
        skip_header_schemas(server)
    app = server.http_app(path="/mcp", json_response=True, stateless_http=True)
    listening = socket.create_server(("127.0.0.1", 0))
    running = Server(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1))
    task = asyncio.create_task(running.serve(sockets=[listening]))
    while not running.started:
        await asyncio.sleep(0.005)
    headers, body = request_of("t", "echo", {"said": "x"}, 1)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as answer:
        assert (await answer.json())["result"]["structuredContent"] == {"said": "x"}
    running.should_exit = True
    await task
    assert counting.listed == (0 if skip else 1)


async def test_a_library_without_that_hook_is_noticed_at_once() -> None:
    class Bare:
        _mcp_server = object()

    with pytest.raises(AttributeError, match="get_tool_input_schema"):
        skip_header_schemas(Bare())  # type: ignore[arg-type]


async def test_the_session_store_we_do_without_is_still_called_so() -> None:
    assert isinstance(ToolServer("x")._state_store, NoState)
    assert "_state_store" in vars(FastMCP) or "_state_store" in vars(FastMCP("x"))


async def test_a_session_that_classifies_is_let_in_and_has_no_tool(greeter: Served) -> None:
    session_id, keys = str(uuid4()), keystore.read(greeter.house.settings.home, "greeter")
    await outside_sessions.begin(greeter.house.sql, session_id, "greeter", None)
    token = mint_session_token(
        Signer("greeter", keys.private_pem, time.time), session_id, timedelta(minutes=1), "classifier"
    )
    async with Client(StreamableHttpTransport(f"{greeter.url}/mcp", auth=token)) as client:
        assert await client.list_tools() == []
    said = {"channel": "telegram", "message": "from a classifier"}
    status, body = await greeter.post(token, "notify", said)
    assert (status, "not available to a classifier" in body) == (200, True)
    async with greeter.http.post(
        f"{greeter.url}/notify", json=said, headers={"authorization": f"Bearer {token}"}
    ) as answer:
        assert answer.status == 403
    await outside_sessions.end(greeter.house.sql, session_id, "greeter")
