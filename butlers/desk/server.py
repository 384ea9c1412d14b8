"""The stand-alone desk as an MCP server: on a pipe, or over HTTP on this computer with a token."""

import hmac
import os
import secrets
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvicorn
from fastmcp.server.auth import AccessToken, TokenVerifier
from starlette.applications import Starlette
from starlette.middleware import Middleware

from butlers.butler import Components
from butlers.daemon.app import OwnOrigin
from butlers.daemon.connection_limits import BoundedConnection, bounded
from butlers.daemon.mcp_server import ServedTool, ToolServer, over_stdio
from butlers.desk.desktop import Note, Notifier
from butlers.desk.notify import Announce, components
from shared.errors import Misconfigured, Unavailable

NAME: Final = "desk"
INSTRUCTIONS: Final = (
    "`notify` shows the person at this computer a popup, and returns what they typed. With the further argument "
    "`sensitive` true, what they type is hidden on the screen and shown in no history: use it for keys and passwords."
)
HOST: Final = "127.0.0.1"
MEMORY_MB: Final = 512
_LEAST_TOKEN: Final = 20


class OneToken(TokenVerifier):
    """A verifier that knows one token, whoever holds it."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the caller, or None for any other token."""
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            return None
        claims = {"name": NAME, "kind": "client", "jti": "desk-http"}
        return AccessToken(token=token, client_id=NAME, scopes=["client"], claims=claims)


def announcing(notifier: Notifier) -> Announce:
    """Return a function that shows a message as a notification of the desktop, and says whether it could."""

    async def announce(title: str, message: str) -> bool:
        try:
            closed = await notifier.show(Note(secrets.token_hex(8), title, message, timeout=10))
        except Unavailable:
            return False
        return closed.how != "gone"

    return announce


async def on_a_pipe(notifier: Notifier, history_limit: int) -> None:
    """Serve until the client closes the pipe."""
    await over_stdio(NAME, INSTRUCTIONS, components(announcing(notifier), history_limit))


async def over_http(notifier: Notifier, history_limit: int, port: int, token: str) -> None:
    """Serve on this computer's own address until we are told to stop, under a daemon's limits."""
    limit_process()
    config = uvicorn.Config(
        bounded(http_app(components(announcing(notifier), history_limit), port, token)),
        http=BoundedConnection,
        ws="none",
        host=HOST,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )
    await uvicorn.Server(config).serve()


def limit_process() -> None:
    """Forbid core dumps, and limit the memory of this process, where the system can."""
    if sys.platform != "win32":
        from butlers.daemon.host import end_of_memory, no_core_dumps  # noqa: PLC0415  # Windows cannot load it

        no_core_dumps()
        end_of_memory(MEMORY_MB)


def http_app(parts: Components, port: int, token: str) -> Starlette:
    """Return the app: nothing is answered without the token, to another host's name, or to a foreign web page."""
    server = ToolServer(
        NAME,
        version=version("butlers"),
        instructions=INSTRUCTIONS,
        auth=OneToken(token),
        mask_error_details=True,
        tools=[ServedTool.of(tool) for tool in parts.tools],
    )
    return server.http_app(
        path="/mcp",
        stateless_http=True,
        json_response=False,
        host_origin_protection=True,
        allowed_hosts=[f"{host}:{port}" for host in (HOST, "localhost")],
        middleware=[Middleware(OwnOrigin)],
    )


def token_in(file: Path) -> str:
    """Return the token that this file holds; make one, for its owner alone to read, if there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = file.read_text(encoding="utf-8", errors="replace").strip()
    else:
        token = secrets.token_urlsafe(32)
        with open(descriptor, "w", encoding="utf-8") as made:  # noqa: PTH123  # a descriptor is no path
            made.write(f"{token}\n")
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise Misconfigured(f"{file} holds no token.", "Remove it, and start again.")
    return token
