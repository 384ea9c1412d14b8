"""brake on, off, status: the owner's "stop, for now"."""

import asyncio
import sys
from datetime import UTC
from typing import Annotated, Final

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import as_owner, contact_of, instant, one_of, owner_id, say, say_json, settings_of, table
from butlers.daemon import discovery
from shared.channels import CHANNELS
from shared.config.settings import Settings, stated_duration
from shared.db import witness
from shared.db.dsn import is_embedded
from shared.db.pool import Connection, Record
from shared.db.witness import Seen
from shared.display.brakes import held_back
from shared.errors import ButlersError, InvalidInput
from shared.postgres import server
from shared.storage import brakes, contacts
from shared.storage import restored as put_back
from shared.storage.brakes import Scope

app = typer.Typer(help="Pause sending until you lift the brake.", no_args_is_help=True)
# As far as the beat can have moved in three hundred years.
AHEAD: Final = 10**10
ALL: Final = "all"
OwnerTooOption = Annotated[bool, typer.Option("--owner-too", help="Also hold messages to you.")]
ButlerOption = Annotated[str | None, typer.Option("--butler", help="Only this butler.")]
ContactOption = Annotated[str | None, typer.Option("--contact", help="Only this contact.")]
ChannelOption = Annotated[str | None, typer.Option("--channel", help=f"Only {' or '.join(CHANNELS)}.")]


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.command()(restored)
    line.add_typer(app, name="brake")


async def _scope(connection: Connection, butler: str | None, contact: str | None, channel: str | None) -> Scope:
    if channel is not None and channel not in CHANNELS:
        raise InvalidInput(f"Unknown channel `{channel}`.", f"Choose from: {', '.join(CHANNELS)}.")
    known = contact_of(await contacts.list_contacts(connection), contact)["id"] if contact is not None else None
    return Scope(await discovery.demand_known(connection, butler), known, channel)


@app.command()
def on(
    butler: ButlerOption = None,
    contact: ContactOption = None,
    channel: ChannelOption = None,
    lasts: Annotated[str | None, typer.Option("--for", help="Lift automatically after this time, such as 2h.")] = None,
    owner_too: OwnerTooOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Put the brake on: messages wait, but you still receive approval requests."""
    length = None if lasts is None else stated_duration(lasts)

    async def write() -> Record:
        async with as_owner(settings_of(None, home_folder)) as connection:
            scope = await _scope(connection, butler, contact, channel)
            by = await owner_id(connection)
            made = await brakes.put_on(connection, scope, by, lasts=length, owner_too=owner_too)
            return one_of(await brakes.standing(connection), made, "brake")

    row = asyncio.run(write())
    until = f" for {lasts}, until {instant(row['until'], 'seconds')}" if row["until"] else ""
    say(f"The brake {row['id'][:SHORT]} is on{until}.")


@app.command()
def off(
    brake: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one; a beginning is enough.")] = None,
    butler: ButlerOption = None,
    contact: ContactOption = None,
    channel: ChannelOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every brake that is on.")] = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Lift the brake; where several are on, say which. Waiting messages are sent."""
    settings, narrowed = settings_of(None, home_folder), bool(butler or contact or channel)
    if not (brake or narrowed or every) and len(on_now := asyncio.run(_standing(settings))) > 1:
        brake = _which(on_now)

    async def write() -> list[str]:
        async with as_owner(settings) as connection:
            by = await owner_id(connection)
            if brake is None or brake == ALL:
                return await brakes.lift(connection, await _scope(connection, butler, contact, channel), by)
            found = [row["id"] for row in await brakes.standing(connection) if row["id"].startswith(brake.lower())]
            if len(found) > 1:
                raise InvalidInput(f"{len(found)} brakes have an id that begins with {brake}.", "Give more of it.")
            return [one for one in found if await brakes.lift_one(connection, one, by)]

    lifted = asyncio.run(write())
    if not lifted:
        raise ButlersError("No such brake is on.", "See `butlers brake status`.")
    count = "Lifted" if len(lifted) == 1 else f"{len(lifted)} lifted"
    say(f"{count}. Waiting messages that no other brake holds are sent.")


def _which(rows: list[Record]) -> str:
    """Ask which of several brakes is meant, or say so where nobody can answer; return the beginning of its id."""
    ids = [row["id"][:SHORT] for row in rows]
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        these = "; ".join(f"{short}: {held(row)}" for short, row in zip(ids, rows, strict=True))
        raise InvalidInput(
            f"{len(rows)} brakes are on ({these}).", "Name one with `butlers brake off ID`, or lift them with `--all`."
        )
    _show(rows)
    return str(typer.prompt(f"Which one? Its id, or {ALL}"))


def held(row: Record) -> str:
    """Return which messages a brake holds back, and since when."""
    why = ", as a backup was restored" if row["reason"] == "restored" else ""
    since = row["made_at"].astimezone(UTC)
    return f"{held_back(dict(row))} wait since {since:%Y-%m-%d %H:%M} UTC{why}"


async def _standing(settings: Settings) -> list[Record]:
    async with as_owner(settings) as connection:
        return await brakes.standing(connection)


def restored(home_folder: HomeOption = None) -> None:
    """Report that a backup was restored: nothing is sent to others until you have checked."""
    settings = settings_of(None, home_folder)

    async def write() -> str | None:
        async with as_owner(settings) as connection:
            return await put_back.by_word(connection, await owner_id(connection))

    if is_embedded(settings) and server.running(settings.home) is None:
        # The database is not up: put the witness ahead of whatever rows there are, so that the start finds them behind.
        places = witness.places(settings.home, "messenger", settings.witness)
        seen = witness.furthest(places) or Seen()
        witness.write(places, witness.ahead(seen, AHEAD))
    elif (ended := asyncio.run(write())) is None:
        raise ButlersError("That is already known.", "See `butlers brake status`.")
    else:
        say(ended)
    say("Noted. Delivery of messages waiting for others becomes unconfirmed, and nothing is sent to others until")
    say("you have checked rules, brakes, contacts and keys, and lifted the brake with `butlers brake off`.")


@app.command()
def status(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show the brakes that are on."""
    rows = asyncio.run(_standing(settings_of(None, home_folder)))
    if as_json:
        say_json({"brakes": [dict(row) for row in rows]})
    elif not rows:
        say("No brake is on.")
    else:
        _show(rows)


def _show(rows: list[Record]) -> None:
    cells = [
        [
            r["id"][:SHORT],
            r["butler"] or "all",
            r["contact"] or "all",
            r["channel"] or "both",
            "yes" if r["owner_too"] else "no",
            instant(r["until"], "seconds") if r["until"] else "lifted",
            "a backup was restored" if r["reason"] == "restored" else "",
        ]
        for r in rows
    ]
    table(("id", "butler", "contact", "channel", "owner too", "until", "why"), cells)
