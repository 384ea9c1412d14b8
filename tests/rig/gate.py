"""A port that leads to another, or to nobody: whatever listens behind it comes and goes as a test wants."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit


def server_of(dsn: str) -> int | Path:
    """Where the database of that URL is reached: a port of this computer, or a socket."""
    url = urlsplit(dsn)
    assert url.port is not None
    host = unquote(url.netloc.rpartition("@")[2].partition(":")[0])
    return Path(host) / f".s.PGSQL.{url.port}" if host.startswith("/") else url.port


def by_port(dsn: str, port: int) -> str:
    """The same database by this port of this computer."""
    url = urlsplit(dsn)
    return urlunsplit(url._replace(netloc=f"{url.netloc.rpartition('@')[0]}@127.0.0.1:{port}"))


async def reach(where: int | Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to what listens there."""
    if isinstance(where, Path):
        return await asyncio.open_unix_connection(where)
    return await asyncio.open_connection("127.0.0.1", where)


@dataclass(slots=True)
class Gate:
    """A port that leads to another, or to a socket, while it is open, and refuses connections while it is not."""

    to: int | Path
    port: int = 0
    server: asyncio.Server | None = None
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    @property
    def is_shut(self) -> bool:
        return self.server is not None and not self.server.is_serving()

    def shut(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await reach(self.to)
        self.writers += [writer, back]
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
    except OSError:
        pass
    finally:
        writer.close()
