"""The page of one butler: its schedules and sessions, kept live, and the buttons that end one."""

import re
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.queries import sessions as queries
from butlers.console.session import House, Session, demand_csrf, page, read_form
from shared.display.day_bar import KEY, day_bar
from shared.errors import InvalidInput
from shared.storage import schedules, session_list, sessions, state

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
OVER: Final = "This session has ended."


async def show(house: House, request: Request, session: Session) -> Response:
    """Show the butler's schedules and sessions."""
    return await _page(house, request, session)


async def submit(house: House, request: Request, session: Session) -> Response:
    """Have one session stopped, whose process is ended within seconds, or a schedule removed that the butler made."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    name = _name(request)
    if "remove" in form:
        async with house.context.db.work() as connection:
            await schedules.remove_own(connection, name, form["remove"])
        return RedirectResponse(f"/butlers/{name}", status_code=303)
    session_id = _uuid(form.get("stop", ""))
    async with house.context.db.work() as connection:
        found = await session_list.one(connection, session_id)
        if found is None or found["butler"] != name:
            raise InvalidInput("The form has no valid action.", "Reload the page and try again.")
        stopped = await sessions.ask_to_stop(connection, session_id)
    if not stopped:
        return await _page(house, request, session, notice=OVER)
    return RedirectResponse(f"/butlers/{name}", status_code=303)


async def _page(house: House, request: Request, session: Session, notice: str = "") -> Response:
    name = _name(request)
    async with house.context.db.work() as connection:
        if not await queries.is_known(connection, name):
            raise HTTPException(404)
        runs = await queries.runs(connection, name)
        timed = await queries.timed(connection, name)
        kept = await state.get(connection, name, KEY)
    shown = {
        "butler": name,
        "runs": runs,
        "timed": timed,
        "notice": notice,
        "day": day_bar(kept.value) if kept else None,
    }
    return await page(house, request, session, "butler.html", status=409 if notice else 200, **shown)


def _name(request: Request) -> str:
    name = str(request.path_params["id"])
    if not NAME.fullmatch(name):
        raise HTTPException(404)
    return name


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidInput("The form has no valid action.", "Reload the page and try again.") from None
