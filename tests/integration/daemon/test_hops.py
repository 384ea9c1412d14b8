"""The raw hop client against a real FastMCP server and against servers that misbehave."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.tools.base import ToolResult
from pydantic import BaseModel

from shared.auth.keypairs import generate_key
from shared.auth.tokens import Signer
from shared.errors import ButlersError, Forbidden, HopFailed
from shared.rpc import LONGEST_ANSWER, Answer, DaemonClient
from tests.rig.served import served
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON_200 = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Told(BaseModel):
    said: str


class OnlySigned(TokenVerifier):
    """Lets in whoever brings a token that is signed at all."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="c", scopes=[]) if token.count(".") == 2 else None


def target_server() -> FastMCP:
    """A server with one tool for each way of answering."""
    server = FastMCP("target", auth=OnlySigned())

    @server.tool
    async def echo(said: str) -> dict[str, str]:
        return {"said": said}

    @server.tool
    async def breaks() -> dict[str, str]:
        raise ToolError("it broke")

    @server.tool
    async def words() -> ToolResult:
        return ToolResult(content="only words")

    @server.tool
    async def sleeps() -> dict[str, str]:
        await asyncio.sleep(5)
        return {"said": "late"}

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with served(target_server().http_app(path="/mcp", json_response=True, stateless_http=True)) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streaming_url() -> AsyncIterator[str]:
    async with served(target_server().http_app(path="/mcp", json_response=False, stateless_http=True)) as url:
        yield url


@asynccontextmanager
async def daemon_client(*urls: str, token: str | None = None) -> AsyncIterator[DaemonClient]:
    """One daemon's way to a target at these URLs."""
    signer = Signer("greeter", generate_key()[0], time.time)
    if token is not None:
        signer._minted["target"] = (time.time(), token)

    async def find(_: str) -> Sequence[str]:
        return urls

    made = DaemonClient(signer, find)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers every request with these bytes, or None: by cutting the connection."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(65536))
        if answer is None:
            writer.transport.abort()
        else:
            writer.write(answer)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", got
    finally:
        server.close()


def nobody() -> str:
    """A URL at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def failure(calling: Awaitable[object]) -> HopFailed:
    with pytest.raises(HopFailed) as failed:
        await calling
    return failed.value


async def test_the_tools_object_comes_back(url: str) -> None:
    async with daemon_client(url) as way:
        assert await way.call("target", "echo", {"said": "grüß dich 👋"}, LONGEST) == {"said": "grüß dich 👋"}
        assert await way.call_for("target", "echo", {"said": "x"}, LONGEST, Told) == Told(said="x")


async def test_it_gets_what_an_unmodified_client_gets(url: str) -> None:
    transport = StreamableHttpTransport(f"{url}/mcp", auth="a.b.c")
    async with daemon_client(url) as way, Client(transport) as client:
        theirs = await client.call_tool("echo", {"said": "same"})
        assert theirs.structured_content == await way.call("target", "echo", {"said": "same"}, LONGEST)


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        pytest.param("breaks", {}, "with a tool error", id="a tool that breaks"),
        pytest.param("echo", {"said": 7, "more": 1}, "with a tool error", id="arguments that do not fit"),
        pytest.param("missing", {}, "with a", id="a missing tool"),
        pytest.param("words", {}, "without an object", id="no structured content"),
    ],
)
async def test_everything_but_an_object_is_a_failure(
    url: str, tool: str, arguments: Mapping[str, object], why: str
) -> None:
    async with daemon_client(url) as way:
        failed = await failure(way.call("target", tool, arguments, LONGEST))
    assert why in failed.message
    assert (failed.proved_not_begun, failed.timed_out) == (False, False)


async def test_an_object_that_is_none_of_the_wanted_is_a_failure(url: str) -> None:
    class Other(BaseModel):
        heard: str

    async with daemon_client(url) as way:
        failed = await failure(way.call_for("target", "echo", {"said": "x"}, LONGEST, Other))
    assert "an invalid Other" in failed.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}',
        b'{"result":null}',
        b'{"result":{"structuredContent":[1]}}',
        b'{"result":{"content":[{"type":"text","text":"{\\"status\\":\\"ok\\"}"}]}}',
        b'{"result":{"isError":true,"structuredContent":{"status":"ok"}}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_garbage_is_never_an_ok(body: bytes) -> None:
    async with answering(JSON_200 % (len(body), body)) as (where, got), daemon_client(where) as way:
        failed = await failure(way.call("target", "echo", {}, LONGEST))
    assert len(got) == 1
    assert not failed.proved_not_begun


@pytest.mark.parametrize("status", [b"500 Oops", b"404 Not Found", b"302 Found"])
async def test_a_page_instead_of_an_answer_is_a_failure(status: bytes) -> None:
    page = b"HTTP/1.1 %s\r\nContent-Length: 6\r\n\r\n<html>" % status
    async with answering(page) as (where, _), daemon_client(where) as way:
        assert not (await failure(way.call("target", "echo", {}, LONGEST))).proved_not_begun


@pytest.mark.parametrize("status", [b"302", b"307"])
async def test_nobody_sends_a_call_on_to_somebody_else(status: bytes) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (other, got):
        away = b"HTTP/1.1 %s Away\r\nLocation: %s/x\r\nContent-Length: 0\r\n\r\n" % (status, other.encode())
        async with answering(away) as (where, _), daemon_client(where) as way:
            failed = await failure(way.call("target", "echo", {"said": "secret"}, LONGEST))
    assert (got, failed.message) == ([], f"target refused this daemon ({status.decode()}).")


@pytest.mark.parametrize("over", [0, 1])
async def test_an_answer_has_an_end(over: int) -> None:
    body = b'{"result":{"structuredContent":{"said":"x"}}}'.ljust(LONGEST_ANSWER + over)
    async with answering(JSON_200 % (len(body), body)) as (where, _), daemon_client(where) as way:
        if not over:
            assert await way.call("target", "echo", {}, LONGEST) == {"said": "x"}
        else:
            failed = await failure(way.call("target", "echo", {}, LONGEST))
            assert failed.message == "target answered echo with more than 1,048,576 bytes."


async def test_who_has_too_much_to_do_has_proved_that_nothing_began() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
    async with answering(busy) as (where, _), daemon_client(where) as way:
        assert (await failure(way.call("target", "echo", {}, LONGEST))).proved_not_begun


async def test_a_token_that_is_refused_is_a_failure(url: str) -> None:
    async with daemon_client(url, token="unsigned") as way:
        failed = await failure(way.call("target", "echo", {"said": "x"}, LONGEST))
    assert failed.message == "target refused this daemon (401)."


async def test_the_next_instance_is_asked_where_a_stranger_listens_at_the_first(url: str) -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    async with answering(refusal) as (stranger, got), daemon_client(stranger, url) as way:
        assert await way.call("target", "echo", {"said": "second"}, LONGEST) == {"said": "second"}
    assert len(got) == 1


async def test_a_refused_connection_proves_that_nothing_began() -> None:
    async with daemon_client(nobody()) as way:
        failed = await failure(way.call("target", "echo", {}, LONGEST))
    assert (failed.message, failed.proved_not_begun) == ("target cannot be reached.", True)


async def test_no_instance_at_all_proves_that_nothing_began() -> None:
    async with daemon_client() as way:
        assert (await failure(way.call("target", "echo", {}, LONGEST))).proved_not_begun


async def test_the_next_instance_is_asked_where_the_first_is_gone(url: str) -> None:
    async with daemon_client(nobody(), url) as way:
        assert await way.call("target", "echo", {"said": "second"}, LONGEST) == {"said": "second"}


async def test_a_cut_connection_proves_nothing_and_no_other_instance_is_asked(url: str) -> None:
    async with answering(None) as (where, got), daemon_client(where, url) as way:
        failed = await failure(way.call("target", "echo", {"said": "x"}, LONGEST))
    assert (failed.proved_not_begun, len(got)) == (False, 1)


async def test_no_answer_in_time_is_told_as_that(url: str) -> None:
    async with daemon_client(url) as way:
        failed = await failure(way.call("target", "sleeps", {}, 0.1))
        assert (failed.timed_out, failed.proved_not_begun) == (True, False)
        assert await way.call("target", "echo", {"said": "still there"}, LONGEST) == {"said": "still there"}


async def test_many_at_once_get_each_its_own(url: str) -> None:
    async with daemon_client(url) as way:
        found = await asyncio.gather(*(way.call("target", "echo", {"said": str(n)}, LONGEST) for n in range(50)))
    assert [answer["said"] for answer in found] == [str(n) for n in range(50)]


class LocalClient:
    """A daemon in this process that does what a test says."""

    def __init__(self, does: Callable[[], Answer]) -> None:
        self._does = does

    async def call(self, token: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        assert json.dumps(dict(arguments))
        return self._does()


def _raises(error: Exception) -> Callable[[], Answer]:
    def does() -> Answer:
        raise error

    return does


@pytest.mark.parametrize("error", [Forbidden("not you"), ButlersError("it broke")])
async def test_in_one_process_a_refusal_is_the_same_failure(error: ButlersError) -> None:
    async def find(_: str) -> Sequence[str]:
        return ()

    way = DaemonClient(Signer("greeter", generate_key()[0], time.time), find, {"target": LocalClient(_raises(error))})
    failed = await failure(way.call("target", "echo", {}, LONGEST))
    assert error.message in failed.message
    assert not failed.proved_not_begun
