"""The page of what opens this house to others: the tokens of clients and desks that count, and how each is ended."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from butlers.console.session import House, Session, page
from butlers.daemon import discovery

SHORT: Final = 8


async def index(house: House, request: Request, session: Session) -> Response:
    """Show the tokens that count; the tokens themselves are stored nowhere."""
    async with house.context.db.work() as connection:
        rows = [row for row in await discovery.tokens(connection) if row["counts"]]
    found = [
        {
            "id": row["id"][:SHORT],
            "kind": row["kind"],
            "butler": row["butler"],
            "made": f"{row['made_at']:%Y-%m-%d}",
            "expires": f"{row['expires_at']:%Y-%m-%d}",
        }
        for row in rows
        if not row["brief"]
    ]
    desks = [one for one in found if one["kind"] == "desk"]
    clients = [one for one in found if one["kind"] != "desk"]
    return await page(
        house, request, session, "settings.html", desks=desks, clients=clients, brief=len(rows) - len(found)
    )
