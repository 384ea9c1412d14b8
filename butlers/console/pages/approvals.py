"""The pages of approvals: the owner reads what waits, and approves, denies or edits exactly that."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.queries import approvals, start_page, tool_calls
from butlers.console.queries import decided as views_decided
from butlers.console.session import House, Session, demand_csrf, demand_id, page, read_form
from shared.db.pool import Connection
from shared.errors import InvalidInput, Misconfigured
from shared.gate.owner_decision import Edit, OwnerDecision, apply, edit
from shared.gate.tool_call import CALL_WORDS, CallWord, Resolve, resolve_call
from shared.storage import contacts

LONGEST_REASON: Final = 500
LONGEST_NUMBER: Final = 6
WORDS: Final = {"approve": True, "deny": False}
LONGEST_ATTEMPT: Final = 3
CHANGED: Final = "It has changed since you opened it, so nothing was decided. This is the current version."


async def index(house: House, request: Request, session: Session) -> Response:
    """Show one page of what waits, of one butler only if that is asked for, then what was decided lately."""
    number, butler = request.query_params.get("page", "1"), request.query_params.get("butler", "").replace("\0", "")
    known = number.isdecimal() and 0 < len(number) <= LONGEST_NUMBER
    async with house.context.db.work() as connection:
        shown = await start_page.page_of_waiting(connection, butler or None, max(1, int(number)) if known else 1)
        decided = await views_decided.decided(connection)
    return await page(house, request, session, "approvals.html", shown=shown, decided=decided)


async def show(house: House, request: Request, session: Session) -> Response:
    """Show one question, whole."""
    return await _page(house, request, session)


async def submit(house: House, request: Request, session: Session) -> Response:
    """Carry out the owner's word on the revision the form was made for, or show how it stands instead."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    resolved = next((one for one in CALL_WORDS if one == form.get("word")), None)
    if resolved is not None:
        return await _resolve(house, request, session, resolved, form.get("attempt", ""))
    action_id, word, revision = demand_id(request), form.get("word", ""), form.get("revision", "")
    if word not in {*WORDS, "edit"} or not revision.isdecimal() or len(revision) > len("999999999"):
        raise InvalidInput("The form neither approves nor denies.", "Reload the page and try again.")
    typed = form.get("message", "").replace("\r\n", "\n")
    try:
        async with house.context.db.work() as connection:
            by, lasts = await owner_id(connection), house.context.settings.approval_ttl
            if word == "edit":
                outcome = await edit(connection, Edit(action_id, typed, by, "console", lasts, int(revision)))
            else:
                reason = None if WORDS[word] else form.get("reason", "").strip()[:LONGEST_REASON] or None
                said = OwnerDecision(
                    action_id, WORDS[word], by, "console", lasts, reason, int(revision), shown=form.get("shown")
                )
                outcome = await apply(connection, said)
    except InvalidInput as refused:
        return await _page(house, request, session, notice=str(refused), typed=typed)
    if outcome.code in {"approved", "denied", "edited"}:
        return RedirectResponse(f"/approvals/{action_id}", status_code=303)
    notice = CHANGED if outcome.code == "changed" else outcome.text
    return await _page(house, request, session, notice=notice)


async def _resolve(house: House, request: Request, session: Session, word: CallWord, attempt: str) -> Response:
    """Carry out what the owner says of the attempt of a tool call that the form was made for."""
    if not attempt.isdecimal() or len(attempt) > LONGEST_ATTEMPT:
        raise InvalidInput("The form does not say which attempt it is about.", "Reload the page and try again.")
    action_id = demand_id(request)
    async with house.context.db.work() as connection:
        by = await owner_id(connection)
        outcome = await resolve_call(connection, Resolve(action_id, int(attempt), word, by, "console"))
    if outcome.code == "resolved":
        return RedirectResponse(f"/approvals/{action_id}", status_code=303)
    return await _page(house, request, session, notice=outcome.text)


async def owner_id(connection: Connection) -> str:
    """Return the id of the contact in whose name this console decides; raise Misconfigured if there is no owner."""
    owner = await contacts.owner(connection)
    if owner is None:
        raise Misconfigured("There is no owner yet.", "Run `butlers contacts add NAME --role owner`.")
    return str(owner["id"])


async def _page(
    house: House, request: Request, session: Session, *, notice: str = "", typed: str | None = None
) -> Response:
    async with house.context.db.work() as connection:
        question = await approvals.one(connection, demand_id(request))
        call = await tool_calls.call_question(connection, demand_id(request)) if question is None else None
    if call is not None:
        return await page(
            house, request, session, "call.html", status=409 if notice else 200, question=call, notice=notice
        )
    if question is None:
        raise HTTPException(404)
    values = {"question": question, "notice": notice, "typed": typed}
    return await page(house, request, session, "approval.html", status=409 if notice else 200, **values)
