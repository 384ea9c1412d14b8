"""The guard of the sandbox's HTTP: only this computer, and pages of the sandbox itself, may talk to it.

There is no password, so the Host header is checked against DNS rebinding, and Origin and Sec-Fetch-Site against
requests that a foreign page makes in the owner's browser: a picture, or a window, asks by GET and names no Origin.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# What programs call: a method of the Bot API counts by GET too. To the rest a browser may be led by a link.
PROGRAMS = ("/bot", "/file/", "/api/")
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
