"""contacts list, show, add, rename, remove, set, forget: who is who; only the owner writes it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, contact_of, say, say_json, settings_of, table
from shared.addresses import canonical
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.gate.gather import naming
from shared.storage import contacts

app = typer.Typer(help="People your butlers can write to.", no_args_is_help=True)
ContactArgument = Annotated[str, typer.Argument(metavar="CONTACT", help="The name or the id, or the beginning of one.")]
TelegramOption = Annotated[str | None, typer.Option("--telegram", help="Chat id or @username.")]
EmailOption = Annotated[str | None, typer.Option("--email", help="E-mail address.")]


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="contacts")


async def _all(home_folder: Path | None) -> list[dict[str, object]]:
    async with as_owner(settings_of(None, home_folder)) as connection:
        return [dict(row) for row in await contacts.list_contacts(connection)]


def _entries(contact: Mapping[str, object]) -> str:
    entries = contact["entries"]
    assert isinstance(entries, list)  # noqa: S101  # jsonb_agg
    return ", ".join(f"{e['type']} {e['value']}{' *' if e['is_primary'] else ''}" for e in entries)


def _demand_fitting(given: Mapping[str, str | None], *, owner: bool) -> None:
    """Raise InvalidInput in the words of its option for an unfit identifier, before anything is written."""
    for kind, value in given.items():
        form = CHANNELS[kind].address
        try:
            fits = not value or form.is_private(canonical(kind, value)) or not owner
        except InvalidInput as unfit:
            raise InvalidInput(f"--{kind} is not valid: {unfit.message}", unfit.remedy) from None
        if not fits:
            raise InvalidInput(f"--{kind} of the owner is not {form.private}.", "Correct it.")


@app.command("list")
def list_all(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List all contacts."""
    found = asyncio.run(_all(home_folder))
    if as_json:
        say_json({"contacts": found})
        return
    table(
        ("id", "name", "roles", "addresses (* default)"),
        [[c["id"], c["name"], ",".join(c["roles"]), _entries(c)] for c in found],  # type: ignore[arg-type]
    )


@app.command()
def show(
    contact_id: ContactArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one contact."""
    found = contact_of(asyncio.run(_all(home_folder)), contact_id)
    if as_json:
        say_json(found)
        return
    for key in ("id", "name", "roles", "preferred_channel"):
        say(f"{key}: {found[key]}")
    say(f"addresses: {_entries(found)}")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The contact's name.")],
    telegram: TelegramOption = None,
    email: EmailOption = None,
    role: Annotated[str | None, typer.Option("--role", help="`owner` for yourself.")] = None,
    home_folder: HomeOption = None,
) -> None:
    """Add a contact; prints its id."""
    if role not in {None, "owner"}:
        raise InvalidInput(f"Unknown role `{role}`.", "The only role is owner.")
    given = {"telegram": telegram, "email": email}
    _demand_fitting(given, owner=role == "owner")

    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact_id = await contacts.add_contact(connection, name, [role] if role else [])
            for kind, value in given.items():
                if value:
                    await contacts.add_address(connection, contact_id, kind, value)
            return contact_id

    say(asyncio.run(write()))


@app.command()
def rename(
    contact_id: ContactArgument,
    name: Annotated[str, typer.Argument(help="The new name.")],
    home_folder: HomeOption = None,
) -> None:
    """Give a contact another name; addresses, rules and messages stay as they are."""

    async def write() -> str:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact = contact_of(await contacts.list_contacts(connection), contact_id)
            if not await contacts.rename_contact(connection, str(contact["id"]), name):
                raise InvalidInput(f"The name is {contact['name']} already.", "Give another one.")
            return str(contact["name"])

    say(f"Renamed: {asyncio.run(write())} is now {name.strip()}.")


@app.command()
def remove(contact_id: ContactArgument, home_folder: HomeOption = None) -> None:
    """Remove a contact with all addresses; rules, brakes and waiting messages must not name it any more."""

    async def write() -> list[str]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact = contact_of(await contacts.list_contacts(connection), contact_id)
            await contacts.remove_contact(connection, str(contact["id"]))
            named = await _still_named(connection, [one["value"] for one in contact["entries"]])
            return [f"Removed: {contact['name']}.", *named]

    for line in asyncio.run(write()):
        say(line)


@app.command("set")
def set_identifier(
    contact_id: ContactArgument,
    telegram: TelegramOption = None,
    email: EmailOption = None,
    primary: Annotated[bool, typer.Option("--primary", help="Use it from now on.")] = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Add an address to a contact, and say where messages to it go."""
    given = {"telegram": telegram, "email": email}
    if not any(given.values()):
        raise InvalidInput("No address given.", "Give --telegram or --email.")

    async def write() -> list[str]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact = contact_of(await contacts.list_contacts(connection), contact_id)
            _demand_fitting(given, owner="owner" in contact["roles"])
            told = list[str]()
            for kind, value in given.items():
                if value:
                    await contacts.add_address(connection, str(contact["id"]), kind, value, primary=primary)
                    told.append(f"On file: {canonical(kind, value)}. {await _led(connection, contact, kind)}")
            return told

    for line in asyncio.run(write()):
        say(line)


@app.command()
def forget(
    contact_id: ContactArgument,
    telegram: TelegramOption = None,
    email: EmailOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Remove an address from a contact; waiting messages use the next one, or wait for one."""
    given = [(kind, value) for kind, value in (("telegram", telegram), ("email", email)) if value]
    if not given:
        raise InvalidInput("No address given.", "Give --telegram or --email.")

    async def write() -> list[str]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            contact = contact_of(await contacts.list_contacts(connection), contact_id)
            return [line for kind, value in given for line in await _forget(connection, contact, kind, value)]

    for line in asyncio.run(write()):
        say(line)


async def _forget(connection: Connection, contact: Record, kind: str, value: str) -> list[str]:
    """Forget one identifier, and say where messages to this contact go now and which rules name the address still."""
    if not await contacts.remove_address(connection, str(contact["id"]), kind, value):
        raise InvalidInput(f"{contact['name']} has no such {kind} address.", "See `butlers contacts list`.")
    said = f"Removed: {canonical(kind, value)}. {await _led(connection, contact, kind)}"
    return [f"{said} Approvals for it no longer count.", *await _still_named(connection, [canonical(kind, value)])]


async def _led(connection: Connection, contact: Record, kind: str) -> str:
    """Say where messages to this contact go by that channel as things stand."""
    now = await contacts.target_of(connection, contacts.Recipient("contact", str(contact["id"])), kind)
    to = f"now go to {now.address}" if isinstance(now, contacts.Target) else "wait until there is another one"
    return f"Messages to {contact['name']} by {kind} {to}."


async def _still_named(connection: Connection, addresses: list[str]) -> list[str]:
    """Say which rules name addresses that are removed."""
    told = "Rule {0} still names {1}; revoke it with `butlers rules revoke {0}`."
    found = await naming(connection, addresses)
    return [told.format(rule["id"], address) for address, rules in found.items() for rule in rules]
