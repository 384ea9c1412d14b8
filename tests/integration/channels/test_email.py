"""The e-mail channel against a scripted server that shows every byte, and a real one with TLS and login."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiosmtpd import smtp
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session
from hypothesis import given
from hypothesis import strategies as st

from messenger.channels.base import Prepared, Receipt, SendFailed
from messenger.channels.email import EmailChannel
from messenger.channels.smtp import Relay, relay_from, stuffed
from shared.channels.base import Message, Wire
from shared.channels.email import render
from shared.errors import InvalidInput, Misconfigured
from tests.rig.tls import certificate
from tests.rig.waiting import LONGEST, until

MAIL = Message(
    notification_id="n1",
    channel="email",
    intent="send",
    address="Ann.O'Hara@Example.org",
    text="Hello\n.\n..two\nbye",
    subject="Hi",
    sender="butlers@home.example",
    created_at=datetime(2026, 3, 29, tzinfo=UTC),
)
(WIRE,) = render(MAIL)
TAKEN = Receipt("<n.n1@home.example>", "250 OK queued as 7")
HANG, DROP, RESET = b"HANG", b"DROP", b"RESET"
# Only where the server hangs is anybody to give up; elsewhere a slow machine must not look like that.
SOON = 0.3


@dataclass
class Relayed:
    """A scripted server: a reply (or a fault) per stage instead of the usual one; keeps what it heard."""

    replies: dict[str, bytes]
    port: int = 0
    connections: int = 0
    commands: list[bytes] = field(default_factory=list)
    text: bytearray = field(default_factory=bytearray)
    mails: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            await self._say(writer, "CONNECT", b"220 hello")
            while line := await reader.readline():
                self.commands.append(line)
                verb = line[:4].decode().strip().upper()
                usual = {"EHLO": b"250-hello\r\n250 SIZE 1000000", "DATA": b"354 go on", "QUIT": b"221 bye"}
                if await self._say(writer, verb, usual.get(verb, b"250 OK")) and verb == "DATA":
                    await self._data(reader, writer)
        except (OSError, ConnectionAbortedError):
            pass
        finally:
            writer.close()

    async def _data(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.text.clear()
        while not self.text.endswith(b"\r\n.\r\n"):
            byte = await reader.read(1)
            if not byte:
                raise ConnectionAbortedError
            self.text += byte
        self.mails.append(bytes(self.text))
        self.taken.set()
        await self._say(writer, "DOT", b"250 OK queued as 7")

    async def _say(self, writer: asyncio.StreamWriter, stage: str, usual: bytes) -> bool:
        """Give the stage's reply; whether the server goes on as if it had agreed."""
        reply = self.replies.get(stage, usual)
        if reply == HANG:
            await asyncio.Event().wait()
        if reply in {DROP, RESET}:
            if reply == RESET:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            raise ConnectionAbortedError
        writer.write(reply + b"\r\n")
        return reply[:1] in {b"2", b"3"}


@asynccontextmanager
async def relaying(**replies: bytes) -> AsyncIterator[tuple[Relayed, EmailChannel]]:
    relay = Relayed(replies)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    hangs = {stage for stage, reply in replies.items() if reply == HANG}
    channel = EmailChannel(
        Relay("127.0.0.1", relay.port),
        answer_timeout=SOON if "DOT" in hangs else LONGEST,
        prepare_timeout=SOON if hangs - {"DOT"} else LONGEST,
    )
    try:
        yield relay, channel
    finally:
        await channel.close()
        server.close()
        for writer in relay.writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


async def send(channel: EmailChannel, wire: Wire = WIRE) -> Receipt | SendFailed:
    prepared = await channel.prepare(wire)
    return prepared if isinstance(prepared, SendFailed) else await prepared.finish()


async def held(channel: EmailChannel, wire: Wire = WIRE) -> Prepared:
    prepared = await channel.prepare(wire)
    assert not isinstance(prepared, SendFailed), prepared
    return prepared


async def test_the_server_has_all_but_the_dot_until_finish() -> None:
    async with relaying() as (relay, channel):
        prepared = await held(channel)
        expected = WIRE.body.replace(b"\r\n.\r\n", b"\r\n..\r\n").replace(b"\r\n..two", b"\r\n...two")
        await until(lambda: len(relay.text) >= len(expected))
        await asyncio.sleep(0.05)
        assert bytes(relay.text) == expected
        assert relay.mails == []
        assert await prepared.finish() == TAKEN
        assert relay.mails == [expected + b".\r\n"]
        assert relay.commands[-3:] == [
            b"MAIL FROM:<butlers@home.example> SIZE=%d\r\n" % len(expected),
            b"RCPT TO:<Ann.O'Hara@Example.org>\r\n",
            b"DATA\r\n",
        ]


async def test_a_text_without_line_end_gets_one_with_the_dot() -> None:
    async with relaying() as (relay, channel):
        assert isinstance(await send(channel, replace(WIRE, body=b"Subject: x\r\n\r\nend")), Receipt)
        assert relay.mails == [b"Subject: x\r\n\r\nend\r\n.\r\n"]


async def test_an_abandoned_mail_never_arrives() -> None:
    async with relaying() as (relay, channel):
        prepared = await held(channel)
        await prepared.abandon()
        await asyncio.sleep(0.05)
        assert relay.mails == []
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_a_kept_connection_serves_again_after_rset() -> None:
    async with relaying() as (relay, channel):
        assert [await send(channel) for _ in range(3)] == [TAKEN] * 3
        assert relay.connections == 1
        assert relay.commands.count(b"RSET\r\n") == 3


async def test_a_connection_that_died_idle_is_replaced_within_prepare() -> None:
    async with relaying() as (relay, channel):
        assert await send(channel) == TAKEN
        relay.writers[0].transport.abort()
        assert await send(channel) == TAKEN
        assert (relay.connections, len(relay.mails)) == (2, 2)


async def test_parallel_mails_have_a_connection_each() -> None:
    async with relaying() as (relay, channel):
        assert await asyncio.gather(*[send(channel) for _ in range(6)]) == [TAKEN] * 6
        assert len(relay.mails) == 6


async def test_a_refused_recipient_does_not_spoil_the_connection() -> None:
    async with relaying(RCPT=b"550 no such user") as (relay, channel):
        assert await send(channel) == SendFailed("provider_rejected", "550 no such user", proved_not_sent=True)
        relay.replies.clear()
        assert await send(channel) == TAKEN
        assert relay.connections == 1


@pytest.mark.parametrize(
    ("stage", "reply", "reason"),
    [
        ("CONNECT", b"554 go away", "unavailable"),
        ("CONNECT", b"421 busy", "unavailable"),
        ("CONNECT", b"SSH-2.0", "unavailable"),
        ("CONNECT", DROP, "unavailable"),
        ("CONNECT", HANG, "unavailable"),
        ("EHLO", DROP, "unavailable"),
        ("RSET", b"451 later", "unavailable"),
        ("MAIL", b"451 later", "unavailable"),
        ("MAIL", b"421 closing", "unavailable"),
        ("MAIL", b"550 not you", "provider_rejected"),
        ("MAIL", b"552 too big", "provider_rejected"),
        ("MAIL", b"530 log in first", "unauthorized"),
        ("MAIL", DROP, "unavailable"),
        ("MAIL", RESET, "unavailable"),
        ("RCPT", b"450 greylisted", "unavailable"),
        ("RCPT", b"550-no\r\n550 such user", "provider_rejected"),
        ("RCPT", b"2xx", "unavailable"),
        ("RCPT", HANG, "unavailable"),
        ("DATA", b"554 no", "provider_rejected"),
        ("DATA", b"451 later", "unavailable"),
        ("DATA", RESET, "unavailable"),
    ],
)
async def test_everything_before_the_dot_is_proved(stage: str, reply: bytes, reason: str) -> None:
    async with relaying(**{stage: reply}) as (relay, channel):
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == (reason, True)
        assert relay.mails == []


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"250-2.0.0\r\n250 Ok", Receipt("<n.n1@home.example>", "250 2.0.0 Ok")),
        (b"451 try later", SendFailed("unavailable", "451 try later", proved_not_sent=True)),
        (b"554 spam", SendFailed("provider_rejected", "554 spam", proved_not_sent=True)),
        (b"354 what", SendFailed("unreadable", "354 what", proved_not_sent=False)),
        (
            b"<html>",
            SendFailed(
                "unreadable",
                "The reply to the final dot is no SMTP: Malformed SMTP response line: <html>",
                proved_not_sent=False,
            ),
        ),
        (HANG, SendFailed("timeout", "No reply to the final dot within 0.3 seconds.", proved_not_sent=False)),
        (
            DROP,
            SendFailed(
                "connection_lost", "The connection was cut before the reply to the final dot.", proved_not_sent=False
            ),
        ),
        (
            RESET,
            SendFailed(
                "connection_lost", "The connection was cut before the reply to the final dot.", proved_not_sent=False
            ),
        ),
    ],
)
async def test_a_reply_to_the_dot_proves_exactly_this(reply: bytes, expected: Receipt | SendFailed) -> None:
    async with relaying(DOT=reply) as (relay, channel):
        assert await send(channel) == expected
        await asyncio.wait_for(relay.taken.wait(), LONGEST)
        assert len(relay.mails) == 1


@pytest.mark.parametrize("last_words", [b"", b"421 timeout, closing\r\n"])
async def test_a_cut_between_prepare_and_finish_is_proved(last_words: bytes) -> None:
    async with relaying() as (relay, channel):
        prepared = await held(channel)
        relay.writers[0].write(last_words)
        relay.writers[0].close()
        await asyncio.sleep(0.02)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert relay.mails == []


async def test_a_cut_the_kernel_knows_but_the_loop_does_not_is_seen_before_the_dot() -> None:
    async with relaying() as (relay, channel):
        prepared = await held(channel)
        with socket.socket(fileno=os.dup(relay.writers[0].get_extra_info("socket").fileno())) as raw:
            raw.shutdown(socket.SHUT_RDWR)
        outcome = await prepared.finish()
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


async def test_cancelling_finish_leaves_no_connection_for_another() -> None:
    async with relaying() as (relay, channel):
        relay.replies["DOT"] = HANG
        task = asyncio.ensure_future(send(channel))
        await asyncio.wait_for(relay.taken.wait(), LONGEST)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        relay.replies.clear()
        assert await send(channel) == TAKEN
        assert relay.connections == 2


async def test_nobody_listening_is_proved() -> None:
    async with relaying() as (_, channel):
        pass
    outcome = await channel.prepare(WIRE)
    assert isinstance(outcome, SendFailed)
    assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)


@pytest.mark.parametrize(
    "wire",
    [
        replace(WIRE, body=b"a\nb\r\n"),
        replace(WIRE, body=b"a\r\n.\r\r\n"),
        replace(WIRE, to="a@b>\r\nRCPT TO:<eve@x"),
        replace(WIRE, to="a@b> <eve@x"),
        replace(WIRE, to=""),
        replace(WIRE, sender="ä@b"),
    ],
)
async def test_a_wire_that_could_smuggle_is_refused_before_connecting(wire: Wire) -> None:
    async with relaying() as (relay, channel):
        outcome = await channel.prepare(wire)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("provider_rejected", True)
        assert relay.connections == 0


@given(st.lists(st.sampled_from([b".", b"..", b"a", b"\r\n", b"\r\n.", b""]), max_size=20).map(b"".join))
def test_stuffing_is_undone_by_the_rule_of_the_server(body: bytes) -> None:
    text, dot = stuffed(body)
    lines = (text + dot).split(b"\r\n")
    assert lines.index(b".") == len(lines) - 2
    read = b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines[:-2])
    assert read == body.removesuffix(b"\r\n")


@pytest.mark.parametrize("body", [b"\r", b"\n", b"a\r\r\n", b"\n\r\n", b"a\n.\r\n"])
def test_a_bare_line_end_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        stuffed(body)


@pytest.mark.parametrize(
    ("url", "relay"),
    [
        ("smtp://127.0.0.1:1025", Relay("127.0.0.1", 1025, tls="starttls")),
        ("smtp://mail.example", Relay("mail.example", 25, tls="starttls")),
        ("smtp://u%40x:p%2Fw@mail.example", Relay("mail.example", 587, "u@x", "p/w", "starttls")),
        ("smtps://u:p@mail.example", Relay("mail.example", 465, "u", "p", "tls")),
        ("smtps://[::1]:2465/", Relay("::1", 2465, tls="tls")),
    ],
)
def test_a_mail_url_is_read(url: str, relay: Relay) -> None:
    assert relay_from(url) == relay


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mail.example:25",
        "http://u:secret@mail",
        "smtp://u:secret@",
        "smtp://h:99999",
        "smtp://u:secret@h/x",
        "smtp://[x",
    ],
)
def test_a_mail_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        relay_from(url)
    assert "secret" not in str(caught.value)


class Mailbox:
    """A real server's handler: keeps what was accepted, and whether the sender had logged in."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes, bool]] = []

    async def handle_DATA(self, _server: smtp.SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  (aiosmtpd's name)
        assert isinstance(envelope.original_content, bytes)
        self.mails.append((envelope.rcpt_tos, envelope.original_content, session.authenticated is True))
        return "250 OK kept"


def _check(_server: object, _session: object, _envelope: object, _mechanism: str, data: object) -> AuthResult:
    good = isinstance(data, LoginPassword) and data == LoginPassword(b"ann@x", b"pass/word")
    return AuthResult(success=good, handled=False)


@asynccontextmanager
async def real_server(server_tls: ssl.SSLContext, *, implicit: bool) -> AsyncIterator[tuple[Mailbox, int]]:
    box = Mailbox()

    def connection() -> smtp.SMTP:
        return smtp.SMTP(
            box,
            hostname="localhost",
            tls_context=None if implicit else server_tls,
            require_starttls=not implicit,
            # The library warns of a login without its own STARTTLS, though implicit TLS is around it.
            auth_required=not implicit,
            auth_require_tls=not implicit,
            authenticator=_check,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0, ssl=server_tls if implicit else None)
    try:
        yield box, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_real_server_with_tls_and_login_takes_the_exact_bytes(scheme: str, tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path)
    async with real_server(server_tls, implicit=scheme == "smtps") as (box, port):
        channel = EmailChannel.from_url(f"{scheme}://ann%40x:pass%2Fword@127.0.0.1:{port}", tls_context=client_tls)
        assert await send(channel) == Receipt("<n.n1@home.example>", "250 OK kept")
        assert await send(channel) == Receipt("<n.n1@home.example>", "250 OK kept")
        await channel.close()
        assert box.mails == [(["Ann.O'Hara@Example.org"], WIRE.body, True)] * 2


async def test_a_wrong_password_is_unauthorized_and_never_quoted(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path)
    async with real_server(server_tls, implicit=False) as (box, port):
        channel = EmailChannel.from_url(f"smtp://ann%40x:s3cret@127.0.0.1:{port}", tls_context=client_tls)
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unauthorized", True)
        assert box.mails == []
        for text in (repr(outcome), repr(channel), repr(relay_from("smtp://u:s3cret@h"))):
            assert "s3cret" not in text


async def test_a_login_never_crosses_a_network_unencrypted() -> None:
    async with relaying(EHLO=b"250-hello\r\n250 AUTH PLAIN LOGIN") as (relay, _):
        # Any name but localhost counts as a network; this one leads here all the same.
        channel = EmailChannel(Relay("127.1", relay.port, "ann", "s3cret"), prepare_timeout=LONGEST)
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert [command[:4] for command in relay.commands] == [b"EHLO"]


async def test_a_server_without_login_is_unauthorized() -> None:
    async with relaying() as (relay, _):
        channel = EmailChannel(Relay("127.0.0.1", relay.port, "ann", "s3cret"), prepare_timeout=LONGEST)
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unauthorized", True)


async def test_an_untrusted_certificate_is_proved_not_sent(tmp_path: Path) -> None:
    server_tls, _ = certificate(tmp_path)
    async with real_server(server_tls, implicit=True) as (box, port):
        trust = ssl.create_default_context()
        channel = EmailChannel.from_url(f"smtps://ann%40x:pass%2Fword@127.0.0.1:{port}", tls_context=trust)
        outcome = await channel.prepare(WIRE)
        assert isinstance(outcome, SendFailed)
        assert (outcome.reason, outcome.proved_not_sent) == ("unavailable", True)
        assert box.mails == []
