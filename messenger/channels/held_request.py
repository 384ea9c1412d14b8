"""One request of python-telegram-bot whose last byte is held back until it is wanted, over aiohttp's connections.

With Content-Length no server has the request before that byte, so whatever goes wrong earlier is proved not sent. A
POST is written once at most: aiohttp repeats only what is idempotent, and no redirect is followed.
"""

import asyncio
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Never, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from telegram.error import TelegramError
from telegram.request import BaseRequest, RequestData

from messenger.channels.base import Reason, StillHeld, unconditionally
from shared.channels.telegram import canonical
from shared.errors import TooLarge

# Shorter than any server or router keeps a silent connection, so that none dies unseen between two sends.
IDLE_SECONDS: Final = 25.0
EARLY_ANSWER_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
MAX_ANSWER: Final = 16 * 1024 * 1024
# Turns of the loop in which what the kernel already knows reaches a request: poll, read, wake, and one to spare.
_TURNS: Final = 4
# So many kept connections may have said something unasked.
_UNASKED_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer; `early` means that it came before the server had the whole request."""

    status: int
    body: bytes
    early: bool = False


class Answered(TelegramError):
    """Carries any answer past python-telegram-bot's own reading, which cannot tell a 413 from a 500."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


class Broken(TelegramError):
    """There is no answer to read; `proved_not_sent` says on which side of the last byte it broke."""

    def __init__(self, reason: Reason, message: str, *, proved_not_sent: bool) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.proved_not_sent = proved_not_sent


class Late(Exception):
    """The lease ran out before the last byte, which was not written."""


async def settle() -> None:
    """Let what the kernel already knows reach whoever waits for it."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _cut() -> Broken:
    return Broken("unavailable", "The connection was cut before the last byte.", proved_not_sent=True)


@dataclass(slots=True)
class Connections:
    """The kept connections to one server, made when first used; each serves one request at a time."""

    tls: ssl.SSLContext | None
    timeout: float
    _session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session; no proxy, cookie or password of the environment has a part in it."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=self.tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "butlers"},
                skip_auto_headers=("Accept", "Accept-Encoding"),
                # What is short on the way may be endless in memory.
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=self.timeout),
            )
        return self._session

    async def get(self, url: str, most: int) -> tuple[int, bytes]:
        """Return the status and the whole body of what lies there; raise TooLarge for more than so many bytes."""
        body = bytearray()
        async with self.session().get(url, allow_redirects=False) as response:
            async for some in response.content.iter_any():
                body += some
                if len(body) > most:
                    raise TooLarge
            return response.status, bytes(body)

    async def close(self) -> None:
        """Close the connections; what a server does not take in that moment is lost."""
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._session.close()
            self._session = None


class HeldBody(aiohttp.Payload):
    """A body of known length of which the last byte is written by `commit` alone."""

    _default_content_type = "application/json"

    def __init__(self, body: bytes, timeout: float) -> None:
        """Take a body of at least two bytes, and the seconds in which all but the last must leave this process."""
        super().__init__(body)
        self._size = len(body)
        self._timeout = timeout
        self._writer: StreamWriter | None = None
        self._wanted = asyncio.Event()
        self.written = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether any byte of this request may have been written."""
        return self._writer is not None

    @property
    def committed(self) -> bool:
        """Whether the last byte may have been written."""
        return self._wanted.is_set()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body as below."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002
        """Write all but the last byte, and wait for the commit."""
        # An answer that nobody asked for, which waited on a kept connection, shows itself before a byte is written.
        await settle()
        self._writer = cast("StreamWriter", writer)
        try:
            async with asyncio.timeout(self._timeout):
                await self._write_most(self._writer)
        except TimeoutError:
            self.abort()
            raise
        self.written.set()
        await self._wanted.wait()

    async def _write_most(self, writer: StreamWriter) -> None:
        """Write all but the last byte and wait until that has left this process, so that the last one will at once."""
        if writer.transport is not None:
            # Not high=0: asyncio's TLS transport would then pause at an empty buffer and never resume.
            writer.transport.set_write_buffer_limits(high=1, low=0)
        await writer.write(self._value[:-1], drain=False)
        await writer.drain()

    async def commit(self, still_held: StillHeld) -> None:
        """Write the last byte, if the connection stands and the lease lasts; nothing is waited for in between."""
        if self._writer is None or self._writer.transport is None or self._writer.transport.is_closing():
            raise _cut()
        if not still_held():
            raise Late
        self._wanted.set()
        await self._writer.write(self._value[-1:], drain=False)

    def abort(self) -> None:
        """Drop the connection without another byte."""
        if self._writer is not None and self._writer.transport is not None:
            self._writer.transport.abort()


class HeldRequest(BaseRequest):
    """What a `telegram.Bot` makes one call with: the server lacks exactly the last byte of its request.

    `body` is what is sent, byte for byte: the marker names its hash.
    """

    def __init__(self, connections: Connections, body: bytes) -> None:
        self._connections = connections
        self._body = body
        self._held = HeldBody(body, connections.timeout)
        self._answered = False
        self._asking: asyncio.Future[object]

    @property
    def read_timeout(self) -> float | None:
        """Return None: `finish` is told how long an answer may take."""
        return None

    async def initialize(self) -> None:
        """Do nothing: a connection is made when it is needed."""

    async def shutdown(self) -> None:
        """Do nothing: connections outlive a request."""

    async def do_request(
        self,
        url: str,
        method: str,  # noqa: ARG002  (the library asks by POST alone)
        request_data: RequestData | None = None,
        *_timeouts: object,
        **_more: object,
    ) -> Never:
        """POST the request; raise Answered with whatever answer it gets, and Broken if there is none."""
        if canonical(request_data.parameters if request_data else {}) != self._body:
            raise Broken("unavailable", "The library would have sent other bytes.", proved_not_sent=True)
        for _ in range(_UNASKED_MOST):
            try:
                async with self._connections.session().post(url, data=self._held, allow_redirects=False) as response:
                    if self._held.begun:
                        self._answered = True
                        early = not self._held.committed
                        raise Answered(Answer(response.status, await _read(response), early))
                    # What a kept connection said before a byte was written on it answers nothing of ours.
                    response.close()
            except (aiohttp.ClientError, OSError, ValueError) as lost:
                raise self._broken(url, lost) from None
        raise Broken("unavailable", "The server answers before it is asked.", proved_not_sent=True)

    def _broken(self, url: str, lost: Exception) -> Broken:
        """Return what is known where no answer came."""
        reason: Reason = "connection_lost"
        said = "The connection was cut before an answer."
        if not self._held.begun:
            why = getattr(lost, "os_error", lost)
            said = f"{urlsplit(url).netloc} cannot be reached ({type(why).__name__}: {why})."
        elif isinstance(lost, aiohttp.ClientResponseError | ValueError):
            reason, said = "unreadable", "The answer is no HTTP."
        if self._held.committed:
            return Broken(reason, said, proved_not_sent=False)
        return Broken("unavailable", said, proved_not_sent=True)

    async def begin(self, asking: Awaitable[object]) -> None:
        """Write all but the last byte of the request that `asking` makes; raise Broken, always proved not sent."""
        self._asking = asyncio.ensure_future(asking)
        self._asking.add_done_callback(self._over)
        try:
            await self._held.written.wait()
        except BaseException:
            self.abort()
            raise
        if self._asking.done() and isinstance(broken := self._asking.exception(), Broken):
            raise broken

    def _over(self, asking: asyncio.Future[object]) -> None:
        """End the wait for the last byte's turn; what went wrong is told where somebody asks for the answer."""
        if not asking.cancelled():
            asking.exception()
        self._held.written.set()

    async def finish(self, wait: float, still_held: StillHeld = unconditionally) -> Answer:
        """Write the last byte if the lease still lasts right then, and return the answer; raise Broken or Late.

        An answer that came before the last byte is returned as `early`, and the byte is never written.
        """
        try:
            await settle()
            if not self._answered and not self._asking.done():
                await self._held.commit(still_held)
            return await self._answer(wait if self._held.committed else min(wait, EARLY_ANSWER_SECONDS))
        except BaseException:
            self.abort()
            raise

    async def _answer(self, wait: float) -> Answer:
        await asyncio.wait({self._asking}, timeout=wait)
        committed = self._held.committed
        if not self._asking.done():
            reason: Reason = "timeout" if committed else "unavailable"
            raise Broken(reason, f"No answer within {wait:g} seconds.", proved_not_sent=not committed)
        if self._asking.cancelled():
            raise _cut()
        failure = self._asking.exception()
        if isinstance(failure, Answered):
            return failure.answer
        if isinstance(failure, Broken):
            raise failure
        raise Broken("unreadable", "The request ended in no known way.", proved_not_sent=not committed)

    def abort(self) -> None:
        """Drop the connection, if it is still ours: the server never gets a byte that it lacks."""
        if not self._asking.done():
            self._held.abort()
            self._asking.cancel()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body, as far as it came; raise ValueError if there is more of it than any answer has."""
    body = bytearray()
    try:
        async for some in response.content.iter_any():
            body += some
            if len(body) > MAX_ANSWER:
                raise ValueError(len(body))
    except aiohttp.ClientPayloadError:
        pass
    return bytes(body)
