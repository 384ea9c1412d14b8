"""One HTTP/1.1 POST whose last byte is held back until it is wanted, over kept connections.

With Content-Length no server has the request before that byte, so whatever goes wrong earlier is proved not
sent.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from messenger.channels.base import Reason, StillHeld, unconditionally
from messenger.channels.line import Answer, Line, read_answer

# Shorter than any server or router keeps a silent connection, so that none dies unseen between two sends.
IDLE_SECONDS = 25.0
IDLE_KEPT = 8
EARLY_ANSWER_SECONDS = 5.0


class Broken(Exception):
    """There is no answer to read; `proved_not_sent` says on which side of the last byte it broke."""

    def __init__(self, reason: Reason, message: str, *, proved_not_sent: bool) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.proved_not_sent = proved_not_sent


class Late(Exception):
    """The lease ran out before the last byte, which was not written."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where to connect, and how; `tls` None means plain."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout: float


@dataclass(slots=True)
class Held:
    """A request of which the server lacks exactly the last byte."""

    line: Line
    last: bytes
    release: Callable[[Line], None]

    async def finish(self, wait: float, still_held: StillHeld = unconditionally) -> Answer:
        """Write the last byte if the lease still lasts right then, and return the answer; raise Broken or Late.

        An answer that came before the last byte is returned as `early` and the byte is never written.
        """
        try:
            await self.line.settle()
            if self.line.buffer:
                return await self._early()
            self._commit(still_held)
            answer, keep = await self._answer(wait)
        except BaseException:
            self.line.abort()
            raise
        if keep and not self.line.buffer and self.line.open:
            self.release(self.line)
        else:
            self.line.abort()
        return answer

    def _commit(self, still_held: StillHeld) -> None:
        """Write the last byte, if the connection stands and the lease lasts; nothing is awaited in between."""
        if not self.line.open:
            raise _cut()
        if not still_held():
            raise Late
        self.line.write(self.last)

    async def _early(self) -> Answer:
        try:
            answer, _ = await self._answer(EARLY_ANSWER_SECONDS)
        except Broken as broken:
            raise Broken("unavailable", broken.message, proved_not_sent=True) from None
        self.line.abort()
        return Answer(answer.status, answer.body, early=True)

    async def _answer(self, wait: float) -> tuple[Answer, bool]:
        try:
            async with asyncio.timeout(wait):
                return await read_answer(self.line)
        except TimeoutError:
            raise Broken("timeout", f"No answer within {wait:g} seconds.", proved_not_sent=False) from None
        except EOFError:
            raise Broken("connection_lost", "The connection was cut before an answer.", proved_not_sent=False) from None
        except ValueError:
            raise Broken("unreadable", "The answer is no HTTP.", proved_not_sent=False) from None

    async def abandon(self) -> None:
        """Drop the connection: the server never gets the last byte."""
        self.line.abort()


def _cut() -> Broken:
    return Broken("unavailable", "The connection was cut before the last byte.", proved_not_sent=True)


async def _line(peer: Peer, address: str, port: int) -> Line:
    """Connect to one numeric address; the certificate must be the host's."""
    loop, name = asyncio.get_running_loop(), peer.host if peer.tls else None
    _, line = await loop.create_connection(Line, address, port, ssl=peer.tls, server_hostname=name)
    return line


@dataclass(slots=True)
class Pool:
    """Kept connections to one peer; each serves one request at a time."""

    peer: Peer
    _idle: list[Line] = field(default_factory=list)

    async def hold(self, request: bytes) -> Held:
        """Write all of the request but its last byte, on a kept connection if one is alive, else on a new one.

        Raises Broken, always proved not sent.
        """
        while self._idle:
            line = self._idle.pop()
            await line.settle()
            fresh_enough = asyncio.get_running_loop().time() - line.idle_since < IDLE_SECONDS
            if fresh_enough and line.open and not line.buffer and await self._written(line, request):
                return Held(line, request[-1:], self._release)
            line.abort()
        line = await self._connect()
        if not await self._written(line, request):
            line.abort()
            raise _cut()
        return Held(line, request[-1:], self._release)

    async def _written(self, line: Line, request: bytes) -> bool:
        """Write all but the last byte; return whether that has left this process and the connection still stands."""
        try:
            async with asyncio.timeout(self.peer.connect_timeout):
                line.write(request[:-1])
                return await line.drained()
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            line.abort()
            raise

    async def _connect(self) -> Line:
        """Connect to the first address that answers; the time is shared among the addresses."""
        peer, loop = self.peer, asyncio.get_running_loop()
        why: Exception = OSError("no address")
        try:
            async with asyncio.timeout(peer.connect_timeout):
                found = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
                for *_, place in found:
                    try:
                        async with asyncio.timeout(peer.connect_timeout / len(found)):
                            return await _line(peer, str(place[0]), peer.port)
                    except OSError as exc:  # TimeoutError is one
                        why = exc
        except OSError as exc:
            why = exc
        what = f"{peer.host}:{peer.port} cannot be reached ({type(why).__name__}: {why})."
        raise Broken("unavailable", what, proved_not_sent=True) from None

    def _release(self, line: Line) -> None:
        """Keep the line for the next request."""
        line.idle_since = asyncio.get_running_loop().time()
        if len(self._idle) < IDLE_KEPT:
            self._idle.append(line)
        else:
            line.abort()

    async def close(self) -> None:
        """Close the kept connections; a request under way ends by itself."""
        while self._idle:
            self._idle.pop().abort()
