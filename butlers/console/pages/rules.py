"""The pages of standing rules: the list, making one, trying one on the past, and revoking it.

What a rule says comes from the form alone; a link may fill the form in, and only a press makes the rule.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.pages.approvals import owner_id
from butlers.console.queries import contacts
from butlers.console.queries import rules as views_rules
from butlers.console.session import House, Session, demand_csrf, demand_id, page, read_form, to_confirm
from butlers.console.storage import sessions
from butlers.daemon import discovery
from shared.channels import CHANNELS
from shared.config.settings import stated_duration
from shared.db.pool import Connection
from shared.display.visible import visible
from shared.errors import InvalidInput
from shared.gate import backtest
from shared.model import Rule
from shared.storage import rules
from shared.storage.rules import NewRule

# The fields of the form; a link to the page may fill them.
FIELDS: Final = (
    "effect", "contact_id", "recipient", "channel", "intent", "butler", "max_uses", "max_per_day", "expires", "from",
)  # fmt: skip
MOST_USES: Final = 1_000_000


async def index(house: House, request: Request, session: Session) -> Response:
    """Show every rule, and the form for a new one, filled as the link says."""
    return await _page(house, request, session, _typed(request.query_params))


async def submit(house: House, request: Request, session: Session) -> Response:
    """Make the rule that the form says, or show what it would have done."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    typed = _typed(form)
    if form.get("do") not in {"add", "test"}:
        raise InvalidInput("The form has no valid action.", "Reload the page and try again.")
    try:
        async with house.context.db.work() as connection:
            new = await _worded(connection, typed)
            rule = await rules.trial(connection, new)
            if form["do"] == "add" and not await sessions.has_proved(connection, session.id):
                return to_confirm("/rules", **typed)
            if form["do"] == "add":
                rule_id = await rules.add(connection, new, await owner_id(connection), "console")
                return RedirectResponse(f"/rules/{rule_id}", status_code=303)
            tried = await _tried(connection, rule, await rules.ends(connection, new))
    except InvalidInput as refused:
        return await _page(house, request, session, typed, notice=str(refused))
    return await _page(house, request, session, typed, tried=tried)


async def show(house: House, request: Request, session: Session) -> Response:
    """Show one rule; with `?test` also what it alone would have made of the last thousand messages."""
    rule_id, tried = demand_id(request), None
    async with house.context.db.work() as connection:
        row = await rules.one(connection, rule_id)
        if row is None:
            raise HTTPException(404)
        if "test" in request.query_params and row["tool_name"] == "notify":
            tried = await _tried(connection, rules.rule_of(row), row["expires_at"])
    rule = views_rules.standing(row)
    return await page(house, request, session, "rule.html", rule=rule, tried=tried, notice="")


async def revoke(house: House, request: Request, session: Session) -> Response:
    """Revoke a rule.

    One that forbids is revoked only by a session that has just proved who it is, as more may leave without that rule.
    """
    demand_csrf(house, session, await read_form(request))
    rule_id = demand_id(request)
    async with house.context.db.work() as connection:
        row = await rules.one(connection, rule_id)
        if row is None:
            raise HTTPException(404)
        if row["effect"] != "allow" and not await sessions.has_proved(connection, session.id):
            return to_confirm(f"/rules/{rule_id}")
        ended = await rules.revoke(connection, rule_id, await owner_id(connection), "console")
    if ended:
        return RedirectResponse(f"/rules/{rule_id}", status_code=303)
    values = {"rule": views_rules.standing(row), "tried": None, "notice": "It is already revoked."}
    return await page(house, request, session, "rule.html", status=409, **values)


def _typed(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: fields.get(name, "").strip() for name in FIELDS}


async def _worded(connection: Connection, typed: Mapping[str, str]) -> NewRule:
    """Return the rule that the fields say; raise InvalidInput if they say none."""
    contact_id = typed["contact_id"] or None
    if contact_id is not None:
        contact_id = _uuid(contact_id)
        if await contacts.person(connection, contact_id) is None:
            raise InvalidInput("There is no such contact.", "Choose one from the list.")
    pinned = rules.constraints_of(
        contact_id=contact_id,
        recipient=typed["recipient"] or None,
        channel=typed["channel"] or None,
        intent=typed["intent"] or None,
    )
    return NewRule(
        "deny" if typed["effect"] == "deny" else "allow",
        pinned,
        await discovery.demand_known(connection, typed["butler"] or None),
        _number(typed["max_uses"]),
        _number(typed["max_per_day"]),
        stated_duration(typed["expires"]) if typed["expires"] else None,
        _uuid(typed["from"]) if typed["from"] else None,
    )


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidInput("The form has an invalid id.", "Reload the page and try again.") from None


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:8]) <= MOST_USES and len(text) < len("10000000")):
        raise InvalidInput(f"{text[:20]!a} is not a number of uses.", f"Give 1 to {MOST_USES}, or leave it empty.")
    return int(text)


async def _tried(connection: Connection, rule: Rule, ends: datetime | None) -> views_rules.Tried:
    return views_rules.tried(list(backtest.would_have(rule, await backtest.actions(connection))), ends)


async def _page(
    house: House,
    request: Request,
    session: Session,
    typed: Mapping[str, str],
    *,
    notice: str = "",
    tried: views_rules.Tried | None = None,
) -> Response:
    async with house.context.db.work() as connection:
        standing = tuple(map(views_rules.standing, await rules.list_rules(connection)))
        people = [(one.id, one.name) for one in await contacts.people(connection)]
        known = await discovery.names(connection)
    # A name that is none any more stays in the form, to be refused: without it the rule would be for every butler.
    gone = [typed["butler"]] if typed["butler"] and typed["butler"] not in known else []
    butlers = [(name, visible(name)) for name in (*known, *gone)]
    by = [(name, name) for name in CHANNELS]
    shown = {"rules": standing, "people": people, "butlers": butlers, "channel_names": by}
    values = {**shown, "typed": typed, "notice": notice, "tried": tried}
    return await page(house, request, session, "rules.html", status=409 if notice else 200, **values)
