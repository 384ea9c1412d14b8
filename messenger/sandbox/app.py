"""The sandbox as one ASGI app, with its mail sink in the same loop."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from messenger.sandbox.botapi.app import BotApi, download
from messenger.sandbox.mail.imap import start_imap
from messenger.sandbox.mail.smtp import start_smtp
from messenger.sandbox.sandbox import MOST, Sandbox, open_sandbox
from messenger.sandbox.web import api, pages
from messenger.sandbox.web.middleware import Bounded, Guard
from shared.errors import InvalidInput

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class MailSink:
    """Where the app listens for mail while it runs, and hands out what people write; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    feed: int = 0


def create_app(
    home: Path,
    owner_chat: int | None = None,
    *,
    allowed_hosts: frozenset[str] = frozenset(),
    mail: MailSink | None = None,
    most: int = MOST,
) -> Starlette:
    """Make the ASGI app of the sandbox whose files lie in `home`/sandbox.

    Opens the files, of which each holds at most `most`, at once (SandboxBusy). While it runs, `app.state.sandbox` is
    the Sandbox and, with `mail`, `app.state.smtp_port` the port of the mail sink and `app.state.imap_port` that of the
    mailbox; without `mail` the process that serves the app starts them by `start_smtp` and `start_imap`. A server that
    wants to end at once calls `app.state.sandbox.stop()` first. Serve it with uvicorn.
    """
    sandbox = open_sandbox(home, owner_chat, most=most)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        servers = []
        if mail is not None:
            servers = [await start_smtp(sandbox, mail.host, mail.port, mail.tls)]
            servers.append(await start_imap(sandbox, mail.host, mail.feed))
            app.state.smtp_port, app.state.imap_port = (one.sockets[0].getsockname()[1] for one in servers)
        try:
            yield
        finally:
            sandbox.close()
            for server in servers:
                server.close()
                await server.wait_closed()

    app = Starlette(
        routes=_routes(sandbox),
        lifespan=lifespan,
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts), Middleware(Bounded, room=sandbox.room)],
        exception_handlers={InvalidInput: _refuse},
    )
    app.state.sandbox = sandbox
    return app


def _routes(sandbox: Sandbox) -> list[Route | Mount]:
    return [
        Route("/bot{token}/{method}", BotApi(sandbox)),
        Route("/file/bot{token}/{path:path}", download),
        Route("/healthz", _healthy),
        Route("/readyz", _healthy),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *api.Api(sandbox).routes(),
        *pages.Pages(sandbox).routes(),
    ]


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, InvalidInput) and not request.url.path.startswith("/api/"):
        return pages.refuse_on_page(request, error)
    return await api.refuse(request, error)


async def _healthy(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})
