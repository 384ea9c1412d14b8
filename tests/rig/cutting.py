"""A way to PostgreSQL that is cut at a COMMIT or ROLLBACK: whoever said it cannot know whether it counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.rig.gate import by_port, reach, server_of

ENDS = (b"COMMIT\0", b"ROLLBACK\0")


@dataclass(slots=True)
class Cut:
    """The relay: it watches what clients say, and cuts one connection when it is armed."""

    port: int = 0
    # Only a transaction in which these bytes passed is cut, at its end; empty: none.
    words: bytes = b""
    # Whether the server still gets that last statement.
    counts: bool = False
    cuts: int = 0

    def dsn(self, straight: str) -> str:
        """The same database by way of this relay."""
        return by_port(straight, self.port)

    def arm(self, words: str, *, counts: bool) -> None:
        """Cut the next transaction that says these words, with its end passed on or not."""
        self.words, self.counts, self.cuts = words.encode(), counts, 0


@asynccontextmanager
async def cutting(straight: str) -> AsyncIterator[Cut]:
    """A relay on loopback in front of the server of that URL."""
    server_there, cut = server_of(straight), Cut()
    ways: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, onward = await reach(server_there)
        back = asyncio.create_task(_copy(behind, writer))
        ways.add(back)
        try:
            last = await _watch(cut, reader, onward)
            if last is not None:
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)
                if cut.counts:
                    onward.write(last)
                    await behind.read(65_536)  # it is done, and nobody is told
        finally:
            for stream in (writer, onward):
                stream.transport.abort()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    cut.port = server.sockets[0].getsockname()[1]
    try:
        yield cut
    finally:
        server.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _watch(cut: Cut, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> bytes | None:
    """Pass on what the client says; the end that is to be cut is given back instead, else nothing at the end."""
    said = b""
    while piece := await reader.read(65_536):
        said += piece
        if piece.endswith(ENDS):
            if cut.words and cut.words in said:
                cut.words, cut.cuts = b"", cut.cuts + 1
                return piece
            said = b""
        onward.write(piece)
        await onward.drain()
    return None


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(65_536):
            sink.write(piece)
            await sink.drain()
    sink.close()
