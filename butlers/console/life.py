"""The page that tells one message's life: why it was sent, or why not."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console import views_life
from butlers.console.house import House, Session, demand_id


async def show(house: House, request: Request, session: Session) -> Response:
    """By the id of a notification or of its delivery; a card's id leads to what it asks."""
    any_id = demand_id(request)
    async with house.ground.db.work() as connection:
        life = await views_life.life(connection, any_id)
        question = None if life else await views_life.question_of_card(connection, any_id)
    if question:
        return RedirectResponse(f"/approvals/{question}", status_code=303)
    if life is None:
        raise HTTPException(404)
    return house.pages.page("life.html", csrf=session.csrf, here="", life=life)
