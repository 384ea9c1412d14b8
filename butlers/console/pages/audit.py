"""The page of the audit: what happened, by whom and about what, to read only."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from butlers.console.queries import audit
from butlers.console.session import House, Session, page
from shared.storage.audit_seals import Wanted

LONGEST_FILTER: Final = 40
LONGEST_NUMBER: Final = 18


async def index(house: House, request: Request, session: Session) -> Response:
    """Show a page of the lines, newest first: all of them, or those of an actor or about an id."""
    actor, about = (
        request.query_params.get(name, "").replace("\0", "").strip()[:LONGEST_FILTER] for name in ("by", "about")
    )
    number = request.query_params.get("before", "")
    known = number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
    wanted = Wanted(about, actor=actor, before=int(number) if known else None)
    async with house.context.db.work() as connection:
        shown = await audit.page_of(connection, wanted)
    return await page(house, request, session, "audit.html", shown=shown)
