"""One raw connection and the HTTP/1.1 answer read from it (RFC 9112).

A protocol of our own rather than streams or a client library: it must see an answer, an end of file or a
reset that came before our last byte.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import cast

MAX_HEAD = 64 * 1024
MAX_ANSWER = 16 * 1024 * 1024

_INTERIM = range(100, 200)
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: |$)")


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer; `early` means that it came before the server had the whole request."""

    status: int
    body: bytes
    early: bool = False


class Line(asyncio.Protocol):
    """One connection: what came in, whether it is still open, and a way to wait for either."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.open = False
        self.idle_since = 0.0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask to be told when every byte has left this process."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True
        # Not high=0: asyncio's TLS transport would then pause at an empty buffer and never resume.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        """Keep what came; drop the connection if it is too much, so that nobody fills the memory."""
        self.buffer += data
        if len(self.buffer) > MAX_ANSWER + MAX_HEAD:
            self.abort()
        self._wake()

    def eof_received(self) -> None:
        """Note that the server will say no more."""
        self.open = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """Note that the connection was closed or reset."""
        self.open = False
        self._wake()

    def pause_writing(self) -> None:
        """Note that bytes wait in this process."""
        self._paused = True

    def resume_writing(self) -> None:
        """Note that all bytes are with the kernel."""
        self._paused = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    async def settle(self) -> None:
        """Let the loop see what the kernel already knows: one turn polls, the next has run the callbacks."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def write(self, data: bytes) -> None:
        """Write the bytes, as far as possible at once."""
        self._transport.write(data)

    async def drained(self) -> bool:
        """Wait until nothing written waits in this process; return False if the connection went first."""
        while self._paused and self.open:
            await self._change()
        return self.open

    def abort(self) -> None:
        """Drop the connection without another byte."""
        self.open = False
        self._transport.abort()

    async def more(self) -> None:
        """Wait for further bytes; raise EOFError if none will come."""
        size = len(self.buffer)
        while len(self.buffer) == size:
            if not self.open:
                raise EOFError
            await self._change()

    async def until(self, mark: bytes) -> bytes:
        """Return the bytes up to and without the mark; raise ValueError if it does not come within 64 KiB."""
        while (at := self.buffer.find(mark)) < 0:
            if len(self.buffer) > MAX_HEAD:
                raise ValueError(mark)
            await self.more()
        taken = bytes(self.buffer[:at])
        del self.buffer[: at + len(mark)]
        return taken

    async def take(self, size: int) -> bytes:
        """Return exactly so many bytes, or fewer if the connection ends."""
        try:
            while len(self.buffer) < size:
                await self.more()
        except EOFError:
            size = len(self.buffer)
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken


async def read_answer(line: Line) -> tuple[Answer, bool]:
    """Return the final answer on this line, and whether the line can serve again.

    A body cut short is returned as far as it came. Raises EOFError if the connection ended before the head was whole,
    ValueError if it is no HTTP.
    """
    status, headers, keep = 100, dict[bytes, bytes](), False
    while status in _INTERIM:
        status, headers, keep = _head(await line.until(b"\r\n\r\n"))
    if status in {204, 304}:
        return Answer(status, b""), keep
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        body, whole = await _chunks(line)
    elif (length := headers.get(b"content-length")) is not None:
        size = int(length)
        if not 0 <= size <= MAX_ANSWER:
            raise ValueError(length)
        body = await line.take(size)
        whole = len(body) == size
    else:
        body, whole = await line.take(MAX_ANSWER + 1), False
    return Answer(status, body), keep and whole


def _head(head: bytes) -> tuple[int, dict[bytes, bytes], bool]:
    """Return status, headers with lower-case names, and whether the server keeps the connection."""
    first, *lines = head.split(b"\r\n")
    match = _STATUS.match(first)
    if match is None or match[2] == b"101":
        raise ValueError(first)
    pairs = (line.partition(b":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    keep = match[1] == b"1" and headers.get(b"connection", b"").lower() != b"close"
    return int(match[2]), headers, keep


async def _chunks(line: Line) -> tuple[bytes, bool]:
    """Return a chunked body as far as it came, and whether it came to its end (RFC 9112 7.1)."""
    body = b""
    try:
        while size := int((await line.until(b"\r\n")).partition(b";")[0], 16):
            if not 0 < size <= MAX_ANSWER - len(body):
                raise ValueError(size)
            chunk = await line.take(size + 2)
            body += chunk[:size]
        while await line.until(b"\r\n"):
            pass
    except EOFError:
        return body, False
    return body, True
