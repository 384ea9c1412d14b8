"""E-mail: one SMTP transaction whose final dot is held back, and what each reply proves (RFC 5321).

aiosmtplib does everything up to RCPT; the DATA phase is ours, because only there can the text be written
without the dot that hands it over. Addresses go on the wire character for character.
"""

import asyncio
import ssl
from dataclasses import dataclass, replace

from aiosmtplib import (
    SMTP,
    SMTPException,
    SMTPHeloError,
    SMTPResponseException,
    SMTPServerDisconnected,
    SMTPTimeoutError,
)

from messenger.channels.base import Prepared, Reason, Receipt, SendFailed, StillHeld, too_late, unconditionally
from messenger.channels.smtp import FOR_GOOD, Failed, Relay, envelope, judge, one_line, refusal, relay_from, stuffed
from shared.channels.base import Wire
from shared.errors import InvalidInput

# RFC 5321 4.5.3.2.6: ten minutes for the reply to the final dot; giving up sooner makes duplicates.
FINAL_REPLY_SECONDS = 600.0
IDLE_SECONDS = 120.0
IDLE_KEPT = 4


@dataclass(frozen=True, slots=True)
class MailPart:
    """A mail of which the server lacks the final dot."""

    channel: "EmailChannel"
    client: SMTP
    wire: Wire
    dot: bytes

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        """Write the dot if the lease still lasts right then, and wait for the reply."""
        return await self.channel.finish(self, still_held)

    async def abandon(self) -> None:
        """Close the connection: without the dot the server must drop the text."""
        self.client.close()


class EmailChannel:
    """A mail server with its login; connections are kept and each serves one transaction at a time."""

    name = "email"

    def __init__(
        self,
        relay: Relay,
        *,
        answer_timeout: float = FINAL_REPLY_SECONDS,
        prepare_timeout: float = 30,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        """Take the server; `tls_context` replaces the default trust."""
        self._relay = relay
        self._answer_timeout = answer_timeout
        self._prepare_timeout = prepare_timeout
        self._tls_context = tls_context or trust(relay)
        self._idle: list[tuple[float, SMTP]] = []

    @classmethod
    def from_url(cls, url: str, *, tls_context: ssl.SSLContext | None = None) -> "EmailChannel":
        """Make a channel from smtp[s]://user:password@host:port (user and password percent-encoded)."""
        return cls(relay_from(url), tls_context=tls_context)

    def __repr__(self) -> str:
        """Return where it sends to, without the password."""
        return f"EmailChannel({self._relay.host!r}, {self._relay.port}, tls={self._relay.tls!r})"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        """Connect, or reuse, and write all but the final dot; a SendFailed from here is proved not sent."""
        try:
            text, dot = stuffed(wire.body)
            sender, to = envelope(wire)
            async with asyncio.timeout(self._prepare_timeout):
                client = await self._client()
                await self._begin(client, (sender, to), text)
        except InvalidInput as exc:
            return SendFailed("provider_rejected", str(exc), proved_not_sent=True)
        except Failed as failed:
            return self._redacted(failed.outcome)
        except (SMTPException, OSError) as exc:  # TimeoutError is an OSError
            what = one_line(str(exc)) or f"no answer within {self._prepare_timeout:g} seconds"
            message = f"The mail server failed before the text was handed over: {what}."
            return self._redacted(SendFailed("unavailable", message, proved_not_sent=True, is_down=True))
        return MailPart(self, client, wire, dot)

    async def finish(self, part: MailPart, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        """Write the dot of a prepared mail and say what the reply proves."""
        client = part.client
        try:
            # One turn polls the kernel, the next has run the callbacks: a cut already known is seen here.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if client.protocol is None or not client.is_connected:
                return SendFailed("unavailable", "The connection was cut before the final dot.", proved_not_sent=True)
            # From here to the dot nothing is awaited.
            if not still_held():
                client.close()
                return too_late()
            client.protocol.write(part.dot)
            reply = await client.protocol.read_response(timeout=self._answer_timeout)
        except SMTPTimeoutError:
            client.close()
            return _unknown("timeout", f"No reply to the final dot within {self._answer_timeout:g} seconds.")
        except SMTPServerDisconnected:
            return _unknown("connection_lost", "The connection was cut before the reply to the final dot.")
        except SMTPResponseException as exc:
            client.close()
            return _unknown("unreadable", f"The reply to the final dot is no SMTP: {one_line(exc.message)}")
        except BaseException:
            client.close()
            raise
        self._release(client)
        outcome = judge(part.wire, reply.code, one_line(reply.message))
        return outcome if isinstance(outcome, Receipt) else self._redacted(outcome)

    async def probe(self) -> SendFailed | None:
        """Check on a connection of its own that the server greets, takes the login and answers NOOP.

        Return None if it does.
        """
        try:
            async with asyncio.timeout(self._prepare_timeout):
                client = await self._connected()
                try:
                    await _expect(client, 2, b"NOOP")
                finally:
                    client.close()
        except Failed as failed:
            return self._redacted(failed.outcome)
        except (SMTPException, OSError) as exc:
            what = one_line(str(exc)) or f"no answer within {self._prepare_timeout:g} seconds"
            message = f"The mail server does not answer: {what}."
            return self._redacted(SendFailed("unavailable", message, proved_not_sent=True, is_down=True))
        return None

    async def close(self) -> None:
        """Close every kept connection."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _client(self) -> SMTP:
        """Return a connection ready for MAIL: a kept one that answers RSET, else a new one, logged in."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            since, client = self._idle.pop()
            if now - since < IDLE_SECONDS and await _is_alive(client, self._prepare_timeout / 3):
                return client
            client.close()
        return await self._connected()

    async def _connected(self) -> SMTP:
        """Return a new connection, encrypted as the relay asks, greeted and logged in."""
        relay = self._relay
        must_encrypt = bool(relay.user) and not relay.is_loopback
        client = SMTP(
            hostname=relay.host,
            port=relay.port,
            use_tls=relay.tls == "tls",
            start_tls=(True if must_encrypt else None) if relay.tls == "starttls" else False,
            tls_context=self._tls_context,
            timeout=self._prepare_timeout,
            local_hostname="[127.0.0.1]",  # an address literal says nothing about the owner's house
        )
        await client.connect()
        try:
            if relay.user:
                await _log_in(client, relay)
            await client.rset()
        except BaseException:
            client.close()
            raise
        return client

    async def _begin(self, client: SMTP, addresses: tuple[bytes, bytes], text: bytes) -> None:
        """Send MAIL, one RCPT, DATA and the text without its dot; raise Failed for a refusal."""
        sender, to = addresses
        size = (b"SIZE=%d" % len(text),) if client.supports_extension("size") else ()
        try:
            await _expect(client, 2, b"MAIL", b"FROM:<" + sender + b">", *size)
            await _expect(client, 2, b"RCPT", b"TO:<" + to + b">")
            await _expect(client, 3, b"DATA")
        except Failed:
            self._release(client)
            raise
        except BaseException:
            client.close()
            raise
        try:
            await _write(client, text)
        except BaseException:
            client.close()
            raise

    def _release(self, client: SMTP) -> None:
        """Keep the connection for the next mail."""
        if client.is_connected and len(self._idle) < IDLE_KEPT:
            self._idle.append((asyncio.get_running_loop().time(), client))
        else:
            client.close()

    def _redacted(self, failed: SendFailed) -> SendFailed:
        """Take the password out of the message: even a server's own words may quote it."""
        secret = self._relay.password
        return replace(failed, message=failed.message.replace(secret, "***")) if secret else failed


async def _is_alive(client: SMTP, wait: float) -> bool:
    """Return whether a kept connection answers RSET; nothing was sent on it, so a new one may follow."""
    try:
        await client.rset(timeout=wait)
    except (SMTPException, OSError):
        return False
    except BaseException:
        client.close()
        raise
    return True


async def _log_in(client: SMTP, relay: Relay) -> None:
    """Log in by AUTH; raise Failed if the server refuses.

    A refusal for good, or a server without a login we know, is `unauthorized`.
    """
    try:
        await client.login(relay.user.encode(), relay.password.encode())
    except (SMTPServerDisconnected, SMTPTimeoutError, SMTPHeloError):
        raise
    except SMTPResponseException as exc:
        raise Failed(
            "unauthorized" if exc.code in FOR_GOOD else "unavailable", f"{exc.code} {one_line(exc.message)}"
        ) from None
    except SMTPException as exc:
        raise Failed("unauthorized", str(exc)) from None


async def _expect(client: SMTP, kind: int, *words: bytes) -> None:
    """Give one command; raise Failed for a reply of another kind (first digit) than expected."""
    reply = await client.execute_command(*words)
    if reply.code // 100 != kind:
        raise Failed(*refusal(reply.code, one_line(reply.message)))


async def _write(client: SMTP, text: bytes) -> None:
    """Write the text and wait until all of it has left this process."""
    if client.protocol is None:
        raise SMTPServerDisconnected("Connection lost")
    client.protocol.write(text)
    transport = client.transport
    while isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
        if transport.is_closing():
            raise SMTPServerDisconnected("Connection lost")
        await asyncio.sleep(0.002)


def trust(relay: Relay) -> ssl.SSLContext:
    """Return a context that verifies certificates, except on loopback.

    There no certificate is made out for the name, and nobody stands between.
    """
    if not relay.is_loopback:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's certificates, which take 25 ms to load
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _unknown(reason: Reason, message: str) -> SendFailed:
    return SendFailed(reason, message, proved_not_sent=False)
