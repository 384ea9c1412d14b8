"""The checks on every request and the headers of every answer: Host, Origin, security headers, no traceback.

Cookies do not know ports: another page served from this computer is "same site" and its requests carry
our cookie, so a POST counts only with our own Origin (scheme, host and port).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.telemetry.logs import logger

log = logger("butlers.console")

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
ErrorPage = Callable[[int, str, str], Response]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Nothing is told to other sites. `no-referrer` would also turn our own forms' Origin into `null`, which
    # browsers before 2023, and any browser on plain HTTP outside loopback, could not make up for.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True, slots=True)
class Doorstep:
    """The addresses this console answers to: host names, and its public origin if it has one."""

    hosts: frozenset[str]
    public: str | None = None

    @classmethod
    def of(cls, hosts: frozenset[str], public_url: str | None, advertise_url: str | None) -> "Doorstep":
        """Collect the given hosts, loopback, and the hosts of the two URLs."""
        named = {urlsplit(url).netloc.lower() for url in (public_url, advertise_url) if url}
        names = named | {host_name(host) for host in named} | {host.lower() for host in hosts}
        return cls(frozenset(names) | LOOPBACK, _origin(public_url) if public_url else None)

    def knows(self, host: str) -> bool:
        """Return whether this Host header names us, with the port as given or any other."""
        return host.lower() in self.hosts or host_name(host) in self.hosts

    def is_https(self, scheme: str, host: str) -> bool:
        """Return whether the browser speaks TLS, be it to a proxy in front of us."""
        return scheme == "https" or self.public == f"https://{host.lower()}"

    def is_ours(self, scheme: str, headers: Headers) -> bool:
        """Return whether a changing request comes from a page of our own.

        No header of the browser may speak against it.
        """
        ours = {_origin(f"{scheme}://{headers.get('host', '')}"), self.public} - {None}
        origin, site, referer = (headers.get(name) for name in ("origin", "sec-fetch-site", "referer"))
        if site not in {None, "same-origin"} or (referer is not None and _origin(referer) not in ours):
            return False
        return site is not None if origin in {None, "null"} else _origin(origin) in ours

    def is_embedded(self, headers: Headers) -> bool:
        """Return whether a page that is not ours wants this as part of itself: a picture, a script, a frame."""
        if headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
            return False
        mode, dest = headers.get("sec-fetch-mode", "navigate"), headers.get("sec-fetch-dest", "document")
        return (mode, dest) != ("navigate", "document")


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port, in lower case; empty if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.netloc != host or "@" in host:
        return ""
    return f"[{name}]" if ":" in name else name


def _origin(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    default = {"http": ":80", "https": ":443"}.get(parts.scheme)
    if default is None or not parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(default)}"


class Guard:
    """The outermost middleware around the pages."""

    def __init__(self, app: ASGIApp, *, doorstep: Doorstep, error_page: ErrorPage) -> None:
        self._app = app
        self._doorstep = doorstep
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse or pass on; turn whatever fails inside into a page of two sentences and a line in the log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(message, static=scope["path"].startswith("/static/"))
            await send(message)

        answer: ASGIApp = self._refusal(scope) or self._app
        try:
            await answer(scope, receive, send_guarded)
        except ClientDisconnect:
            raise  # nobody is there to be told
        except Exception:  # the outermost edge: a person must not meet a traceback
            log.exception("page failed", path=scope["path"])
            if not begun:
                failed = self._error_page(
                    500, "Something went wrong in the console.", "Try again; its log has the details."
                )
                await failed(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._doorstep.knows(headers.get("host", "")):
            return self._error_page(
                421,
                "The console does not accept that host name.",
                "Use the address `butlers up` printed, or set BUTLERS_PUBLIC_URL.",
            )
        if scope["method"] in {"GET", "HEAD"}:
            foreign = self._doorstep.is_embedded(headers)
        else:
            foreign = not self._doorstep.is_ours(scope["scheme"], headers)
        if not foreign:
            return None
        return self._error_page(
            403, "This request did not come from the console.", "Open the console and try again there."
        )


def _add_headers(message: Message, *, static: bool) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers["Cache-Control"] = "no-cache" if static else "no-store"
