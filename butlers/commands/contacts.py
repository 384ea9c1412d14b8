"""contacts list, show, add, set: who is who; only the owner writes it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from butlers.commands.desk import as_owner, say, say_json, settings_of, table
from shared import identity
from shared.errors import InvalidInput

app = typer.Typer(help="Contacts and their identifiers.", no_args_is_help=True)
HomeOption = Annotated[Path | None, typer.Option("--home")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


async def _all(home_folder: Path | None) -> list[dict[str, object]]:
    async with as_owner(settings_of(None, home_folder)) as connection:
        return [dict(row) for row in await identity.list_contacts(connection)]


def _entries(contact: dict[str, object]) -> str:
    entries = contact["entries"]
    assert isinstance(entries, list)  # noqa: S101  # jsonb_agg
    return ", ".join(f"{e['type']} {e['value']}{' *' if e['is_primary'] else ''}" for e in entries)


@app.command("list")
def list_all(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Every contact."""
    found = asyncio.run(_all(home_folder))
    if as_json:
        say_json({"contacts": found})
        return
    table(
        ("id", "name", "roles", "identifiers (* primary)"),
        [[c["id"], c["name"], ",".join(c["roles"]), _entries(c)] for c in found],  # type: ignore[arg-type]
    )


@app.command()
def show(
    contact_id: Annotated[str, typer.Argument()],
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """One contact."""
    found = [c for c in asyncio.run(_all(home_folder)) if str(c["id"]).startswith(contact_id)]
    if len(found) != 1:
        raise InvalidInput(f"No single contact has the id `{contact_id}`.", "See `butlers contacts list`.")
    if as_json:
        say_json(found[0])
        return
    for key in ("id", "name", "roles", "preferred_channel"):
        say(f"{key}: {found[0][key]}")
    say(f"identifiers: {_entries(found[0])}")


@app.command()
def add(
    name: Annotated[str, typer.Argument()],
    telegram: Annotated[str | None, typer.Option("--telegram", help="Chat id or @username.")] = None,
    email: Annotated[str | None, typer.Option("--email")] = None,
    role: Annotated[str | None, typer.Option("--role", help="owner, for yourself.")] = None,
    home_folder: HomeOption = None,
) -> None:
    """Add a contact; prints its id."""
    if role not in {None, "owner"}:
        raise InvalidInput(f"There is no role `{role}`.", "The only role is owner.")

    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact_id = await identity.add_contact(connection, name, [role] if role else [])
            for kind, value in (("telegram", telegram), ("email", email)):
                if value:
                    await identity.set_identifier(connection, contact_id, kind, value)
            return contact_id

    say(asyncio.run(write()))


@app.command("set")
def set_identifier(
    contact_id: Annotated[str, typer.Argument()],
    telegram: Annotated[str | None, typer.Option("--telegram")] = None,
    email: Annotated[str | None, typer.Option("--email")] = None,
    primary: Annotated[bool, typer.Option("--primary")] = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Put an identifier on a contact."""
    given = {"telegram": telegram, "email": email}
    if not any(given.values()):
        raise InvalidInput("Nothing was given to set.", "Give --telegram or --email.")

    async def write() -> None:
        async with as_owner(settings_of(None, home_folder)) as connection:
            for kind, value in given.items():
                if value:
                    await identity.set_identifier(connection, contact_id, kind, value, primary=primary)

    asyncio.run(write())
    say("Done.")
