"""sign-in: a fresh link into the console, by an address that only the owner sets; and the end of all sessions."""

import asyncio
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from butlers.cli.client import answers_as, own_url
from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, say, say_json, settings_of
from butlers.console.storage.sessions import LINK_LASTS, end_all, make_sign_in_link
from shared.config.settings import Settings
from shared.errors import Unavailable

# Who signed in to this computer, whatever user the process has become since (proc_pid_loginuid(5)).
LOGIN: Final = Path("/proc/self/loginuid")
NOBODY: Final = 2**32 - 1


def add_to(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command("sign-in")(sign_in)


def sign_in(
    everywhere_out: Annotated[bool, typer.Option("--end-all", help="Sign out every browser instead.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Print a one-time link that signs a browser in to the console, valid for ten minutes."""
    settings = settings_of(None, home_folder)
    if everywhere_out:
        ended = asyncio.run(_end_all(settings))
        if as_json:
            say_json({"ended": ended})
        else:
            say(f"Signed out: {ended}. All earlier sessions and links are invalid.")
        return

    async def write() -> str:
        async with as_owner(settings) as connection:
            where = await console_url(settings)
            return await make_sign_in_link(connection, where, secrets.token_urlsafe(24), link_users(settings))

    link = asyncio.run(write())
    if as_json:
        say_json({"link": link, "seconds": int(LINK_LASTS.total_seconds())})
        return
    say(link)


async def _end_all(settings: Settings) -> int:
    async with as_owner(settings) as connection:
        return await end_all(connection)


def link_users(settings: Settings) -> Sequence[int] | None:
    """Return for whose browser a link is: who runs this command, and who signed in to run it as another user.

    None where it is opened elsewhere. INVARIANT: while its page waits for a press, every user of the computer can read
    a link in the browser's title.
    """
    if settings.public_url:
        return None
    try:
        signed_in = int(LOGIN.read_text(encoding="ascii"))
    except (OSError, ValueError):
        signed_in = NOBODY
    return [os.getuid()] if signed_in == NOBODY else [os.getuid(), signed_in]


async def console_url(settings: Settings) -> str:
    """Return BUTLERS_PUBLIC_URL, or else the console's port on this computer.

    Never take an address from a table that a butler or the Switchboard writes: whoever listens there gets the code.
    """
    if settings.public_url:
        return settings.public_url
    url = own_url(settings, "console")
    if not await answers_as("console", url):
        raise Unavailable(
            f"No console is running at {url}.",
            "Start it with `butlers up` or `butlers run console`, or set BUTLERS_PUBLIC_URL to where it is.",
        )
    return url
