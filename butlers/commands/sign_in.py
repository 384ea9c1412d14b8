"""sign-in: a fresh link into a console that runs, wherever it runs."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from butlers import directory
from butlers.commands.desk import as_owner, say, say_json, settings_of
from butlers.console.sessions import LINK_LASTS, make_sign_in_link
from shared.config import Settings
from shared.db import Connection
from shared.errors import Unavailable


def add_to(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command("sign-in")(sign_in)


def sign_in(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,  # noqa: FBT002  # typer's way
    home_folder: Annotated[Path | None, typer.Option("--home")] = None,
) -> None:
    """Print a link that signs one browser in to the console: once, within ten minutes."""
    settings = settings_of(None, home_folder)

    async def write() -> str:
        async with as_owner(settings) as connection:
            where = await _console(connection, settings)
            return await make_sign_in_link(connection, where, secrets.token_urlsafe(24))

    link = asyncio.run(write())
    if as_json:
        say_json({"link": link, "seconds": int(LINK_LASTS.total_seconds())})
        return
    say(link)


async def _console(connection: Connection, settings: Settings) -> str:
    """Where the owner's browser finds a console that runs; where BUTLERS_PUBLIC_URL says, if it is set."""
    urls = [row["url"] for row in await directory.daemons(connection) if row["kind"] == "console" and row["ready"]]
    if not urls:
        raise Unavailable("No console is running.", "Start it with `butlers up` or `butlers run console`.")
    return settings.public_url or str(urls[0])
