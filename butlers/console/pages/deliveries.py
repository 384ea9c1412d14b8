"""The pages of deliveries: what became of messages, and the owner's word on what may have arrived."""

import asyncio
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.pages.approvals import owner_id
from butlers.console.queries import deliveries, history
from butlers.console.session import House, Session, demand_csrf, demand_id, page, read_form
from shared.db.pool import Connection
from shared.errors import InvalidInput
from shared.storage import resolutions
from shared.storage.resolutions import Outcome, Resolution, Word

# How often, a tenth of a second apart, to look whether a Messenger has carried the word out.
LOOKS: Final = 20
RETRY: Final = "retry"


async def index(house: House, request: Request, session: Session) -> Response:
    """Show every delivery, or those in one state."""
    status = request.query_params.get("status", "")
    if status not in dict(deliveries.FILTERS):
        raise InvalidInput("No such filter.", "Use the links on the page.")
    async with house.context.db.work() as connection:
        lines = await deliveries.lines(connection, status)
    return await page(
        house, request, session, "deliveries.html", lines=lines, chosen=status, filters=deliveries.FILTERS
    )


async def show(house: House, request: Request, session: Session) -> Response:
    """Show one message's life by the id of its notification or delivery; redirect a card's id to what it asks about."""
    return await _page(house, request, session)


async def submit(house: House, request: Request, session: Session) -> Response:
    """Note the owner's word on the attempt the form was made for; the Messenger carries it out."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    delivery_id, attempt = demand_id(request), form.get("attempt", "")
    word = next((one for one in (*resolutions.ANSWERS, RETRY) if one == form.get("word")), None)
    if word is None or not attempt.isdecimal() or len(attempt) > len("999999"):
        raise InvalidInput("The form has no valid action.", "Reload the page and try again.")
    async with house.context.db.work() as connection:
        if not await _fits(connection, delivery_id, word):
            made = None
        else:
            by = await owner_id(connection)
            made = await resolutions.ask(connection, Resolution(delivery_id, int(attempt), word, by, "console"))
    if made is None or await _outcome(house, made) == "late":
        return await _page(house, request, session, notice=resolutions.LATE)
    return RedirectResponse(f"/deliveries/{delivery_id}", status_code=303)


async def _fits(connection: Connection, delivery_id: str, word: Word) -> bool:
    """Return whether the word can be said of this delivery as it stands."""
    if word != RETRY:
        return await deliveries.doubt(connection, delivery_id) is not None
    life = await history.life(connection, delivery_id)
    return life is not None and await deliveries.retried(connection, delivery_id, life.notification_id) is not None


async def _outcome(house: House, resolution_id: str) -> Outcome | None:
    for _ in range(LOOKS):
        async with house.context.db.work() as connection:
            found = await resolutions.outcome(connection, resolution_id)
        if found is not None:
            return found
        await asyncio.sleep(0.1)
    return None


async def _page(house: House, request: Request, session: Session, notice: str = "") -> Response:
    any_id = demand_id(request)
    async with house.context.db.work() as connection:
        life = await history.life(connection, any_id)
        if life is None:
            asked = await deliveries.page_of_card(connection, any_id)
            if asked is None:
                raise HTTPException(404)
            return RedirectResponse(asked, status_code=303)
        doubt = await deliveries.doubt(connection, life.delivery_id)
        retried = await deliveries.retried(connection, life.delivery_id, life.notification_id)
    values = {"life": life, "doubt": doubt, "retried": retried, "notice": notice}
    return await page(house, request, session, "life.html", status=409 if notice else 200, **values)
