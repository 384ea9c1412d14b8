"""The pages of contacts: who is who, changing that, and adding an address together with sending what waited for it."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.pages.approvals import owner_id
from butlers.console.queries import contacts as contacts_shown
from butlers.console.session import House, Session, demand_csrf, demand_id, page, read_form, to_confirm
from butlers.console.storage import sessions
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.gate.admit import tool_args
from shared.gate.evaluate import Evaluation, evaluate
from shared.gate.owner_decision import OwnerDecision, apply
from shared.storage import contacts, pending_actions
from shared.storage.pending_actions import Revision, Why

MOVED: Final = "The waiting messages have changed, so this changed nothing."
LOOK_AGAIN: Final = "Please review them again."
# What the forms of a contact's page do, and the page that each leads to.
LEADS_TO: Final[Mapping[str, str]] = {
    "add": "/contacts/{}",
    "send": "/contacts/{}?sent",
    "rename": "/contacts/{}",
    "remove_address": "/contacts/{}",
    "remove": "/contacts",
}


async def index(house: House, request: Request, session: Session) -> Response:
    """Show everybody the butlers know, and the form for somebody new."""
    return await _people(house, request, session, typed={})


async def add_person(house: House, request: Request, session: Session) -> Response:
    """Add a contact with the addresses that were given, wholly or not at all, and lead to its page."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    try:
        async with house.context.db.work() as connection:
            made = await contacts.add_contact(connection, form.get("name", ""), [], surface="console")
            for kind in CHANNELS:
                if form.get(kind, "").strip():
                    await contacts.add_address(connection, made, kind, form[kind], surface="console")
    except InvalidInput as refused:
        return await _people(house, request, session, typed=form, notice=str(refused))
    return RedirectResponse(f"/contacts/{made}", status_code=303)


async def show(house: House, request: Request, session: Session) -> Response:
    """Show one contact, and whatever waits for an address of theirs; a link may fill the form in."""
    return await _page(house, request, session, typed=_typed(request.query_params))


async def submit(house: House, request: Request, session: Session) -> Response:
    """Change a contact as its page's forms say, or add an address and send what the page showed; wholly or not at all.

    Of a contact that a rule or a brake names, only a session that has just proved who it is may do so: another address
    would lead messages elsewhere, or past what stops them.
    """
    form = await read_form(request)
    demand_csrf(house, session, form)
    contact_id, typed, do = demand_id(request), _typed(form), form.get("do", "")
    if do not in LEADS_TO:
        raise InvalidInput("The form has no valid action.", "Reload the page and try again.")
    try:
        async with house.context.db.work() as connection:
            ruled = await contacts_shown.is_ruled(connection, contact_id)
            if ruled and not await sessions.has_proved(connection, session.id):
                return to_confirm(f"/contacts/{contact_id}", **typed)
            if do == "send":
                await _add_and_send(house, connection, contact_id, form)
            else:
                await _change(connection, contact_id, do, typed)
    except InvalidInput as refused:
        return await _page(house, request, session, notice=str(refused), typed=typed)
    return RedirectResponse(LEADS_TO[do].format(contact_id), status_code=303)


async def _change(connection: Connection, contact_id: str, do: str, typed: Mapping[str, str]) -> None:
    kind, value = typed["type"], typed["value"]
    match do:
        case "rename":
            await contacts.rename_contact(connection, contact_id, typed["name"], surface="console")
        case "remove":
            await contacts.remove_contact(connection, contact_id, surface="console")
        case "remove_address":
            await contacts.remove_address(connection, contact_id, kind, value, surface="console")
        case _:
            primary = typed["primary"] == "yes"
            await contacts.add_address(connection, contact_id, kind, value, primary=primary, surface="console")


def _typed(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: fields.get(name, "") for name in ("type", "value", "primary", "name")}


async def _add_and_send(house: House, connection: Connection, contact_id: str, form: Mapping[str, str]) -> None:
    """Add the entry and approve exactly the revisions the form was made for, in one transaction."""
    kind, shown = form.get("type", ""), set(form.get("shown", "").split())
    waiting = await contacts_shown.without_address(connection, contact_id)
    meant = [row for row in waiting if row["channel"] == kind and f"{row['id']}:{row['revision']}" in shown]
    if not shown or len(meant) != len(shown):
        raise InvalidInput(MOVED, LOOK_AGAIN)
    by = await owner_id(connection)
    value = form.get("value", "")
    entry = await contacts.add_address(connection, contact_id, kind, value, primary=True, surface="console")
    for row in sorted(meant, key=lambda one: UUID(one["notification_id"])):  # the order of locks everywhere
        await _send(house, connection, row, by, entry)


async def _send(house: House, connection: Connection, row: Record, by: str, entry: str) -> None:
    """Bind the question to the entry just added, and approve it."""
    judged = await evaluate(connection, row["notification_id"], lock=True)
    if not isinstance(judged, Evaluation) or judged.target.entry_id != entry:
        raise InvalidInput(MOVED, LOOK_AGAIN)
    lasts, kept = house.context.settings.approval_ttl, tool_args(judged.envelope, judged.row["whom"])
    sha, word = judged.action.content_sha, Why("owner", None, surface="console", contact=by)
    bound = Revision(row["id"], row["revision"], sha, kept, lasts, event="identifier_added")
    revision = await pending_actions.revise(connection, bound, word)
    if revision is None:
        raise InvalidInput(MOVED, LOOK_AGAIN)
    outcome = await apply(connection, OwnerDecision(row["id"], True, by, "console", lasts, revision=revision))  # noqa: FBT003
    if outcome.code != "approved":
        raise InvalidInput(outcome.text, "Nothing was added and nothing was sent.")


async def _people(
    house: House, request: Request, session: Session, *, typed: Mapping[str, str], notice: str = ""
) -> Response:
    async with house.context.db.work() as connection:
        people = await contacts_shown.people(connection)
    kept = {name: typed.get(name, "") for name in ("name", *CHANNELS)}
    values = {"people": people, "typed": kept, "notice": notice}
    return await page(house, request, session, "contacts.html", status=409 if notice else 200, **values)


async def _page(
    house: House, request: Request, session: Session, *, typed: Mapping[str, str], notice: str = ""
) -> Response:
    contact_id = demand_id(request)
    async with house.context.db.work() as connection:
        person = await contacts_shown.person(connection, contact_id)
        groups = await contacts_shown.groups(connection, contact_id)
    if person is None:
        raise HTTPException(404)
    values = {"person": person, "groups": groups, "notice": notice, "typed": typed}
    return await page(house, request, session, "contact.html", status=409 if notice else 200, **values)
