"""Abrupt ends of TCP connections: how to cause one, and how to notice that the other side closed its end."""

import asyncio
import os
import socket
import struct
from typing import Final, Protocol

from starlette.types import Receive

# Connections of mail, in and out, at once.
MOST_MAIL: Final = 128


class Handle(Protocol):
    """The part of a socket that both asyncio and uvloop show."""

    def fileno(self) -> int:
        """Return the file descriptor."""
        ...


class Connection(Protocol):
    """The part of a transport that both asyncio and uvloop have."""

    def abort(self) -> None:
        """Close without sending what is left."""
        ...

    def get_extra_info(self, name: str) -> Handle | None:
        """Return what is known about the transport under that name; None once it is closed."""
        ...


def connection_of(receive: Receive) -> Connection:
    """Return the connection below an ASGI request, as uvicorn's HTTP protocols keep it.

    ASGI has no word for it, therefore this reaches behind `receive`; it raises RuntimeError under any other server.
    """
    connection: Connection | None = getattr(getattr(receive, "__self__", None), "transport", None)
    if connection is None:
        raise RuntimeError("Faults that cut the connection need uvicorn. Serve the sandbox with it.")
    return connection


def reset(connection: Connection) -> None:
    """Close at once with RST (SO_LINGER 0), whatever is still to be sent."""
    # The option belongs to the socket, so it may be set through a second descriptor, on uvloop too.
    ours = connection.get_extra_info("socket")
    if ours is None or ours.fileno() < 0:
        return  # the other side was faster: there is nothing left to close
    with socket.socket(fileno=os.dup(ours.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()


async def gone(receive: Receive) -> None:
    """Wait until the connection is closed by either side."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def until(receive: Receive, done: asyncio.Task[object], seconds: float | None = None) -> bool:
    """Wait for `done`, the time, or the client to go; return whether it is done, and cancel it if not."""
    left = asyncio.create_task(gone(receive))
    try:
        await asyncio.wait({left, done}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return done.done()
    finally:
        for task in (left, done):
            if not task.done():
                task.cancel()
