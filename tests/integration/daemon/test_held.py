"""All connections of a process together hold so much of requests, and those that hold the most give way."""

import asyncio
from functools import partial
from typing import ClassVar
from uuid import uuid4

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from butlers.butler import Daemon
from butlers.daemon.connection_limits import BoundedConnection
from tests.integration.daemon.test_bounds import Narrow, come, ended, head, serving, without_lifespan
from tests.integration.house import House
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def holding(kind: type[BoundedConnection], much: int, count: int) -> None:
    """Wait until so many connections of this kind hold more than that."""
    await come(lambda: sum(held > much for held in kind.HELD.values()) == count)


@pytest.mark.parametrize("where", ["unfinished head", "answered head", "unfinished body"])
async def test_where_all_hold_too_much_the_one_that_holds_the_most_goes(house: House, where: str) -> None:
    class Lean(Narrow):
        HELD: ClassVar[dict[BoundedConnection, int]] = {}
        MOST_HELD = 120_000

    asked = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    asked += b"content-length: 70000\r\n\r\n" if where == "unfinished body" else b"x: "
    end = b"\r\n\r\n" * (where == "answered head")
    async with serving(house, partial(house.assembly.daemon, "greeter"), Lean) as one:
        large, *small = [await one.opened() for _ in range(4)]
        for n, ((_, writer), size) in enumerate(zip((large, *small), (60_000, 25_000, 25_000, 25_000), strict=True)):
            writer.write(asked + b"y" * size + end)
            await holding(Lean, 25_000, min(n + 1, 3))
        await ended(large[0])
        assert [len(Lean.HELD), *(reader.at_eof() for reader, _ in small)] == [3, False, False, False]
        await one.notify(f"words {uuid4()}")
        for _, writer in (large, *small):
            writer.close()


async def test_where_all_hold_too_much_what_comes_whole_goes_through(house: House) -> None:
    """However large it is beside each of those who never end theirs."""

    class Lean(Narrow):
        HELD: ClassVar[dict[BoundedConnection, int]] = {}
        MOST_HELD = 100_000

    async with serving(house, partial(house.assembly.daemon, "greeter"), Lean) as one:
        slow = [await one.opened() for _ in range(4)]
        for n, (_, writer) in enumerate(slow, start=1):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 24_000)
            await holding(Lean, 24_000, n)
        reader, writer = await one.opened()
        writer.write(head("none", "content-length: 50000") + b"\r\n" + b" " * 50_000)
        assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(b"HTTP/1.1 401 ")
        for _, held in [*slow, (reader, writer)]:
            held.close()


async def test_a_body_that_nobody_takes_is_dropped_with_the_answer(house: House) -> None:
    class Alone(Narrow):
        HELD: ClassVar[dict[BoundedConnection, int]] = {}

    async with serving(house, partial(house.assembly.daemon, "greeter"), Alone) as one:
        reader, writer = await one.opened()
        writer.write(head("none", "content-length: 50000") + b"\r\n" + b" " * 50_000)
        assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(b"HTTP/1.1 401 ")
        (connection,) = Alone.HELD
        await come(lambda: not connection.cycle.body and Alone.HELD[connection] < 1000)
        writer.close()


async def test_where_all_hold_too_much_a_body_that_nobody_took_goes_before_it_is_seen(house: House) -> None:
    class Lean(Narrow):
        HELD: ClassVar[dict[BoundedConnection, int]] = {}
        MOST_HELD = 140_000

    free, seen = asyncio.Event(), list[int]()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await free.wait()
        try:
            seen.append(len((await receive())["body"]))
        except ClientDisconnect:
            seen.append(0)

    async with serving(house, lambda _: Daemon("greeter", "butler", without_lifespan(app)), Lean) as one:
        opened = [await one.opened() for _ in range(3)]
        for _, writer in opened:
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n" + b" " * 50_000)
        await come(lambda: len(Lean.HELD) == 2 and min(Lean.HELD.values()) > 50_000)
        free.set()
        await come(lambda: len(seen) == 3)
        assert sorted(seen) == [0, 50_000, 50_000]
        for _, writer in opened:
            writer.close()
