"""The console as one ASGI app: which page is where, who may see it, and how an error looks."""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from butlers.butler import Context
from butlers.console.live import Viewer, Watch, changes
from butlers.console.middleware import Doorstep, Guard
from butlers.console.pages import (
    approvals,
    audit,
    brakes,
    butler,
    contacts,
    deliveries,
    desk,
    questions,
    rules,
    settings,
    sign_in,
)
from butlers.console.queries import start_page
from butlers.console.session import KNOWN, House, Private, Public, Session, only_signed_in, page, session_of
from butlers.console.storage import sessions
from butlers.console.templating import FOLDER, render_error
from butlers.daemon.directory import Desks
from shared.auth import peer
from shared.auth.password import demand_fit
from shared.errors import ButlersError, InvalidInput
from shared.loops import apart, pause
from shared.telemetry.logs import logger
from shared.telemetry.metrics import RECENT

log = logger("butlers.console")

SLOWEST_LOOK: Final = 2.0
# What a program on the owner's own screen asks for, by its token.
DESK: Final[tuple[tuple[str, Public, str], ...]] = (
    ("/desk/sign-in", desk.sign_in, "POST"),
    ("/desk/questions", desk.questions, "GET"),
    ("/desk/answers", desk.submit, "POST"),
)
_STATUS: Final = {
    "validation_error": 400,
    "forbidden": 403,
    "unreadable": 409,
    "target_unavailable": 503,
    "misconfigured": 503,
}
_HTTP: Final = {
    404: ("Page not found.", "Go back to the start page."),
    405: ("This page does not accept that kind of request.", "Use the buttons on the page."),
    413: ("The form is too long.", "Make it shorter."),
}


def create_app(
    context: Context,
    *,
    clock: Callable[[], float],
    allowed_hosts: frozenset[str],
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    uid_of: Callable[[Scope], int | None] = peer.uid_of,
    desks: Desks | None = None,
) -> Starlette:
    """Make the app of the owner's web pages.

    `clock` counts seconds and never jumps back (time.monotonic). `allowed_hosts` are host names, with or without
    a port, besides loopback and the hosts of the public and the advertised URL. `end_streams` and `end_links` must run
    beside it. Raise InvalidInput for a password that is too short or too long.
    """
    settings = context.settings
    if settings.console_password is not None:
        demand_fit(settings.console_password)
    watch = Watch(clock, min(settings.sweep_seconds, SLOWEST_LOOK))
    doorstep = Doorstep.of(allowed_hosts, settings.public_url, settings.advertise_url)
    house = House(context, doorstep, clock, random_bytes, uid_of, watch, asyncio.Event(), desks)
    app = Starlette(
        routes=_routes(house),
        middleware=[Middleware(Guard, doorstep=doorstep, error_page=render_error)],
        exception_handlers={ButlersError: _refused, HTTPException: partial(_http_error, house)},
    )
    app.state.stopping = house.stopping
    app.router.redirect_slashes = False
    return app


async def end_streams(app: Starlette, stopping: asyncio.Event) -> None:
    """End the open event streams when the daemon stops, so that the server need not wait for them."""
    await stopping.wait()
    app.state.stopping.set()


async def end_links(context: Context, stopping: asyncio.Event) -> None:
    """Remove sign-in links soon after they have expired, until the daemon stops."""
    while not await pause(stopping, context.settings.timings.unhurried):
        with apart(log, "expired sign-in links were not removed"):
            async with context.db.work() as connection:
                await sessions.sweep_links(connection)


def _routes(house: House) -> list[Route | Mount]:
    """Return the routes; a page is the owner's unless it is listed with `anybody`."""

    def anybody(path: str, handler: Public, method: str = "GET") -> Route:
        return Route(path, partial(handler, house), methods=[method])

    def owner(path: str, handler: Private, method: str = "GET") -> Route:
        return anybody(path, only_signed_in(handler), method)

    return [
        owner("/", start),
        owner("/approvals", approvals.index),
        owner("/approvals/{id}", approvals.show),
        owner("/approvals/{id}", approvals.submit, "POST"),
        owner("/questions/{id}", questions.show),
        owner("/questions/{id}", questions.submit, "POST"),
        owner("/contacts", contacts.index),
        owner("/contacts", contacts.add_person, "POST"),
        owner("/contacts/{id}", contacts.show),
        owner("/contacts/{id}", contacts.submit, "POST"),
        owner("/rules", rules.index),
        owner("/rules", rules.submit, "POST"),
        owner("/rules/{id}", rules.show),
        owner("/rules/{id}", rules.revoke, "POST"),
        owner("/deliveries", deliveries.index),
        owner("/deliveries/{id}", deliveries.show),
        owner("/deliveries/{id}", deliveries.submit, "POST"),
        owner("/butlers/{id}", butler.show),
        owner("/butlers/{id}", butler.submit, "POST"),
        *(owner(path, do) for path, do in (("/audit", audit.index), ("/settings", settings.index))),
        owner("/brake", brakes.submit, "POST"),
        owner("/events", events),
        owner("/confirm", sign_in.confirm),
        owner("/sign-out", sign_in.sign_out, "POST"),
        anybody("/sign-in", sign_in.show),
        anybody("/sign-in", sign_in.submit, "POST"),
        *(anybody(*one) for one in DESK),
        *(anybody(path, do) for path, do in (("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics))),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]


async def start(house: House, request: Request, session: Session) -> Response:
    """Show the start page: what needs the owner."""
    async with house.context.db.work() as connection:
        shown = await start_page.start(connection)
    return await page(house, request, session, "start.html", start=shown)


async def events(house: House, request: Request, session: Session) -> Response:
    """Stream an event whenever the page that is asked about is no longer as the asker saw it."""
    if request.method == "HEAD":  # its answer has no body, and would wait ten minutes for the end of one
        return Response(media_type="text/event-stream")
    seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")
    shown = request.query_params.get("page", "/")
    look = partial(_version, request, session, shown)
    if not await look():
        return Response(status_code=204)  # by which a browser asks no more

    async def still_in() -> bool:
        async with house.context.db.work() as connection:
            return await sessions.is_live(connection, session.id, session.peer_uid)

    stream = changes(house.watch, Viewer(shown, look, still_in), seen, house.stopping, house.clock)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _version(request: Request, session: Session, shown: str) -> str:
    """Ask for a page as this browser would, and return its version; empty for what is no page that is kept live."""
    parts = urlsplit(shown)
    asked = {**request.scope, "method": "GET", "path": parts.path, "query_string": parts.query.encode(), KNOWN: session}
    found = ((one, *one.matches(asked)) for one in request.app.router.routes if isinstance(one, Route))
    for route, match, child in found:
        if match is Match.FULL:
            try:
                answer = await route.endpoint(Request({**asked, **child}))
            except (HTTPException, InvalidInput):
                return ""
            return str(answer.headers.get("etag", "")).strip('"')
    return ""


async def healthz(_house: House, _request: Request) -> Response:
    """Answer that the process is there."""
    return JSONResponse({"status": "ok", "name": "console"})


async def readyz(house: House, _request: Request) -> Response:
    """Answer whether pages can be shown, and nothing else."""
    try:
        async with asyncio.timeout(2), house.context.db.work() as connection:
            await sessions.is_live(connection, "", None)
    except (ButlersError, TimeoutError):
        troubles = ["The database does not answer."]
        return JSONResponse({"status": "not ready", "troubles": troubles}, status_code=503)
    return JSONResponse({"status": "ready", "troubles": []})


async def metrics(_house: House, _request: Request) -> Response:
    """Return what this process counts, for Prometheus; it names no person and no text."""
    return PlainTextResponse(RECENT.text(time.monotonic()), media_type="text/plain; version=0.0.4")


async def _refused(_request: Request, error: Exception) -> Response:
    known = error if isinstance(error, ButlersError) else ButlersError(str(error))
    return render_error(_STATUS.get(known.code, 500), known.message, known.remedy or "Try again.")


async def _http_error(house: House, request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message, remedy = _HTTP.get(status, ("This request cannot be handled.", "Go back to the start page."))
    if status == 404:  # noqa: PLR2004
        with suppress(ButlersError):  # a lost database is no reason to say nothing
            session = await session_of(house, request)
            if session is not None:
                return await page(house, request, session, "missing.html", status=status)
    answer = render_error(status, message, remedy)
    answer.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return answer
