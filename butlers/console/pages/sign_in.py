"""The pages for signing in, confirming who it is, and signing out: by password, or by a link that works once.

To confirm is to sign in again: the session before ends, so that a copy of its cookie proves nothing afterwards.
"""

from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.session import House, Session, demand_csrf, read_form, safe_next, session_of
from butlers.console.storage import sessions
from butlers.console.templating import render_error, render_page
from shared.auth.password import check_password
from shared.telemetry.logs import logger

log = logger("butlers.console")

WRONG: Final = "Wrong password. Try again, or use the link printed by `butlers sign-in`."
TOO_MANY: Final = "Too many wrong passwords. Wait a minute, or use the link printed by `butlers sign-in`."
SPENT: Final = "This sign-in link has been used or has expired."
ANOTHERS: Final = "This sign-in link is for another user of this computer."
OWN_LINK: Final = "Run `butlers sign-in` in a session of the user whose browser this is; it may be by sudo."
NEW_LINK: Final = "Sign in with the password, or get a new link with `butlers sign-in`."


async def show(house: House, request: Request) -> Response:
    """Show the password form, or for a link one button; look nothing up, change nothing: mail scanners open links."""
    code = request.query_params.get("code", "")
    wanted = safe_next(request.query_params.get("next", "/"))
    if code:
        return render_page("link.html", code=code)
    if await session_of(house, request):
        return RedirectResponse(wanted, status_code=303)
    return await _form(house, request, wanted)


async def confirm(house: House, request: Request, session: Session) -> Response:
    """Ask who it is once more, unless that was proved just now; then lead to the page that was wanted."""
    wanted = safe_next(request.query_params.get("next", "/"))
    async with house.context.db.work() as connection:
        proved = await sessions.has_proved(connection, session.id)
    return RedirectResponse(wanted, status_code=303) if proved else await _form(house, request, wanted)


async def submit(house: House, request: Request) -> Response:
    """Begin a session if the link's code or the password is right."""
    form = await read_form(request)
    wanted = safe_next(form.get("next", "/"))
    if "code" not in form:
        return await _by_password(house, request, form.get("password", ""), wanted)
    uid = house.uid_of(request.scope)
    async with house.context.db.work() as connection:
        good = await sessions.use_link(connection, code_of(form["code"]), uid=uid)
    if good:
        return await _signed_in(house, request, wanted, "link")
    log.warning("sign-in link refused", uid=uid)
    if good is False:
        return render_error(403, ANOTHERS, OWN_LINK)
    if await session_of(house, request):
        return await _form(house, request, wanted, status=403, trouble=f"{SPENT} {NEW_LINK}")
    return render_error(403, SPENT, NEW_LINK)


def code_of(pasted: str) -> str:
    """Return the code in a sign-in link, or what was pasted if it is the code itself."""
    try:
        query = urlsplit(pasted.strip()).query
    except ValueError:
        return ""
    return parse_qs(query).get("code", [""])[-1] or pasted.strip()


async def sign_out(house: House, request: Request, session: Session) -> Response:
    """End the session here and in this browser."""
    demand_csrf(house, session, await read_form(request))
    async with house.context.db.work() as connection:
        await sessions.sign_out(connection, session.id)
    answer = RedirectResponse("/sign-in", status_code=303)
    answer.delete_cookie(house.cookie(request), secure=house.is_https(request), httponly=True, samesite="strict")
    return answer


async def _by_password(house: House, request: Request, given: str, wanted: str) -> Response:
    async with house.context.db.work() as connection:
        attempt = await sessions.reserve_attempt(connection)
    if attempt is None:
        log.warning("sign-in refused: too many wrong passwords")
        answer = await _form(house, request, wanted, status=429, trouble=TOO_MANY)
        answer.headers["Retry-After"] = str(int(sessions.WITHIN.total_seconds()))
        return answer
    if not check_password(given, house.context.settings.console_password):
        log.warning("sign-in refused: wrong password")
        return await _form(house, request, wanted, status=403, trouble=WRONG)
    async with house.context.db.work() as connection:
        await sessions.forgive(connection, attempt)
    return await _signed_in(house, request, wanted, "password")


async def _signed_in(house: House, request: Request, wanted: str, by: str) -> Response:
    """Begin a fresh session, and end the one this browser had before."""
    name, fresh = house.cookie(request), house.random_bytes(32).hex()
    async with house.context.db.work() as connection:
        await sessions.sign_out(connection, request.cookies.get(name, ""))
        await sessions.begin(connection, fresh, house.uid_of(request.scope), by)
    log.info("signed in")
    answer = RedirectResponse(wanted, status_code=303)
    answer.set_cookie(
        name,
        fresh,
        max_age=int(sessions.SESSION_LASTS.total_seconds()),
        path="/",
        secure=house.is_https(request),
        httponly=True,
        samesite="strict",
    )
    return answer


async def _form(house: House, request: Request, wanted: str, *, status: int = 200, trouble: str = "") -> Response:
    known = house.context.settings.console_password is not None
    again = await session_of(house, request) is not None
    return render_page("sign_in.html", status=status, wanted=wanted, trouble=trouble, known=known, again=again)
