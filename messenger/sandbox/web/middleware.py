"""The guards of the sandbox's HTTP: only this computer and the sandbox's pages may talk to it, and not too much.

There is no password, so the Host header is checked against DNS rebinding, and Origin and Sec-Fetch-Site against
requests that a foreign page makes in the owner's browser: a picture, or a window, asks by GET and names no Origin.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from messenger.sandbox.connections import Connection
from messenger.sandbox.room import Room, weigh

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# What programs call: a method of the Bot API counts by GET too. To the rest a browser may be led by a link.
PROGRAMS = ("/bot", "/file/", "/api/")
PIECE = 64 * 1024
TOO_MUCH = "Too much comes to the sandbox, or goes from it, at once. Try again in a moment."
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """An ASGI app around another; refuses foreign Host and Origin headers with 403."""

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = LOOPBACK | {_name(host) for host in allowed_hosts}  # a host may come with its port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = refused(Headers(scope=scope), scope["path"], self._hosts)
        if refusal:
            await PlainTextResponse(refusal + "\n", status_code=403)(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in PAGE_HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, send_guarded)


class Bounded:
    """An ASGI app around another; refuses with 503 what requests and answers under way leave no room for."""

    def __init__(self, app: ASGIApp, room: Room) -> None:
        self._app = app
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count what comes and goes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(self._room, receive, send)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.end()


class Exchange:
    """One request and its answer; an answer goes in pieces, so that a slow reader keeps no second copy of it."""

    def __init__(self, room: Room, receive: Receive, send: Send) -> None:
        self._room = room
        self._receive = receive
        self._send = send
        self._held = 0
        self._refused = False

    @property
    def transport(self) -> Connection | None:
        """The connection below, as the server keeps it."""
        return getattr(getattr(self._receive, "__self__", None), "transport", None)

    async def receive(self) -> Message:
        """Return what comes next; raise HTTPException if there is no room for it."""
        message = await self._receive()
        if not self._has_taken(weigh(message.get("body", b""))):
            raise HTTPException(503, TOO_MUCH)
        return message

    async def send(self, message: Message) -> None:
        """Send an answer, or 503 in its place if there is no room for it."""
        body, is_start = message.get("body", b""), message["type"] == "http.response.start"
        length = int(Headers(raw=message["headers"]).get("content-length", 0)) if is_start else 0
        if self._refused or not self._has_taken(length):
            if not self._refused:
                self._refused = True
                await PlainTextResponse(TOO_MUCH, 503)({"type": "http"}, self._receive, self._send)
        elif len(body) <= PIECE:
            await self._send(message)
        else:
            for at in range(0, len(body), PIECE):
                more = at + PIECE < len(body) or message.get("more_body", False)
                await self._send({**message, "body": body[at : at + PIECE], "more_body": more})

    def end(self) -> None:
        """Give back what the two took."""
        self._room.give(self._held)

    def _has_taken(self, weight: int) -> bool:
        fits = self._room.take(weight)
        self._held += weight if fits else 0
        return fits


def refused(headers: Headers, path: str, hosts: frozenset[str]) -> str:
    """Return why a request for this path with these headers is refused; empty if it is not."""
    host = headers.get("host", "")
    if _name(host) not in hosts:
        return "This sandbox does not go by that name. Open it as 127.0.0.1 or localhost."
    origin = headers.get("origin")
    foreign = headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and path.startswith(PROGRAMS)
    if foreign or (origin is not None and urlsplit(origin).netloc.lower() != host.lower()):
        return "Another page may not talk to the sandbox. Use the sandbox's own pages."
    return ""


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
