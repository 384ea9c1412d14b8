"""Event streams: calls of tools that wait are answered as one, to clients that read one."""

import json
from collections.abc import Collection
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STREAM: Final = "text/event-stream"
# No call of a tool that waits is larger; a larger one is answered as JSON, or refused there.
LONGEST: Final = 65_536


class EventStreams:
    """Middleware that hands the calls of the tools named `waiting` to the app that streams its answers.

    A client of today names its tool in a header, which the app compares with the body (MCP 2026-07-28, Mcp-Name); of an
    older client the body is read here.
    """

    def __init__(self, app: ASGIApp, streaming: Starlette, waiting: Collection[str]) -> None:
        self._app = app
        self._streaming = streaming
        self._waiting = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request by the one app or the other, and start and stop both."""
        if scope["type"] == "lifespan":
            async with self._streaming.router.lifespan_context(self._streaming):
                return await self._app(scope, receive, send)
        app = self._app
        if _may_stream(scope):
            name = Headers(scope=scope).get("mcp-name")
            if name is None:
                name, receive = await _named_in_body(receive)
            app = self._streaming if name in self._waiting else self._app
        return await app(scope, receive, send)


def _may_stream(scope: Scope) -> bool:
    """Return whether somebody known posts here who reads an event stream."""
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["user"].is_authenticated:
        return False
    return scope["path"] == "/mcp" and STREAM in Headers(scope=scope).get("accept", "")


async def _named_in_body(receive: Receive) -> tuple[str | None, Receive]:
    """Return the tool that the body calls, if it calls one, and a `receive` that gives what was read once more.

    A body that is refused, or does not come whole, is so for the app, which answers that.
    """
    read: list[Message] = []
    size, more = 0, True
    broken: Exception | None = None
    while more and size <= LONGEST:
        try:
            message = await receive()
        except (HTTPException, ClientDisconnect) as refused:
            broken = refused
            break
        read.append(message)
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    unread = iter(read)

    async def again() -> Message:
        message = next(unread, None)
        if message is None and broken is not None:
            raise broken
        return await receive() if message is None else message

    return None if more else _called(b"".join(message.get("body", b"") for message in read)), again


def _called(body: bytes) -> str | None:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    params = request.get("params") if isinstance(request, dict) else None
    name = params.get("name") if isinstance(params, dict) and request.get("method") == "tools/call" else None
    return name if isinstance(name, str) else None
