"""Limits for one request, one connection and a process, so that none of them uses a daemon up for the others.

A request's head and body have a largest size and a time in which to arrive, an answer has a time in which to be read,
and a daemon has a number of connections.
"""

import asyncio
from asyncio import TimerHandle
from http import HTTPStatus
from math import inf
from typing import ClassVar, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Twice as long as the longest message there can be, with the longest context, written in UTF-8.
MOST_BODY: Final = 256 * 1024
# Brackets and commas, of which JSON has one for each element: the cost of parsing a body grows with its elements.
MOST_THINGS: Final = 40_000
MOST_HEAD: Final = 64 * 1024
# A header of five bytes takes a hundred in memory. Clients send ten or twenty.
MOST_HEADERS: Final = 100
MOST_ON_THE_WIRE: Final = 8 * MOST_BODY
# The parser takes as long for a chunk of one byte as for one of a kilobyte. Clients send kilobytes at a time.
MOST_CHUNKS: Final = 1000
# So much is parsed before it is looked at again what it amounts to.
PIECE: Final = 16 * 1024
_TOO_MUCH_HEAD: Final = (431, b"The request's headers are too many or too long. Send fewer.")
_FULL: Final = (503, b"Too many connections are open here. Try again in a moment.")
_REASONS: Final = {431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


class BoundedConnection(HttpToolsProtocol):
    """One HTTP connection, closed if it is too slow, sends too much, or is idle while another needs its place."""

    # Bytes of all connections of the process together, whatever their daemon: of requests that are not complete, of
    # bodies that nobody has taken, and of heads, which stay until the next request.
    MOST_HELD: ClassVar[int] = 64 * 2**20
    HELD: ClassVar[dict["BoundedConnection", int]] = {}
    MOST: ClassVar[int] = 512
    # From the first byte of a request, or from connecting, to its last byte.
    READ_SECONDS: ClassVar[float] = 30.0
    # Between two moments in which the client reads something of the answer.
    TAKE_SECONDS: ClassVar[float] = 30.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the connection; if there is no room, close the one idle longest, or else refuse this one."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._read = self._bare = self._chunks = 0
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
        """Whether nothing is being done for it: it is between two requests, or its request is not complete."""
        # A request refused at its head has no cycle to ask.
        return not self.transport.is_closing() and (self._reading or self.cycle.response_complete)

    @property
    def late(self) -> float:
        """When its request will be late, by the loop's clock; of one that has come whole never."""
        return self._late.when() if self._reading and self._late is not None else inf

    @property
    def untaken(self) -> bool:
        """Whether nobody has taken its request's body yet, so that nothing was done with it."""
        return not self.transport.is_closing() and bool(self.cycle.body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel its timers; it holds nothing any more."""
        self.HELD.pop(self, None)
        for timer in (self._late, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, piece by piece, as long as the connection stays within its bounds."""
        self._expect()
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            if not self.transport.is_closing():
                self._read += len(piece)
                self._bare += len(piece)
                super().data_received(piece)
                if self._head and self._bare > MOST_HEAD:
                    self._refuse(*_TOO_MUCH_HEAD)
                elif self._bare > MOST_HEAD or self._read > MOST_ON_THE_WIRE:
                    self.end()
        if not self.transport.is_closing():
            self._hold()

    def _hold(self) -> None:
        """Note how much this connection holds; where all hold too much, end those that take longest to say theirs.

        What has come whole goes only where these are not enough, the largest first.
        """
        held = self.HELD
        held[self] = self._read if self._reading else self._long + len(self.cycle.body)
        total = sum(held.values())
        if total > self.MOST_HELD:
            for one in sorted(held, key=lambda one: (one.late, -held[one])):
                if one.idle or one.untaken:
                    total -= held[one]
                    one.end()
                if total <= self.MOST_HELD * 3 // 4:
                    return

    def on_message_begin(self) -> None:
        """Begin to count a new request's head; end the connection if the answer to its last one has not begun.

        No client begins a request before it has read the whole answer, and each that waits takes a kilobyte.
        """
        if self.cycle is not None and not self.cycle.response_started:  # type: ignore[redundant-expr]  # none at first
            self.end()
        super().on_message_begin()
        self._head = self._reading = True
        self._long = self._chunks = 0

    def on_url(self, url: bytes) -> None:
        """Count a piece of the URL."""
        self._long += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, and refuse one too many; ignore a trailer, which comes after the body as if it were one."""
        if self._head and not self.transport.is_closing():
            self._long += len(name) + len(value) + len(b": \r\n")
            super().on_header(name, value)
            if len(self.headers) > MOST_HEADERS:
                self._refuse(*_TOO_MUCH_HEAD)

    def on_headers_complete(self) -> None:
        """Refuse a head that is too long, as one that came in a single read may be; pass on any other."""
        self._head = False
        if self._long > MOST_HEAD:
            self._refuse(*_TOO_MUCH_HEAD)
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Count a chunk of the body; end the connection at one too many."""
        self._chunks += 1
        if self._chunks > MOST_CHUNKS:
            self.end()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body, unless this connection is ending."""
        self._bare = 0
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the request's timer; what follows belongs to the next request."""
        self._read, self._bare, self._reading, self._head = 0, 0, False, False
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note from when on the connection is idle; drop what nobody has taken of the body."""
        self.since = self.loop.time()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.cycle.body.clear()
            if not self._reading:
                self.HELD[self] = self._long
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start a timer that ends the connection if the client goes on reading nothing of the answer."""
        super().pause_writing()
        self._taking = self.loop.call_later(self.TAKE_SECONDS, self.end)

    def resume_writing(self) -> None:
        """Cancel that timer: the client reads again."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.READ_SECONDS, self.end)

    def end(self) -> None:
        """End the connection at once, and drop its body; whoever would take it is told that the client is gone."""
        self.HELD.pop(self, None)
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]  # none at first
            self.cycle.disconnected = True
            self.cycle.body.clear()
        if not self.transport.is_closing():
            self.transport.abort()

    def _refuse(self, status: int, said: bytes) -> None:
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %d %s\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 1\r\n"
            self.transport.write(head % (status, _REASONS[status]) + b"content-length: %d\r\n\r\n" % len(said) + said)
            self.transport.close()


def bounded(app: ASGIApp) -> ASGIApp:
    """Wrap the app so that a body of too many bytes or JSON elements is answered 413 before it is parsed.

    That holds whether or not the request declares a length. Raise ClientDisconnect from within the app if the caller is
    gone before its whole request was read.
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
    """Return the declared length of the body; the parser has refused what is no number."""
    return int(next((value for name, value in scope["headers"] if name == b"content-length"), 0))
