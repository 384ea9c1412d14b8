"""The measuring itself: the same round again and again, so that whatever slows one kind slows all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median

import aiohttp
import asyncpg
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from messenger.channels.base import Receipt, SendFailed
from messenger.channels.telegram import TelegramChannel
from shared.channels import telegram
from shared.channels.base import Message
from shared.rpc import request_of, tool_object
from tests.bench.fleet import House

OWNER = "5000000000000001"
GREETER = 10
SANDBOX = 3
# A backend hands over its counters after a second of work, or ten seconds of rest.
COUNTERS_LAG = 11.0
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"

# A row that nobody told of is seen by the scheduler's next look, half a minute later at most.
SEEN_WITHIN = 32
PROMPTS = """
INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, next_due_at)
SELECT 'greeter', 'bench' || n, 'tool', due, 'UTC', 'Say hello.', 'once', due FROM generate_series(1, $1) AS n,
    LATERAL (SELECT clock_timestamp() + ($2 + n * 2) * interval '1 s' AS due) AS at
"""
FIRST_CALLS = """
SELECT extract(epoch FROM min(t.began_at) - o.due_at)::float8 AS seconds FROM shared.occurrences o
JOIN shared.sessions s ON s.occurrence_id = o.id JOIN shared.session_steps t ON t.session_id = s.id GROUP BY o.id
"""

Call = Callable[[str], Awaitable[None]]


async def times(house: House, rounds: int, warm_up: int) -> dict[str, list[float]]:
    """Milliseconds per call by kind: one call of each kind per round, in an order that turns."""
    token = house.butlers("token", "greeter", "--for", "1h")
    url = f"{house.url(GREETER)}/mcp"
    bare = TelegramChannel(house.url(SANDBOX), "2:bench")
    async with Client(StreamableHttpTransport(url, auth=token)) as client, aiohttp.ClientSession() as session:
        raw = Raw(session, url, token)
        calls: dict[str, Call] = {
            "no-op": lambda text: refused(client, text),
            "tools/list": lambda _: listed(client),
            "notify": lambda text: told(client, text),
            "bare sendMessage": lambda text: sent(bare, text),
            "no-op, raw": lambda text: raw.call("fax", text, "error"),
            "notify, raw": lambda text: raw.call("telegram", text, "ok"),
        }
        try:
            return await _rounds(calls, rounds, warm_up)
        finally:
            await bare.close()


async def _rounds(calls: Mapping[str, Call], rounds: int, warm_up: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for n in range(-warm_up, rounds):
        order = [*order[1:], order[0]]
        for name in order:
            started = time.perf_counter()
            await calls[name](f"{name} {n}")
            if n >= 0:
                found[name].append((time.perf_counter() - started) * 1000)
    return found


async def refused(client: "Client[StreamableHttpTransport]", text: str) -> None:
    """Notify to a channel that does not exist: token, protocol and tool, but no database."""
    result = await client.call_tool("notify", {"channel": "fax", "message": text})
    demand(result.structured_content, "error")


async def listed(client: "Client[StreamableHttpTransport]") -> None:
    """The protocol alone."""
    if not await client.list_tools():
        raise RuntimeError("The daemon lists no tool.")


async def told(client: "Client[StreamableHttpTransport]", text: str) -> None:
    """Notify to the owner, until the provider's receipt is there."""
    result = await client.call_tool("notify", {"channel": "telegram", "message": text})
    demand(result.structured_content, "ok")


async def sent(bare: TelegramChannel, text: str) -> None:
    """One sendMessage by the Messenger's own channel code, and nothing around it."""
    [wire] = telegram.render(Message("bench", "telegram", "send", OWNER, text))
    prepared = await bare.prepare(wire)
    if isinstance(prepared, SendFailed):
        raise RuntimeError(prepared.message)  # noqa: TRY004  # it is an outcome, not a wrong argument
    receipt = await prepared.finish()
    if not isinstance(receipt, Receipt):
        raise RuntimeError(receipt.message)  # noqa: TRY004  # the same


@dataclass(frozen=True, slots=True)
class Raw:
    """The same call by the one request that MCP needs, without a client library."""

    session: aiohttp.ClientSession
    url: str
    token: str

    async def call(self, channel: str, text: str, status: str, recipient: str | None = None) -> None:
        """notify, and the status it must answer."""
        given = {"channel": channel, "message": text} | ({"recipient": recipient} if recipient else {})
        headers, body = request_of(self.token, "notify", given, 1)
        async with self.session.post(self.url, json=body, headers=headers) as response:
            demand(tool_object(await response.read(), "greeter", "notify"), status)


def demand(answer: Mapping[str, object] | None, status: str) -> None:
    """A measurement of something else than what it says is none."""
    if answer is None or answer.get("status") != status:
        raise RuntimeError(f"Expected {status}, got {answer}")


async def transactions(house: House, dsn: str, count: int) -> tuple[float, float]:
    """Commits per notify, and commits a second of a fleet at rest; the second is taken out of the first."""
    token = house.butlers("token", "greeter", "--for", "1h")
    connection = await asyncpg.connect(dsn)
    try:
        async with aiohttp.ClientSession() as session:
            raw = Raw(session, f"{house.url(GREETER)}/mcp", token)
            await raw.call("telegram", "before counting", "ok")
            await asyncio.sleep(COUNTERS_LAG)
            idle = await _commits_during(connection, lambda: asyncio.sleep(0))
            busy = await _commits_during(connection, lambda: _many(raw, count))
    finally:
        await connection.close()
    at_rest = idle[0] / idle[1]
    return (busy[0] - at_rest * busy[1]) / count, at_rest


async def due_to_first_call(dsn: str, count: int) -> float:
    """Median seconds from when a prompt is due until its session, a script, has called its first tool."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(PROMPTS, count, SEEN_WITHIN)
        async with asyncio.timeout(SEEN_WITHIN + count * 5 + 30):
            while len(rows := await connection.fetch(FIRST_CALLS)) < count:
                await asyncio.sleep(0.5)
    finally:
        await connection.close()
    return float(median(row["seconds"] for row in rows))


async def _many(raw: Raw, count: int) -> None:
    for n in range(count):
        await raw.call("telegram", f"counted {n}", "ok")


async def _commits_during(
    connection: "asyncpg.Connection[asyncpg.Record]", doing: Callable[[], Awaitable[None]]
) -> tuple[int, float]:
    started, before = time.monotonic(), int(await connection.fetchval(COMMITS))
    await doing()
    await asyncio.sleep(COUNTERS_LAG)
    return int(await connection.fetchval(COMMITS)) - before, time.monotonic() - started
