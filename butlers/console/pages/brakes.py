"""The brake as every page has it: the owner pauses sending, and lifts each brake that is on."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.pages.approvals import owner_id
from butlers.console.session import House, Session, demand_csrf, read_form, safe_next, to_confirm
from butlers.console.storage import sessions
from shared.errors import InvalidInput
from shared.storage import brakes
from shared.storage.brakes import Scope


async def submit(house: House, request: Request, session: Session) -> Response:
    """Pause all sending to others, or lift one brake, and lead back to the page that the form stood on.

    Anybody signed in may pause. Only a session that has just proved who it is may lift, as more leaves then.
    """
    form = await read_form(request)
    demand_csrf(house, session, form)
    wanted, brake = safe_next(form.get("next", "/")), _uuid(form.get("brake", ""))
    if form.get("do") not in {"pause", "lift"} or (form["do"] == "lift") != (brake is not None):
        raise InvalidInput("The form has no valid action.", "Reload the page and try again.")
    async with house.context.db.work() as connection:
        if brake is None:
            await brakes.put_on(connection, Scope(), await owner_id(connection))
        elif not await sessions.has_proved(connection, session.id):
            return to_confirm(wanted)
        else:  # one that is lifted already is as it was to be
            await brakes.lift_one(connection, brake, await owner_id(connection))
    return RedirectResponse(wanted, status_code=303)


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
