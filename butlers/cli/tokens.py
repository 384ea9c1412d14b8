"""token, tokens list, revoke: making and ending the tokens that open a butler to a client."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.client import mint
from butlers.cli.options import SHORT, FleetOption, HomeOption, JsonOption
from butlers.cli.terminal import as_owner, each, instant, one_of, say, say_json, settings_of, table
from butlers.daemon import discovery
from shared.config.settings import stated_duration
from shared.db.pool import Record
from shared.errors import ButlersError

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="One id or several, or what they begin with.")]
app = typer.Typer(help="Client tokens.", no_args_is_help=True)


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.command()(token)
    line.add_typer(app, name="tokens")


@app.command("list")
def list_all(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    everything: Annotated[bool, typer.Option("--all", help="Also expired, revoked and brief ones.")] = False,  # noqa: FBT002
    home_folder: HomeOption = None,
) -> None:
    """List valid client tokens, without those of single commands; the tokens themselves are not stored."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return [
                row for row in await discovery.tokens(connection) if everything or (row["counts"] and not row["brief"])
            ]

    rows = asyncio.run(read())
    if as_json:
        say_json({"tokens": [dict(row) for row in rows]})
        return
    times = ("made_at", "expires_at", "revoked_at")
    cells = [
        [
            row["id"][:SHORT],
            row["kind"],
            row["butler"],
            *(instant(row[name], "seconds") if row[name] else "" for name in times),
        ]
        for row in rows
    ]
    table(("id", "kind", "butler", "made", "expires", "revoked"), cells, "No client has a token.")


@app.command()
def revoke(
    token_ids: IdsArgument,
    home_folder: HomeOption = None,
) -> None:
    """Revoke a client token, or several; it stops working within five seconds."""
    each(token_ids, lambda one: _revoke(one, home_folder))


def _revoke(token_id: str, home_folder: Path | None) -> None:

    async def write() -> bool:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = one_of(await discovery.tokens(connection), token_id, "token")
            return await discovery.revoke_token(connection, row["id"])

    if not asyncio.run(write()):
        raise ButlersError("It is already revoked.")
    say("Revoked. It stops working within five seconds.")


def token(
    name: Annotated[str, typer.Argument(help="The butler the token is for.")],
    lasts: Annotated[str, typer.Option("--for", help="How long it is valid, for example 30d.")] = "30d",
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
    notices: Annotated[bool, typer.Option("--notices", help="Its results bring the butler's notices too.")] = False,  # noqa: FBT002
) -> None:
    """Print a new client token for one butler, and nothing else."""
    settings = settings_of(fleet_folder, home_folder)
    say(asyncio.run(mint(settings, name, stated_duration(lasts), notices=notices)))
