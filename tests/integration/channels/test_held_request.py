"""What a provider, a proxy or the network can do around the last byte of a request, over real sockets."""

import asyncio
import gzip
import json
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from messenger.channels.base import Receipt, SendFailed
from messenger.channels.telegram import TelegramChannel
from shared.channels.base import Wire
from shared.channels.telegram import canonical
from shared.telemetry import logs
from tests.integration.channels.test_telegram import (
    OK,
    TOKEN,
    WIRE,
    Act,
    answered,
    channel_to,
    expected_request,
    held,
    http,
    playing,
    reset,
    send,
)
from tests.rig.tls import certificate
from tests.rig.waiting import LONGEST

LONG: Final = Wire(verb="sendMessage", to="42", body=canonical({"chat_id": 42, "text": "x" * 3_000_000}))
KILOBYTES: Final = 100_000


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


def unseen(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send so that the kernel knows of it and the loop does not yet."""
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as raw:
        raw.send(data)


@pytest.mark.parametrize("end", [hang_up, cut])
async def test_a_post_on_a_kept_connection_that_ends_without_an_answer_is_never_repeated(end: Act) -> None:
    async with playing(http(200, OK), end, http(200, OK)) as bot, channel_to(bot.url) as channel:
        assert await send(channel) == Receipt("1001")
        outcome = await send(channel)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("connection_lost", False)
        await asyncio.sleep(0.05)
        assert (len(bot.requests), bot.connections) == (2, 1)


async def test_a_kept_connection_that_ends_before_the_last_byte_is_not_replaced_behind_our_back() -> None:
    async with playing(http(200, OK), http(200, OK)) as bot, channel_to(bot.url) as channel:
        assert await send(channel) == Receipt("1001")
        prepared = await held(channel)
        await bot.has(2 * len(expected_request(bot)) - 1)
        reset(bot.lines[0])
        await asyncio.sleep(0.05)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert (len(bot.requests), bot.connections) == (1, 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with playing(http(200, OK)) as other:
        moved = http(status, "", extra=f"Location: {other.url}/bot{TOKEN}/sendMessage\r\n")
        outcome = await answered(moved)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unreadable", False)
        assert other.connections == 0


async def test_an_early_429_says_how_long_to_wait_and_the_last_byte_is_never_written() -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        await bot.has(len(expected_request(bot)) - 1)
        early = http(429, {"ok": False, "description": "Slow", "parameters": {"retry_after": 3}})
        unseen(bot.lines[0], early)
        assert await prepared.finish() == SendFailed("rate_limited", "Slow", proved_not_sent=True, retry_after=3.0)
        await asyncio.sleep(0.05)
        assert bytes(bot.raw) == expected_request(bot)[:-1]


async def test_an_answer_that_begins_early_and_never_ends_is_proof() -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url, answer_timeout=0.1) as channel:
        prepared = await held(channel)
        await bot.has(len(expected_request(bot)) - 1)
        bot.lines[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{")
        await asyncio.sleep(0.05)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        await asyncio.sleep(0.05)
        assert bot.requests == []


async def test_a_server_that_answers_before_it_is_asked_has_given_no_receipt() -> None:
    async with playing(*[http(200, OK)] * 3) as bot, channel_to(bot.url) as channel:
        await asyncio.gather(*[send(channel) for _ in range(2)])
        for line in bot.lines:
            unseen(line, http(200, {"ok": True, "result": {"message_id": 9}}))
        assert await send(channel) == Receipt("1001")
        assert (len(bot.requests), bot.connections) == (3, 3)


@asynccontextmanager
async def reading(tls: ssl.SSLContext | None, pace: float) -> AsyncIterator[tuple[str, bytearray]]:
    """A server that takes in much at once, rests in between, and answers what is whole."""
    got, lines = bytearray(), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)
        while some := await reader.read(400_000):
            got.extend(some)
            if got.endswith(LONG.body):
                writer.write(http(200, OK))
            await asyncio.sleep(pace)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}", got
    server.close()
    for line in lines:
        line.transport.abort()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("over_tls", ["tls", ""])
async def test_three_megabytes_are_held_back_by_one_byte(over_tls: str, tmp_path: Path) -> None:
    server, client = certificate(tmp_path) if over_tls else (None, None)
    async with reading(server, 0.01) as (url, got):
        channel = TelegramChannel(url, TOKEN, answer_timeout=LONGEST, connect_timeout=LONGEST, tls=client)
        prepared = await held(channel, LONG)
        async with asyncio.timeout(LONGEST):
            while not got.endswith(LONG.body[:-1]):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert got.endswith(LONG.body[:-1])
        assert await prepared.finish() == Receipt("1001")
        assert got.endswith(LONG.body)
        await channel.close()


async def test_what_a_server_does_not_take_is_not_prepared() -> None:
    wire = replace(LONG, body=canonical({"chat_id": 42, "text": "x" * 20_000_000}))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        channel = TelegramChannel(f"http://127.0.0.1:{deaf.getsockname()[1]}", TOKEN, connect_timeout=0.2)
        outcome = await channel.prepare(wire)
        await channel.close()
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_a_server_that_never_shakes_hands_is_proved_and_no_text_holds_the_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        channel = TelegramChannel(f"https://127.0.0.1:{deaf.getsockname()[1]}", TOKEN, connect_timeout=0.2)
        outcome = await channel.prepare(WIRE)
        await channel.close()
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
    assert TOKEN not in repr(outcome)


async def test_at_the_least_level_the_library_logs_no_token(caplog: pytest.LogCaptureFixture) -> None:
    logs._hush()
    with caplog.at_level(logging.DEBUG):
        assert await answered(http(200, OK)) == Receipt("1001")
    assert TOKEN not in caplog.text


HEAD: Final = b"HTTP/1.1 200 OK\r\n"
ENDLESS: Final[dict[str, tuple[bytes, bytes]]] = {
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 2000),
    "headers": (HEAD, b"X-More: x\r\n" * 4000),
    "one header": (HEAD + b"X: ", b"x" * 64_000),
    "a length": (HEAD + b"Content-Length: ", b"9" * 64_000),
    "a body": (HEAD + b"\r\n", b"x" * 64_000),
    "a declared body": (HEAD + b"Content-Length: 99999999999\r\n\r\n", b"x" * 64_000),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 8000),
    "a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n", b"x" * 64_000),
    "a chunk's size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 64_000),
    "a chunk's extension": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 64_000),
    "trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: x\r\n" * 4000),
    "a number": (HEAD + b'\r\n{"ok":true,"result":{"message_id":', b"7" * 64_000),
}
# What is not kept while it is read has no bound but the time.
UNTIL_GIVEN_UP: Final = {"interim answers", "chunks", "a chunk's size", "a chunk's extension"}


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_answer_without_end_is_no_receipt_and_fills_no_memory(what: str) -> None:
    first, more = ENDLESS[what]

    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while not writer.transport.is_closing():
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(0)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with playing(endless) as bot, channel_to(bot.url, answer_timeout=1.5) as channel:
        outcome = await send(channel)
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == ("timeout" if what in UNTIL_GIVEN_UP else "unreadable", False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KILOBYTES


@pytest.mark.parametrize("number", ["9" * 40, "9" * 5000, "1e400", "-1", "7.0"])
async def test_a_number_that_is_no_message_id_is_no_receipt(number: str) -> None:
    outcome = await answered(http(200, f'{{"ok":true,"result":{{"message_id":{number}}}}}'))
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == ("unreadable", False)


async def test_no_packed_answer_is_asked_for_or_unpacked() -> None:
    packed = gzip.compress(json.dumps(OK).encode())
    async with playing(http(200, packed, extra="Content-Encoding: gzip\r\n")) as bot, channel_to(bot.url) as channel:
        outcome = await send(channel)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unreadable", False)
        assert b"Accept" not in bot.requests[0]


async def test_no_cookie_and_no_proxy_has_a_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with_cookie = http(200, OK, extra="Set-Cookie: a=b; Path=/\r\n")
    async with playing(with_cookie, http(200, OK)) as bot, channel_to(bot.url) as channel:
        for _ in range(2):
            assert await send(channel) == Receipt("1001")
        assert bot.requests == [expected_request(bot)] * 2


@pytest.mark.parametrize(
    "change",
    [lambda body: body.replace(b":", b": "), lambda body: body.replace(b'"text"', b'"parse_mode":null,"text"')],
)
async def test_bytes_that_the_library_would_not_send_are_not_sent_at_all(change: Callable[[bytes], bytes]) -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        outcome = await channel.prepare(replace(WIRE, body=change(WIRE.body)))
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert bot.connections == 0


async def test_a_send_that_is_given_up_leaves_nothing_behind() -> None:
    async with playing(*[http(200, OK)] * 3) as bot, channel_to(bot.url) as channel:
        for _ in range(3):
            prepared = await held(channel)
            await prepared.abandon()
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) <= 1 + len(bot.lines)
        assert bot.requests == []
