"""The Telegram channel against local servers that show every byte and fail at every point."""

import asyncio
import json
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from messenger.channels.base import Prepared, Receipt, SendFailed
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from shared.channels.base import Message, Wire
from shared.channels.telegram import render
from shared.errors import InvalidInput, Misconfigured
from tests.rig.tls import certificate
from tests.rig.waiting import LONGEST

TOKEN = "123456:AA-secret_token"
SEND = Message(notification_id="n1", channel="telegram", intent="send", address="42", text="Grüße, Ann")
(WIRE,) = render(SEND)
(REACTION,) = render(replace(SEND, intent="react", thread="42:7", emoji="👍"))
OK = {"ok": True, "result": {"message_id": 1001, "chat": {"id": 42}}}

Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def http(status: int, body: object, *, extra: str = "") -> bytes:
    """An answer with Content-Length; str and bytes bodies go as they are."""
    raw = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n{extra}\r\n".encode() + raw


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST rather than FIN."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@dataclass
class Bot:
    """A server that plays one act per request and keeps what it got."""

    acts: list[bytes | Act]
    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.lines.append(writer)
        try:
            while self.acts:
                self.requests.append(await self._request(reader))
                act = self.acts.pop(0)
                if isinstance(act, bytes):
                    writer.write(act)
                else:
                    await act(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        head = await self._read(reader, reader.readuntil(b"\r\n\r\n"))
        size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        body = b""
        while len(body) < size:
            body += await self._read(reader, reader.readexactly(1))
        return head + body

    async def _read(self, reader: asyncio.StreamReader, reading: Awaitable[bytes]) -> bytes:
        data = await reading
        self.raw += data
        self.heard.set()
        return data

    async def has(self, size: int) -> None:
        """Wait until so many raw bytes came."""
        async with asyncio.timeout(LONGEST):
            while len(self.raw) < size:
                self.heard.clear()
                await self.heard.wait()


@asynccontextmanager
async def playing(*acts: bytes | Act, tls: ssl.SSLContext | None = None) -> AsyncIterator[Bot]:
    bot = Bot(list(acts))
    server = await asyncio.start_server(bot.serve, "127.0.0.1", 0, ssl=tls)
    bot.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield bot
    finally:
        server.close()
        for line in bot.lines:
            line.transport.abort()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def channel_to(url: str, *, answer_timeout: float = LONGEST) -> AsyncIterator[TelegramChannel]:
    channel = TelegramChannel(url, TOKEN, answer_timeout=answer_timeout, connect_timeout=LONGEST)
    try:
        yield channel
    finally:
        await channel.close()


async def send(channel: TelegramChannel, wire: Wire = WIRE) -> Receipt | SendFailed:
    prepared = await channel.prepare(wire)
    return prepared if isinstance(prepared, SendFailed) else await prepared.finish()


async def held(channel: TelegramChannel, wire: Wire = WIRE) -> Prepared:
    prepared = await channel.prepare(wire)
    assert not isinstance(prepared, SendFailed)
    return prepared


async def answered(answer: bytes, wire: Wire = WIRE) -> Receipt | SendFailed:
    async with playing(answer) as bot, channel_to(bot.url) as channel:
        return await send(channel, wire)


def expected_request(bot: Bot) -> bytes:
    host = bot.url.partition("//")[2]
    return (
        f"POST /bot{TOKEN}/sendMessage HTTP/1.1\r\nHost: {host}\r\nUser-Agent: butlers\r\n"
        f"Content-Length: {len(WIRE.body)}\r\nContent-Type: application/json\r\n\r\n"
    ).encode() + WIRE.body


async def test_the_server_has_all_but_the_last_byte_until_finish() -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        request = expected_request(bot)
        await bot.has(len(request) - 1)
        await asyncio.sleep(0.05)
        assert bytes(bot.raw) == request[:-1]
        assert bot.requests == []
        assert await prepared.finish() == Receipt("1001")
        assert bot.requests == [request]


async def test_an_abandoned_part_never_arrives() -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        await prepared.abandon()
        await asyncio.sleep(0.05)
        assert bot.requests == []
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert outcome.proved_not_sent
        assert bot.requests == []


async def test_a_reaction_has_a_receipt_of_what_was_set_where() -> None:
    assert await answered(http(200, {"ok": True, "result": True}), REACTION) == Receipt("42:7:👍")


@pytest.mark.parametrize(
    "answer",
    [
        http(200, {"ok": True, "result": {"message_id": 5}, "pad": "x" * 100_000}),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'9\r\n{"ok":tru\r\n1C;x=y\r\ne,"result":{"message_id":5}}\r\n0\r\nTrailer: 1\r\n\r\n'
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n"
            b'HTTP/1.1 200 OK\r\nContent-Length: 37\r\n\r\n{"ok":true,"result":{"message_id":5}}'
        ),
        b'HTTP/1.0 200 OK\r\n\r\n{"ok":true,"result":{"message_id":5}}',
    ],
    ids=["long", "chunked", "interim", "until-eof"],
)
async def test_every_framing_of_an_answer_is_read(answer: bytes) -> None:
    assert await answered(answer) == Receipt("5")


UNKNOWN = {"timeout", "connection_lost", "server_error", "unreadable"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "unreadable"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "unreadable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "unreadable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "unreadable"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "unreadable"),
        (b"H" * 70_000, "unreadable"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "connection_lost"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"ok":true,"re', "unreadable"),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"ok":true', "unreadable"),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 900\r\n\r\n{", "provider_rejected"),
        (b"", "connection_lost"),
    ],
)
async def test_an_answer_that_is_cut_or_no_http(answer: bytes, reason: str) -> None:
    outcome = await answered(answer)
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == (reason, reason not in UNKNOWN)


async def test_a_reset_after_the_last_byte_is_unknown() -> None:
    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reset(writer)

    async with playing(act) as bot, channel_to(bot.url) as channel:
        outcome = await send(channel)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("connection_lost", False)
        assert len(bot.requests) == 1


async def test_no_answer_in_time_is_unknown() -> None:
    async def act(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)

    async with playing(act) as bot, channel_to(bot.url, answer_timeout=0.1) as channel:
        assert await send(channel) == SendFailed("timeout", "No answer within 0.1 seconds.", proved_not_sent=False)


@pytest.mark.parametrize("with_reset", ["reset", ""])
async def test_a_cut_between_prepare_and_finish_is_proved(with_reset: str) -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        await bot.has(len(expected_request(bot)) - 1)
        if with_reset:
            reset(bot.lines[0])
        else:
            bot.lines[0].close()
        await asyncio.sleep(0.02)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert bot.requests == []


@pytest.mark.parametrize(
    ("early", "expected"),
    [
        (http(413, "<html>"), SendFailed("provider_rejected", "HTTP 413.", proved_not_sent=True)),
        (http(502, "<html>"), SendFailed("unavailable", "HTTP 502.", proved_not_sent=True)),
        (b"nonsense\r\n\r\n", SendFailed("unavailable", "The answer is no HTTP.", proved_not_sent=True, is_down=True)),
    ],
)
async def test_an_answer_before_the_last_byte_is_proof_that_nothing_was_sent(
    early: bytes, expected: SendFailed
) -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        await bot.has(len(expected_request(bot)) - 1)
        bot.lines[0].write(early)
        await asyncio.sleep(0.02)
        assert await prepared.finish() == expected
        assert bot.requests == []


async def test_nobody_listening_is_proved() -> None:
    async with playing() as bot:
        url = bot.url
    async with channel_to(url) as channel:
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_a_name_that_does_not_resolve_is_proved() -> None:
    async with channel_to("http://no-such-host.invalid") as channel:
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_a_kept_connection_serves_again() -> None:
    async with playing(http(200, OK), http(400, {"ok": False}), http(200, OK)) as bot, channel_to(bot.url) as channel:
        for _ in range(3):
            await send(channel)
        assert (bot.connections, len(bot.requests)) == (1, 3)


async def test_parallel_sends_have_a_connection_each() -> None:
    async with playing(*[http(200, OK)] * 20) as bot, channel_to(bot.url) as channel:
        outcomes = await asyncio.gather(*[send(channel) for _ in range(20)])
        assert outcomes == [Receipt("1001")] * 20
        assert len(bot.requests) == 20


@pytest.mark.parametrize("extra", ["Connection: close\r\n", ""])
async def test_a_connection_that_died_idle_is_replaced_within_prepare(extra: str) -> None:
    async with playing(http(200, OK, extra=extra), http(200, OK)) as bot, channel_to(bot.url) as channel:
        assert await send(channel) == Receipt("1001")
        reset(bot.lines[0])
        await asyncio.sleep(0.02)
        assert await send(channel) == Receipt("1001")
        assert (bot.connections, len(bot.requests)) == (2, 2)


async def test_an_unasked_answer_on_a_kept_connection_is_not_taken_for_ours() -> None:
    async with playing(http(200, OK), http(200, OK)) as bot, channel_to(bot.url) as channel:
        assert await send(channel) == Receipt("1001")
        bot.lines[0].write(http(200, {"ok": True, "result": {"message_id": 9}}))
        await asyncio.sleep(0.02)
        assert await send(channel) == Receipt("1001")
        assert bot.connections == 2


async def test_a_cut_the_kernel_knows_but_the_loop_does_not_is_seen_before_the_last_byte() -> None:
    async with playing(http(200, OK)) as bot, channel_to(bot.url) as channel:
        prepared = await held(channel)
        await bot.has(len(expected_request(bot)) - 1)
        with socket.socket(fileno=os.dup(bot.lines[0].get_extra_info("socket").fileno())) as raw:
            raw.shutdown(socket.SHUT_RDWR)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_cancelling_finish_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def wait_for_the_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        gone.set()

    async with playing(wait_for_the_end) as bot, channel_to(bot.url) as channel:
        task = asyncio.ensure_future(send(channel))
        await bot.has(len(expected_request(bot)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), LONGEST)
        bot.acts.append(http(200, OK))
        assert await send(channel) == Receipt("1001")
        assert bot.connections == 2


async def test_call_returns_the_whole_answer() -> None:
    document = {"ok": True, "result": [{"update_id": 5}]}
    async with playing(http(200, document)) as bot, channel_to(bot.url) as channel:
        assert await channel.call("getUpdates", {"offset": 5, "timeout": 0}, wait=1) == document
        assert bot.requests[0].endswith(b'\r\n\r\n{"offset":5,"timeout":0}')


@pytest.mark.parametrize(
    ("answer", "status", "reason", "again"),
    [
        (http(409, {"ok": False, "description": "Conflict: other getUpdates"}), 409, "provider_rejected", "no"),
        (http(429, {"ok": False, "parameters": {"retry_after": 3}}), 429, "rate_limited", "yes"),
        (http(200, "<html>"), 200, "unreadable", "yes"),
        (b"", 0, "connection_lost", "yes"),
    ],
)
async def test_call_says_why_there_is_no_result(answer: bytes, status: int, reason: str, again: str) -> None:
    async with playing(answer) as bot, channel_to(bot.url) as channel:
        with pytest.raises(ProviderRefused) as caught:
            await channel.call("getUpdates", {})
        assert (caught.value.status, caught.value.failed.reason, caught.value.retryable) == (
            status,
            reason,
            again == "yes",
        )


async def test_the_token_is_in_no_text() -> None:
    quoted = http(400, {"ok": False, "description": f"Bad Request: /bot{TOKEN}/sendMessage"})
    async with playing(quoted, quoted) as bot, channel_to(bot.url) as channel:
        outcome = await send(channel)
        with pytest.raises(ProviderRefused) as caught:
            await channel.call("getMe", {})
        for text in (
            repr(outcome),
            repr(caught.value),
            str(caught.value),
            repr(channel),
            repr(await channel.prepare(WIRE)),
        ):
            assert TOKEN not in text
    async with channel_to(bot.url) as channel:
        assert TOKEN not in repr(await channel.prepare(WIRE))
    with pytest.raises(Misconfigured) as refused:
        TelegramChannel("ftp://x", TOKEN)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("token", ["", "a b", "1:a\r\nX: y", "1:a/../x", "ü"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(Misconfigured):
        TelegramChannel("http://127.0.0.1", token)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.telegram.org",
        "ftp://x",
        "http://",
        "http://a b",
        "http://u:p@x",
        "http://x?q",
        "http://x:99999",
        "http://x/a b",
    ],
)
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        TelegramChannel(url, TOKEN)


async def test_a_method_that_is_none_is_refused() -> None:
    async with channel_to("http://127.0.0.1:9") as channel:
        with pytest.raises(InvalidInput):
            await channel.call("a/../b", {})


async def test_over_tls_the_last_byte_is_held_back_too(tmp_path: Path) -> None:
    server, client = certificate(tmp_path)
    async with playing(http(200, OK), http(200, OK), tls=server) as bot:
        channel = TelegramChannel(bot.url, TOKEN, answer_timeout=LONGEST, connect_timeout=LONGEST, tls=client)
        prepared = await held(channel)
        request = expected_request(bot)
        await bot.has(len(request) - 1)
        await asyncio.sleep(0.05)
        assert bytes(bot.raw) == request[:-1]
        assert await prepared.finish() == Receipt("1001")
        assert await send(channel) == Receipt("1001")
        assert bot.connections == 1
        await channel.close()


async def test_an_untrusted_certificate_is_proved_not_sent(tmp_path: Path) -> None:
    server, _ = certificate(tmp_path)
    async with playing(http(200, OK), tls=server) as bot, channel_to(bot.url) as channel:
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert "certificate" in outcome.message
        assert bot.requests == []
