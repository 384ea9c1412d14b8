"""What one request, one connection and one caller may take of a daemon, so that nobody uses it up for the others.

A request's head and its body have an end and a time in which to arrive, an answer has a time in which to be taken,
a daemon has so many connections, and each verified caller so many requests at once.
"""

import asyncio
import resource
from asyncio import TimerHandle
from collections import Counter
from http import HTTPStatus
from typing import ClassVar, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The longest message there can be, with the longest context, is half as long where it is written in UTF-8.
MOST_BODY: Final = 256 * 1024
# Brackets and commas, of which JSON has one for each thing in it: taking a body apart costs by what it holds.
MOST_THINGS: Final = 40_000
MOST_HEAD: Final = 64 * 1024
# Chunks of one byte each are six on the wire.
MOST_ON_THE_WIRE: Final = 8 * MOST_BODY
MOST_OF_ONE_CALLER: Final = 64
OPEN_FILES: Final = 8192
_TOO_MUCH_HEAD: Final = (431, b"The request's headers are too long. Send fewer.")
_FULL: Final = (503, b"Too many connections are open here. Try again in a moment.")
_REASONS: Final = {431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


class BoundedConnection(HttpToolsProtocol):
    """One HTTP connection that ends if it takes too long, says too much, or is idle while another wants to come in."""

    MOST: ClassVar[int] = 512
    # From the first byte of a request, or from connecting, to its last byte.
    READ_SECONDS: ClassVar[float] = 30.0
    # Between two moments in which whoever asked takes something of the answer.
    TAKE_SECONDS: ClassVar[float] = 30.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take it in; if there is no room, the one that has been idle longest goes, or else this one."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._read = 0
        self._head = self._reading = True
        self._long = 0
        self._taking: TimerHandle | None = None
        self._late: TimerHandle | None = None
        self._expect()
        if len(self.connections) > self.MOST:
            idle = [one for one in self.connections if isinstance(one, BoundedConnection) and one.idle]
            oldest = min(idle, key=lambda one: one.since)  # this one is among them
            if oldest is self:
                self._refuse(*_FULL)
            else:
                oldest.end()

    @property
    def idle(self) -> bool:
        """Whether nothing is done for it: between two requests, or its request is not wholly there."""
        # What is refused at its head never became a request: there is no cycle to ask.
        return not self.transport.is_closing() and (self._reading or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of it is timed any more."""
        for timer in (self._late, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, as long as it is not too much."""
        self._expect()
        self._read += len(data)
        super().data_received(data)
        if self._head and self._read > MOST_HEAD:
            self._refuse(*_TOO_MUCH_HEAD)
        elif self._read > MOST_ON_THE_WIRE:
            self.end()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head = self._reading = True
        self._long = 0

    def on_url(self, url: bytes) -> None:
        """A piece of what is asked for."""
        self._long += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """What comes after the body as if it were a header is none."""
        if self._head:
            self._long += len(name) + len(value) + len(b": \r\n")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there, and nobody answers it if it is too long; it may have come in one read."""
        self._head = False
        if self._long > MOST_HEAD:
            self._refuse(*_TOO_MUCH_HEAD)
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body, of no use once this connection ends."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there; what follows belongs to the next one."""
        self._read, self._reading, self._head = 0, False, False
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """From here on it is idle, and this is since when."""
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Whoever asked takes nothing of the answer, for a while at most."""
        super().pause_writing()
        self._taking = self.loop.call_later(self.TAKE_SECONDS, self.end)

    def resume_writing(self) -> None:
        """It is being taken."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.READ_SECONDS, self.end)

    def end(self) -> None:
        """Let go of it at once."""
        if not self.transport.is_closing():
            self.transport.abort()

    def _refuse(self, status: int, said: bytes) -> None:
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %d %s\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 1\r\n"
            self.transport.write(head % (status, _REASONS[status]) + b"content-length: %d\r\n\r\n" % len(said) + said)
            self.transport.close()


class Share:
    """At most so many requests at once of one verified caller; more are answered 503, and worth asking again."""

    def __init__(self, app: ASGIApp, most: int = MOST_OF_ONE_CALLER) -> None:
        self._app = app
        self._most = most
        self._busy: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve if there is room; whoever is not known is let through to be refused."""
        user = scope.get("user")
        if scope["type"] != "http" or user is None or not user.is_authenticated:
            await self._app(scope, receive, send)
            return
        name = str(user.display_name)
        if self._busy[name] >= self._most:
            said = f"{self._most} calls of {name} are being answered already. Try again in a moment."
            await JSONResponse({"error": said}, 503, headers={"Retry-After": "1"})(scope, receive, send)
            return
        self._busy[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy[name] -= 1


def bounded(app: ASGIApp) -> ASGIApp:
    """The same app; a body of too many bytes or things, its length said or not, is answered 413 before it is parsed.

    Raises ClientDisconnect from within the app if the caller is gone before its whole request was read.
    """

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        came, things, whole = 0, 0, scope["method"] in {"GET", "HEAD"}

        async def counted() -> Message:
            nonlocal came, things, whole
            message = await receive()
            body = message.get("body", b"")
            came += len(body)
            things += body.count(b",") + body.count(b"[") + body.count(b"{")
            if came > MOST_BODY or things > MOST_THINGS:
                raise HTTPException(413)
            if message["type"] == "http.disconnect" and not whole:
                raise ClientDisconnect
            whole = whole or not message.get("more_body", False)
            return message

        refusal = PlainTextResponse(HTTPStatus(413).phrase, 413)
        if _said(scope) > MOST_BODY:
            await refusal(scope, receive, send)
            return
        try:
            await app(scope, counted, send)
        except HTTPException:
            await refusal(scope, receive, send)

    return served


def _said(scope: Scope) -> int:
    """How long the body is said to be; the parser has refused what is no number."""
    return int(next((value for name, value in scope["headers"] if name == b"content-length"), 0))


def no_core_dumps() -> None:
    """A process that crashes leaves no copy of its memory, which holds keys and words."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_of_memory(megabytes: int) -> None:
    """Let the data of this process grow so far, and no request make it grow further; a limit that is lower stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([megabytes * 2**20, *limits]), hard))


def room_for_connections() -> None:
    """Let this process open as many files as its daemons may have connections, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
