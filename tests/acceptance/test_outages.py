"""A daemon that is away, ends, or answers nonsense: nothing accepted is lost, and nothing broken reads as ok."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import TextContent
from pydantic import PrivateAttr
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.served import served
from tests.rig.waiting import LONGEST

HOPS = {"switchboard": "route", "messenger": "route.execute"}
ACCEPTED = "Accepted. It will be delivered; do not send it again."
# Seconds within which every daemon reads the registry anew: it does so every two.
READ_ANEW = 2.2
ENDED = """
SELECT status, settled_at - $2::timestamptz > interval '1.5 seconds' AS late FROM messenger.deliveries
WHERE notification_id = $1
"""
pytestmark = pytest.mark.modes("each", "two")


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def whole_afterwards(fleet: Fleet) -> AsyncIterator[None]:
    yield
    await fleet.outside.clear_faults()
    await fleet.begin()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("switchboard", signal.SIGKILL),
        ("messenger", signal.SIGTERM),
        pytest.param("switchboard", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("messenger", signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
async def test_while_it_is_away_messages_wait_and_then_arrive_once(
    fleet: Fleet, name: str, number: signal.Signals
) -> None:
    said = fresh.words(f"without {name}")
    codes = await fleet.kill(name, number)
    assert set(codes) == {0 if number == signal.SIGTERM else -signal.SIGKILL}
    answer = await fleet.notify(channel="telegram", message=said)
    assert answer == {
        "schema_version": "notify_response.v1",
        "status": "queued",
        "notification_id": answer["notification_id"],
        "message": ACCEPTED,
    }
    await fleet.restart(name)
    entry = await fleet.outside.arrived(said, OWNER)
    again = await fleet.notify(channel="telegram", message=said)
    assert (again["status"], again["duplicate"]) == ("ok", True)
    assert again["delivery"]["delivery_id"] == entry.provider_id  # type: ignore[index]  # an object
    await fleet.outside.arrived(said, OWNER)


async def test_a_messenger_told_to_stop_finishes_what_it_has_in_hand(fleet: Fleet) -> None:
    said = fresh.words("in hand")
    await fleet.outside.fault("telegram", "sendMessage", "slow", match=said, times=1, value=1)
    sending = asyncio.create_task(fleet.notify(channel="telegram", message=said))
    await fleet.outside.arrived(said, OWNER)  # and the answer to it is still to come
    stopping = list(fleet.running["messenger"])
    since = await fleet.value("SELECT clock_timestamp()")
    for process in stopping:
        process.send(signal.SIGTERM)
    answer = await sending
    assert [await process.wait() for process in stopping] == [0] * len(stopping)
    del fleet.running["messenger"]
    [ended] = await fleet.sql(ENDED, answer["notification_id"], since)
    assert ended["status"] == "sent"
    # Whoever stops waits a second and a half for an outcome; a later one is told to whoever asks again.
    assert answer["status"] == "ok" or (answer["status"] == "queued" and ended["late"]), (answer, ended)
    await fleet.restart("messenger")
    await fleet.outside.arrived(said, OWNER)


@pytest.mark.modes("two")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["switchboard", "messenger"])
async def test_the_loss_of_one_of_two_is_not_noticed(fleet: Fleet, name: str) -> None:
    await asyncio.sleep(READ_ANEW)  # so that every daemon knows the other one; who knows one alone can only queue
    lost = fleet.running[name].pop(0)
    lost.send(signal.SIGKILL)
    await lost.wait()
    for _ in range(4):
        said = fresh.words(f"one {name} less")
        answer = await fleet.notify(channel="telegram", message=said)
        assert answer["status"] == "ok", answer
        await fleet.outside.arrived(said, OWNER)
    await fleet.kill(name)


def told(**more: object) -> Answer:
    """A route_response.v1 that says ok."""
    context = {"request_id": "r", "source_channel": "mcp", "source_endpoint_identity": "s"}
    return {
        "schema_version": "route_response.v1",
        "request_context": {**context, "source_sender_identity": "x"},
        "status": "ok",
        "timing": {"duration_ms": 1.0},
        **more,
    }


OBJECTS: Mapping[str, Answer] = {
    "another object": {"surprise": 1},
    "ok without a response": told(),
    "ok around an unknown status": told(result={"notify_response": {"status": "sent"}}),
    "ok around a text": told(result={"notify_response": "sent"}),
}
BODIES: Mapping[str, tuple[int, bytes]] = {
    "no JSON": (200, b"<html>welcome</html>"),
    "a list": (200, b"[]"),
    "an empty result": (200, b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    "a server error": (500, b'{"error":"oops"}'),
    "not authorised": (401, b"{}"),
    "a redirect page": (302, b"moved"),
}


class Anything(Tool):
    """A tool that takes whatever comes and answers as its pretender says."""

    _pretender: "Pretender" = PrivateAttr()

    async def run(self, arguments: dict[str, object]) -> ToolResult:
        """Fail, or answer with something."""
        how = self._pretender.how
        if how == "tool error":
            raise ToolError("It went wrong.")
        if how == "text only":
            return ToolResult(content=[TextContent(type="text", text='{"status": "ok"}')])
        return ToolResult(content=[], structured_content=dict(OBJECTS[how]))


class Pretender:
    """An ASGI app that takes the place of a daemon: a real FastMCP server, or a web server that is none."""

    def __init__(self, tool: str) -> None:
        self.how = "tool error"
        self.calls = 0
        made = Anything(name=tool, parameters={"type": "object", "additionalProperties": True})
        made._pretender = self
        self._with, self._without = FastMCP("with", tools=[made]), FastMCP("without")
        self._apps = [server.http_app(path="/mcp", json_response=True) for server in (self._with, self._without)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as told; only calls of the tool count, heartbeats do not."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        names = [value.decode() for name, value in scope["headers"] if name == b"mcp-name"]
        self.calls += names == [HOPS["switchboard"]] or names == [HOPS["messenger"]]
        if self.how in BODIES:
            status, body = BODIES[self.how]
            await Response(body, status)(scope, receive, send)
        else:
            await self._apps[self.how == "missing tool"](scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as held:
            for app in self._apps:
                await held.enter_async_context(app.lifespan(app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def pretending(fleet: Fleet, name: str, url: str) -> AsyncIterator[None]:
    """The registry says that the only instance of this daemon is at that URL."""
    await fleet.kill(name)
    await fleet.sql("UPDATE switchboard.butlers SET status = 'gone' WHERE name = $1", name)
    await fleet.sql(
        "INSERT INTO switchboard.butlers (name, url, kind, tools, status, last_seen_at)"
        " VALUES ($1, $2, $1, '{}', 'ready', clock_timestamp())",
        name,
        url,
    )
    beating = asyncio.create_task(beat(fleet, url))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await fleet.sql("DELETE FROM switchboard.butlers WHERE url = $1", url)
        await fleet.restart(name)


async def beat(fleet: Fleet, url: str) -> None:
    """Let the instance at that URL be heard of, as one that lives is."""
    while True:
        await asyncio.sleep(5)
        await fleet.sql("UPDATE switchboard.butlers SET last_seen_at = clock_timestamp() WHERE url = $1", url)


@pytest.mark.modes("each")
@pytest.mark.slow
@pytest.mark.parametrize("name", HOPS)
async def test_nonsense_from_a_hop_is_queued_and_never_ok(fleet: Fleet, name: str) -> None:
    pretender = Pretender(HOPS[name])
    kept = []
    async with served(pretender) as url, pretending(fleet, name, url):
        await until_found(fleet, pretender)
        for how in ("tool error", "missing tool", "text only", *OBJECTS, *BODIES):
            pretender.how, before = how, pretender.calls
            said = fresh.words(how)
            answer = await fleet.notify(channel="telegram", message=said)
            assert answer["status"] == "queued", (how, answer)
            assert pretender.calls > before, how
            kept.append(said)
    for said in kept:
        await fleet.outside.arrived(said, OWNER)


async def until_found(fleet: Fleet, pretender: Pretender) -> None:
    """Until every daemon has read the registry anew."""
    await asyncio.sleep(READ_ANEW)
    async with asyncio.timeout(LONGEST):
        while not pretender.calls:
            await fleet.notify(channel="telegram", message=fresh.words("looking"))
