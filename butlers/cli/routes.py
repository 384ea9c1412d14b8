"""routes list, add, remove: which butler gets what comes in, where the message itself names none."""

import asyncio
from typing import Annotated

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import (
    as_owner,
    contact_of,
    each,
    instant,
    one_of,
    owner_id,
    say,
    say_json,
    settings_of,
    table,
)
from butlers.daemon import discovery
from butlers.fleet import SERVICES
from shared.channels import CHANNELS
from shared.db.pool import Record
from shared.errors import ButlersError, InvalidInput
from shared.storage import contacts, routing_rules, turns
from shared.storage.routing_rules import NOBODY, NewRoute

app = typer.Typer(help="Which butler gets the messages that come in.", no_args_is_help=True)


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="routes")


@app.command("list")
def list_routes(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the rules in the order in which they count: the first that fits decides."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await routing_rules.routes(connection)

    rows = asyncio.run(read())
    if as_json:
        say_json({"routes": [dict(row) for row in rows]})
        return
    cells = [
        (
            row["id"][:SHORT],
            row["butler"] or NOBODY,
            *(row[name] or "any" for name in ("channel", "sender", "contact", "words")),
            "yes" if row["may_ask"] else "no",
            instant(row["made_at"]),
        )
        for row in rows
    ]
    nothing = "There are no rules: what names no butler goes to the default one."
    table(("id", "to", "channel", "from", "contact", "words", "may ask", "since"), cells, nothing)


@app.command("add")
def add_one(
    butler: Annotated[str, typer.Argument(help=f"The butler's name, or `{NOBODY}` to block the sender.")],
    channel: Annotated[str | None, typer.Option("--channel", help=f"Only {' or '.join(CHANNELS)}.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Only from this address.")] = None,
    words: Annotated[str | None, typer.Option("--words", help="Only messages that contain these words.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="Only from whoever wrote this message: its id, or its beginning.")
    ] = None,
    home_folder: HomeOption = None,
) -> None:
    """Add a rule for messages that come in; prints its id. What has been routed stays where it went."""

    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            if butler in SERVICES:
                raise InvalidInput(f"`{butler}` is no butler.", f"Give a butler's name, or `{NOBODY}`.")
            named = None if butler == NOBODY else await discovery.demand_known(connection, butler)
            if message is not None and (channel or sender):
                raise InvalidInput("A message says its channel and sender.", "Leave out --channel and --from.")
            where = (channel, sender) if message is None else await turns.written_by(connection, message)
            new = NewRoute(named, *where, words)
            return await routing_rules.add_route(connection, new, await owner_id(connection))

    say(asyncio.run(write()))


@app.command("allow")
def allow(
    butler: Annotated[str, typer.Argument(help="The butler's name.")],
    contact: Annotated[str, typer.Argument(metavar="CONTACT", help="The name or the id, or the beginning of one.")],
    home_folder: HomeOption = None,
) -> None:
    """Let what a contact writes in a private chat begin work of a butler; prints the rule's id."""

    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            who = str(contact_of(await contacts.list_contacts(connection), contact)["id"])
            named = await discovery.demand_known(connection, butler)
            new = NewRoute(named, contact_id=who, may_ask=True)
            return await routing_rules.add_route(connection, new, await owner_id(connection))

    say(asyncio.run(write()))


@app.command("remove")
def remove(
    route_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, or what they begin with.")],
    home_folder: HomeOption = None,
) -> None:
    """Remove a rule, or several; what was routed by it stays where it went."""
    each(route_ids, lambda one: _remove(one, home_folder))


def _remove(beginning: str, home_folder: HomeOption) -> None:
    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = one_of(await routing_rules.routes(connection), beginning, "route")
            if not await routing_rules.remove_route(connection, row["id"], await owner_id(connection)):
                raise ButlersError("The rule was removed already.", "See `butlers routes list`.")
            return str(row["id"])[:SHORT]

    say(f"Removed {asyncio.run(write())}.")
