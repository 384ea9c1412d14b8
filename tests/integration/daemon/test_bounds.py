"""Nobody uses a daemon up: bodies, heads, connections, slow and greedy callers, all over real sockets."""

import asyncio
import http
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import ClassVar
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import Answer, Butler, Components, Daemon, Result, Tool, ToolCall
from butlers.daemon.app import MOST_OF_ONE_CALLER, build
from butlers.daemon.connection_limits import (
    MOST_BODY,
    MOST_CHUNKS,
    MOST_HEAD,
    MOST_HEADERS,
    MOST_THINGS,
    BoundedConnection,
)
from butlers.daemon.directory import Directory
from butlers.daemon.host import _server
from shared.auth.tokens import Verifier
from shared.contracts import route_request
from shared.rpc import _encoded, request_of
from tests.integration.house import House
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST = 12
MANY = 60


class Narrow(BoundedConnection):
    """The same, with less room."""

    MOST = MOST


def hasty() -> type[BoundedConnection]:
    """The same, with less patience too: with the first to come alone, for others may be slow for want of a core."""

    class Hasty(Narrow):
        READ_SECONDS = 2.0
        TAKE_SECONDS = 0.6

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            Hasty.READ_SECONDS = LONGEST

    return Hasty


class InOneRead(Narrow):
    """Gets all at once that came until its END, which is no part of it, as on a fast network."""

    END = b"\0end"
    # A newcomer that looks for room asks each, also one that is refused and not yet gone.
    ANSWERS: ClassVar[list[bool]] = []
    came = b""

    def data_received(self, data: bytes) -> None:
        self.came += data
        if self.came.endswith(self.END):
            super().data_received(self.came.removesuffix(self.END))
            self.ANSWERS.append(self.idle)


@dataclass(frozen=True, slots=True)
class Served:
    """A daemon on a port, as the host serves it."""

    house: House
    port: int
    http: aiohttp.ClientSession

    async def call(self, tool: str, arguments: Answer, token: str) -> tuple[int, str]:
        """One raw tools/call: the HTTP status and the body."""
        headers, body = request_of(token, tool, arguments, 1)
        async with self.http.post(f"http://127.0.0.1:{self.port}/mcp", json=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def notify(self, message: str) -> None:
        """Tell the owner; it must arrive."""
        async with asyncio.timeout(LONGEST):
            asked = {"channel": "telegram", "message": message}
            status, body = await self.call("notify", asked, self.house.tokens["greeter"])
        assert status == 200, body
        assert json.loads(body)["result"]["structuredContent"]["status"] == "ok", body

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that says nothing yet."""
        return await asyncio.open_connection("127.0.0.1", self.port, limit=2**26)


@asynccontextmanager
async def serving(
    house: House, make: Callable[[str], Daemon], kind: type[BoundedConnection] = Narrow
) -> AsyncIterator[Served]:
    """The daemon made for its URL, served by the host's own server, only narrower."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        port = listening.getsockname()[1]
        server = _server(house.settings, make(f"http://127.0.0.1:{port}"))
        assert server.config.http is BoundedConnection
        server.config.http = kind
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.005)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            yield Served(house, port, http)
        server.should_exit = True
        await asyncio.wait_for(task, LONGEST)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def greeter(house: House) -> AsyncIterator[Served]:
    async with serving(house, partial(house.assembly.daemon, "greeter")) as one:
        yield one


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the other side ended it, which it must."""
    async with asyncio.timeout(LONGEST):
        with suppress(ConnectionError):
            return await reader.read()
    return b""


async def come(true: Callable[[], bool]) -> None:
    """Until it is so."""
    async with asyncio.timeout(LONGEST):
        while not true():
            await asyncio.sleep(0.01)


def head(token: str, *more: str) -> bytes:
    """The head of a call of a tool, up to its last line."""
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}", *more]
    return "\r\n".join([*lines, "content-type: application/json", "accept: application/json"]).encode() + b"\r\n"


async def pieces(size: int) -> AsyncIterator[bytes]:
    """So many bytes, without saying how many there will be."""
    for _ in range(size // 1024):
        yield b" " * 1024


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long_is_413_and_the_connection_goes_on(greeter: Served, *, chunked: bool) -> None:
    words = f"words {uuid4()}"
    headers, body = request_of(greeter.house.tokens["greeter"], "notify", {"channel": "telegram", "message": words}, 1)
    url = f"http://127.0.0.1:{greeter.port}/mcp"
    long = json.dumps(body).encode().ljust(MOST_BODY + 1)
    for sent in (pieces(MOST_BODY + 1024), pieces(3 * MOST_BODY)) if chunked else (BytesIO(long), BytesIO(3 * long)):
        async with greeter.http.post(url, data=sent, headers=headers) as answer:
            assert (answer.status, await answer.text()) == (413, http.HTTPStatus(413).phrase)
    assert greeter.house.sent(words) == []
    fits = BytesIO(long[:MOST_BODY])
    async with greeter.http.post(url, data=fits, headers={**headers, "content-type": "application/json"}) as answer:
        assert answer.status == 200
    assert len(greeter.house.sent(words)) == 1


@pytest.mark.parametrize("piece", [b"1,", b"[],", b'{"a":1},'])
async def test_a_body_of_too_many_things_is_413_before_it_is_taken_apart(greeter: Served, piece: bytes) -> None:
    headers, _ = request_of(greeter.house.tokens["greeter"], "notify", {}, 1)
    url, things = f"http://127.0.0.1:{greeter.port}/mcp", sum(map(piece.count, (b",", b"[", b"{")))
    for many, status in ((MOST_THINGS // things - 1, {400}), (MOST_THINGS // things + 1, {413})):
        async with greeter.http.post(
            url, data=b"[" + piece * many + b"1]", headers={**headers, "content-type": "application/json"}
        ) as answer:
            assert answer.status in status, await answer.text()


async def test_it_is_413_for_a_client_of_event_streams_whose_tool_only_the_body_names(greeter: Served) -> None:
    given, _ = request_of(greeter.house.tokens["greeter"], "notify", {}, 1)
    headers = {name: value for name, value in given.items() if name.lower() != "mcp-name"}
    headers |= {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    body = b"[" * (MOST_THINGS + 1)
    async with greeter.http.post(f"http://127.0.0.1:{greeter.port}/mcp", data=body, headers=headers) as answer:
        assert (answer.status, await answer.text()) == (413, http.HTTPStatus(413).phrase)


@pytest.mark.parametrize("piece", [",", "\N{PILE OF POO}", "\x01"])
async def test_the_longest_message_with_the_longest_context_fits_every_hop(piece: str) -> None:
    context = {"request_id": "1", "x": piece * 19_900}
    delivery = {"channel": "email", "message": piece * 10_000, "subject": piece * 500, "recipient": "a@example.org"}
    request = route_request({"delivery": delivery, "request_context": context}, "greeter", str(uuid4()))
    _, body = request_of("token", "route", request, 1)
    sent = _encoded(body)
    assert len(sent) < MOST_BODY
    assert sum(map(sent.count, (b",", b"[", b"{"))) < MOST_THINGS


async def test_a_body_without_end_is_cut_off(greeter: Served) -> None:
    reader, writer = await greeter.opened()
    writer.write(head(greeter.house.tokens["greeter"], "transfer-encoding: chunked") + b"\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    with suppress(ConnectionError):
        while sent < 64 * MOST_BODY:
            writer.write(chunk)
            await writer.drain()
            sent += len(chunk)
    assert sent < 32 * MOST_BODY
    await ended(reader)
    writer.close()


@pytest.mark.parametrize("line", [b"x: y\r\n", b"y", b"\r\n"], ids=["lines", "one line", "nothing"])
async def test_a_head_without_end_is_cut_off(greeter: Served, line: bytes) -> None:
    reader, writer = await greeter.opened()
    writer.write(b"\r\n" if line == b"\r\n" else b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    sent = 0
    with suppress(ConnectionError):
        while sent < 4 * MOST_BODY:
            writer.write(line * 4096)
            await writer.drain()
            sent += 4096 * len(line)
            await asyncio.sleep(0)
    assert b" 431 " in (said := await ended(reader)) or sent < 4 * MOST_BODY, said
    writer.close()


@pytest.mark.parametrize("where", ["url", "one header", "many headers"])
async def test_a_head_that_is_too_long_is_431_also_when_it_comes_in_one_read(house: House, where: str) -> None:
    url, lines = b"/healthz", [b"host: 127.0.0.1"]
    if where == "url":
        url += b"?" + b"a" * 70_000
    elif where == "many headers":
        lines += [b"x-%d: %s" % (n, b"y" * 900) for n in range(75)]
    else:
        lines += [b"x: " + b"y" * 70_000]
    long = b"\r\n".join([b"POST %s HTTP/1.1" % url, *lines, b"content-length: 4", b"", b"body"])
    assert MOST_HEAD < len(long) < 80_000
    InOneRead.ANSWERS.clear()
    async with serving(house, partial(house.assembly.daemon, "greeter"), InOneRead) as one:
        reader, writer = await one.opened()
        writer.write(long + b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" + InOneRead.END)
        said = await ended(reader)
        assert (said.count(b"HTTP/1.1 "), said.count(b" 431 ")) == (1, 1), said
        assert InOneRead.ANSWERS == [False]
        writer.close()
        reader, writer = await one.opened()
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 65_000 + b"\r\n\r\n" + InOneRead.END)
        assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_what_follows_a_body_as_if_it_were_a_header_is_none(house: House) -> None:
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(len(scope["headers"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with serving(house, lambda _: Daemon("greeter", "butler", without_lifespan(app))) as one:
        reader, writer = await one.opened()
        writer.write(head("none", "transfer-encoding: chunked") + b"\r\n0\r\n" + b"x: y\r\n" * 50 + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        writer.close()
    assert seen == [5]


@pytest.mark.parametrize(
    ("many", "end", "status"), [(MOST_HEADERS, b"\r\n", b"200"), (MOST_HEADERS + 1, b"", b"431")], ids=["most", "more"]
)
async def test_one_header_too_many_is_431_before_the_head_ends(
    greeter: Served, many: int, end: bytes, status: bytes
) -> None:
    reader, writer = await greeter.opened()
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"a:\r\n" * (many - 1) + b"b" * (not end) + end)
    async with asyncio.timeout(LONGEST):
        assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)
    writer.close()


@pytest.mark.parametrize(
    "after",
    [b"x: " + b"y" * 3 * MOST_HEAD, b"0;" + b"y" * 3 * MOST_HEAD, b"1\r\nx\r\n" * MOST_CHUNKS + b"0"],
    ids=["trailer", "chunk", "chunks"],
)
async def test_what_is_neither_head_nor_body_is_cut_off_too(greeter: Served, after: bytes) -> None:
    reader, writer = await greeter.opened()
    writer.write(head("none", "transfer-encoding: chunked") + b"\r\n" + b"0\r\n" * after.startswith(b"x"))
    assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(b"HTTP/1.1 401 ")
    writer.write(after + b"\r\n\r\nGET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert b" 200 " not in await ended(reader)
    writer.close()


@pytest.mark.parametrize("begun", ["", "GET /heal", "POST body"])
async def test_who_takes_too_long_is_cut_off_and_nobody_waits_for_it(house: House, begun: str) -> None:
    async with serving(house, partial(house.assembly.daemon, "greeter"), hasty()) as one:
        reader, writer = await one.opened()
        body = head(house.tokens["greeter"], "content-length: 100") + b"\r\n{"
        writer.write(body if begun == "POST body" else begun.encode())
        await one.notify(f"words {uuid4()}")
        assert await ended(reader) == b""
        writer.close()


async def test_a_flood_of_open_connections_keeps_nobody_out(greeter: Served) -> None:
    flood = [await greeter.opened() for _ in range(MANY)]
    for n, (_, writer) in enumerate(flood):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n" if n % 2 else b"")
    await greeter.notify(f"words {uuid4()}")
    await come(lambda: sum(reader.at_eof() or bool(reader.exception()) for reader, _ in flood) >= MANY - MOST)
    for _, writer in flood:
        writer.close()


async def test_a_flood_of_long_bodies_keeps_nobody_out(greeter: Served) -> None:
    async def post() -> int:
        url, token = f"http://127.0.0.1:{greeter.port}/mcp", greeter.house.tokens["greeter"]
        headers, _ = request_of(token, "notify", {}, 1)
        async with greeter.http.post(url, data=pieces(8 * MOST_BODY), headers=headers) as answer:
            return answer.status

    flood = [asyncio.create_task(post()) for _ in range(2 * MOST)]
    await greeter.notify(f"words {uuid4()}")
    told = await asyncio.gather(*flood, return_exceptions=True)
    assert {one for one in told if isinstance(one, int)} <= {413, 503}
    assert all(isinstance(one, int | aiohttp.ClientError | ConnectionError) for one in told), told


def without_lifespan(app: ASGIApp) -> ASGIApp:
    """The app, which has nothing to begin or end."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)
            return
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    return served


async def test_where_all_are_busy_a_newcomer_is_told_to_come_again(house: House) -> None:
    free, begun = asyncio.Event(), list[Scope]()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        begun.append(scope)
        await free.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with serving(house, lambda _: Daemon("greeter", "butler", without_lifespan(app))) as one:
        busy = [await one.opened() for _ in range(MOST)]
        for _, writer in busy:
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await come(lambda: len(begun) == MOST)
        reader, writer = await one.opened()
        said = await ended(reader)
        assert said.startswith(b"HTTP/1.1 503 "), said
        assert b"retry-after: 1" in said
        free.set()
        for came, _ in busy:
            assert (await came.readline()).startswith(b"HTTP/1.1 204")
        for left in (writer, *(sent for _, sent in busy)):
            left.close()


async def test_who_begins_a_request_before_the_last_one_is_answered_is_cut_off(house: House) -> None:
    free, begun = asyncio.Event(), list[Scope]()
    asked = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        begun.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})
        await free.wait()
        await send({"type": "http.response.body"})

    async with serving(house, lambda _: Daemon("greeter", "butler", without_lifespan(app))) as one:
        reader, writer = await one.opened()
        writer.write(asked * 1000)
        assert await ended(reader) == b""
        writer.close()
        begun.clear()
        # A client that has read the last byte may go on, although the app has not said yet that it was the last.
        reader, writer = await one.opened()
        for _ in range(2):
            writer.write(asked)
            if len(begun) == 1:
                free.set()
            async with asyncio.timeout(LONGEST):
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
        assert len(begun) == 2
        writer.close()


async def test_who_does_not_take_the_answer_is_cut_off(house: House) -> None:
    broken = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b" " * 2**20, "more_body": True})
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        broken.set()

    async with serving(house, lambda _: Daemon("greeter", "butler", without_lifespan(app)), hasty()) as one:
        with socket.create_connection(("127.0.0.1", one.port)) as asking:
            asking.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(LONGEST):
                await broken.wait()


async def test_one_caller_has_its_share_and_leaves_the_others_theirs(house: House) -> None:
    free, busy = asyncio.Event(), 0

    async def wait(_: ToolCall) -> Result:
        nonlocal busy
        busy += 1
        await free.wait()
        return Result({"status": "ok"})

    def make(url: str) -> Daemon:
        context = house.context("switchboard")
        directory = house.assembly.directory
        verifier = Verifier("switchboard", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        tools = [Tool("wait", "Wait.", {"type": "object"}, wait, hop=True)]
        butler = Butler("switchboard", "Waits.", "butler", lambda _: Components(tools))
        return build(butler, context, verifier, [url.removeprefix("http://")])[0]

    class Roomy(BoundedConnection):
        MOST = 4 * MOST_OF_ONE_CALLER

    async with serving(house, make, Roomy) as one:
        with ExitStack() as at_the_end:
            at_the_end.callback(free.set)
            greedy, other = (
                house.context(name).daemons._signer.token_for("switchboard") for name in ("greeter", "health")
            )
            calls = [asyncio.create_task(one.call("wait", {}, greedy)) for _ in range(MOST_OF_ONE_CALLER)]
            await come(lambda: busy == MOST_OF_ONE_CALLER)
            async with asyncio.timeout(LONGEST):
                status, said = await one.call("wait", {}, greedy)
            assert status == 503
            assert f"{MOST_OF_ONE_CALLER} calls of greeter" in said
            calls.append(asyncio.create_task(one.call("wait", {}, other)))
            await come(lambda: busy == MOST_OF_ONE_CALLER + 1)
        assert {status for status, _ in await asyncio.gather(*calls)} == {200}
        assert (await one.call("wait", {}, greedy))[0] == 200
