"""What the console's handlers stand on, and who is signed in."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from butlers.butler import Context
from butlers.console.live import Watch
from butlers.console.middleware import Doorstep, host_name
from butlers.console.queries import brakes
from butlers.console.storage import sessions
from butlers.console.templating import render_page
from butlers.daemon.directory import Desks
from shared.auth.mac import tag, tag_matches
from shared.channels.realms import sandbox_url
from shared.config.settings import is_loopback
from shared.errors import Forbidden, InvalidInput

LONGEST_FORM: Final = 256 * 1024
_MOST_FIELDS: Final = 50
# Where a request that the console makes itself, to look at a page again, holds the session that it looks for.
KNOWN: Final = "butlers.session"
_LONGEST_PATH: Final = 2000


@dataclass(frozen=True, slots=True)
class House:
    """One console: its context, and the event that ends its streams."""

    context: Context
    doorstep: Doorstep
    clock: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    # The user of this computer that a request comes from, if the system says so.
    uid_of: Callable[[Scope], int | None]
    watch: Watch
    stopping: asyncio.Event
    # How desks sign in; None where this console takes none.
    desks: Desks | None = None

    def cookie(self, request: Request) -> str:
        """Return the cookie's name, of this installation alone: cookies of one host are shared by all its ports."""
        name = f"butlers_{tag(self.context.secret, 'cookie name')[:8]}"
        return f"__Host-{name}" if self.is_https(request) else name

    def is_https(self, request: Request) -> bool:
        """Return whether the browser speaks TLS, so that the cookie may be kept from plain connections."""
        return self.doorstep.is_https(request.url.scheme, request.headers.get("host", ""))


@dataclass(frozen=True, slots=True)
class Session:
    """A live session; its id stays out of logs and pages."""

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    peer_uid: int | None


async def page(
    house: House, request: Request, session: Session, name: str, *, status: int = 200, **values: object
) -> Response:
    """Render a page of the owner's, with what stands on each: the brakes that are on, and the way to the sandbox.

    Its version, in the header ETag, differs whenever anything it shows differs; the answer to a form is not kept live.
    """
    async with house.context.db.work() as connection:
        on = await brakes.brakes_on(connection)
        sandbox = _sandbox(house, request) if await brakes.in_sandbox(connection) else ""
    shown = {"brakes": on, "sandbox": sandbox, **values}
    version = sha256(repr(sorted(shown.items())).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    at = path_of(request)
    live = status == 200 and request.method in {"GET", "HEAD"} and urlsplit(at).path == request.url.path  # noqa: PLR2004
    here = {"at": at, "here": f"/{request.url.path.split('/')[1]}", "live": live, "version": version}
    answer = render_page(name, status=status, csrf=session.csrf, **here, **shown)
    answer.headers["ETag"] = f'"{version}"'
    return answer


def path_of(request: Request) -> str:
    """Return the page asked for, with its query, as a link to it has it."""
    return safe_next(request.url.path + (f"?{request.url.query}" if request.url.query else ""))


def _sandbox(house: House, request: Request) -> str:
    """Return where the sandbox's pages are, by the settings and no row; empty where this browser cannot reach it."""
    parts = urlsplit(sandbox_url(house.context.settings))
    near = is_loopback(host_name(request.headers.get("host", "")).strip("[]"))
    return f"{parts.scheme}://{parts.netloc}/" if near or not is_loopback(parts.hostname or "") else ""


Public: TypeAlias = Callable[[House, Request], Awaitable[Response]]
Private: TypeAlias = Callable[[House, Request, Session], Awaitable[Response]]


async def session_of(house: House, request: Request) -> Session | None:
    """Return the live session of this request, or None: a cookie counts only from the user who signed in."""
    known = request.scope.get(KNOWN)
    if isinstance(known, Session):
        return known
    session_id = request.cookies.get(house.cookie(request), "")
    if not session_id:
        return None
    peer_uid = house.uid_of(request.scope)
    async with house.context.db.work() as connection:
        live = await sessions.is_live(connection, session_id, peer_uid)
    return Session(session_id, csrf_of(house, session_id), peer_uid) if live else None


def csrf_of(house: House, session_id: str) -> str:
    """Return the token that each form of this session carries."""
    return tag(house.context.secret, "csrf", sessions.sha(session_id))


def demand_csrf(house: House, session: Session, form: Mapping[str, str]) -> None:
    """Raise Forbidden unless the form was made for this session."""
    if not tag_matches(house.context.secret, form.get("csrf", ""), "csrf", sessions.sha(session.id)):
        raise Forbidden("This form belongs to another session.", "Reload the page and try again.")


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a posted form, the last one of each name; raise InvalidInput if it is none.

    Raise HTTPException 413 for a form over 256 KiB: no more than that is read, and nothing if its header says so.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput("This form is not valid.", "Use the buttons on the page.")
    try:
        text = (await _body(request)).decode("ascii")
        fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError:
        fields = {"\0": ""}
    if any("\0" in part for field in fields.items() for part in field):  # no text in the database can hold NUL
        raise InvalidInput("The form cannot be read.", "Reload the page and try again.")
    return fields


async def _body(request: Request) -> bytes:
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:10]) > LONGEST_FORM:
        raise HTTPException(413)
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > LONGEST_FORM:
            raise HTTPException(413)
    return bytes(taken)


def to_confirm(wanted: str, **filled: str) -> Response:
    """Lead to "confirm it is you", and from there back to that page with its form filled again.

    Nothing is repeated by itself.
    """
    fields = urlencode({name: value for name, value in filled.items() if value})
    page = f"{wanted}?{fields}" if fields else wanted
    return RedirectResponse(f"/confirm?{urlencode({'next': page})}", status_code=303)


def safe_next(wanted: str) -> str:
    """Return the page to show after sign-in: one of our own paths, else the start page."""
    plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and len(wanted) <= _LONGEST_PATH
    return wanted if plain and wanted.startswith("/") and not wanted.startswith("//") else "/"


def demand_id(request: Request) -> str:
    """Return the id in the path, in its one spelling; raise HTTPException 404 for anything else."""
    try:
        return str(UUID(request.path_params["id"]))
    except ValueError:
        raise HTTPException(404) from None


def only_signed_in(handler: Private) -> Public:
    """Wrap the handler for the owner alone; lead anybody else to the sign-in page, and tell them nothing."""

    async def guarded(house: House, request: Request) -> Response:
        session = await session_of(house, request)
        return await handler(house, request, session) if session else _lead_to_sign_in(request)

    return guarded


def _lead_to_sign_in(request: Request) -> Response:
    here = path_of(request)
    if request.method in {"GET", "HEAD"} and request.headers.get("sec-fetch-site") == "cross-site":
        # A link in a web mail: browsers keep a Strict cookie back until the page asks for itself.
        return render_page("bounce.html", here=here)
    wanted = here if request.method in {"GET", "HEAD"} else "/"
    sign_in = "/sign-in" if wanted == "/" else f"/sign-in?{urlencode({'next': wanted})}"
    if "hx-request" in request.headers or "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=401, headers={"HX-Redirect": "/sign-in"})
    return RedirectResponse(sign_in, status_code=303)
