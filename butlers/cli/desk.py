"""desk: what stands on your own screen; `mcp` alone needs neither database nor fleet."""

import asyncio
import json
import os
import secrets
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from butlers.cli.options import HomeOption
from butlers.cli.terminal import answer_to, as_owner, remark, say, settings_of
from shared.errors import Misconfigured

if TYPE_CHECKING:
    from butlers.desk.desktop import Notifier

app = typer.Typer(no_args_is_help=True, help="Popups and notifications on your own screen.")
KEPT: Final = "desk.json"
FOLDER: Final = Path.home() / ".config" / "butlers"
OPEN_WAY: Final = (
    "This address begins with http: whoever is on the way can read your questions and take this desk's token. "
    "Use https."
)
FolderOption = Annotated[Path, typer.Option("--folder", help="Where this desk keeps its tokens.")]


def add_to(line: typer.Typer) -> None:
    """Add the group to the command line."""
    line.add_typer(app, name="desk")


@app.callback()
def _group() -> None:
    """Show popups and notifications on your own screen."""


@app.command()
def mcp(
    http: Annotated[int | None, typer.Option("--http", help="Serve HTTP on this port of 127.0.0.1, by token.")] = None,
    history_limit: Annotated[int, typer.Option(min=0, max=50, help="Show so many exchanges of before.")] = 5,
    folder: FolderOption = FOLDER,
) -> None:
    """Serve the tool `notify` on standard input and output (MCP over stdio), until the client closes it."""
    from butlers.desk import server  # noqa: PLC0415  # help should not wait for a server

    if http is None:
        return asyncio.run(server.on_a_pipe(notifier(), history_limit))
    kept = folder / "mcp-token"
    token = server.token_in(kept)
    remark(f"Serving http://{server.HOST}:{http}/mcp; the token is in {kept}.")
    return asyncio.run(server.over_http(notifier(), history_limit, http, token))


@app.command()
def pair(home_folder: HomeOption = None) -> None:
    """Print what to run on the computer with your screen, and the code it asks for, good once within ten minutes."""
    from butlers.cli.sign_in import console_url  # noqa: PLC0415  # a desk has no database
    from butlers.console.storage.sessions import LINK_LASTS, make_desk_code  # noqa: PLC0415  # the same

    settings, code = settings_of(None, home_folder), secrets.token_hex(16)

    async def offer() -> str:
        where = await console_url(settings)
        async with as_owner(settings) as connection:
            await make_desk_code(connection, code)
        return where

    where = asyncio.run(offer())
    remark(f"Run this on the computer with your screen, within {LINK_LASTS // timedelta(minutes=1)} minutes:")
    say(f"butlers desk sign-in {where}")
    # INVARIANT: no command line holds the code, since every user of that computer can read those.
    remark("It asks for this code:")
    say(code)
    if not settings.public_url:
        remark("This address works on this computer only; for another one set BUTLERS_PUBLIC_URL.")


@app.command("sign-in")
def sign_in(
    url: Annotated[str, typer.Argument(help="The console's address.")],
    folder: FolderOption = FOLDER,
) -> None:
    """Sign this desk in at the console; ask for the code that `butlers desk pair` printed, or read it from a pipe."""
    from butlers.desk.console import Console, is_private  # noqa: PLC0415  # help should not wait for it

    if not is_private(url):
        remark(OPEN_WAY)
    code = answer_to("The code that `butlers desk pair` printed:", secret=True)
    found = asyncio.run(Console(url).sign_in(sys.stdin.readline().strip() if code is None else code))
    _keep(folder / KEPT, json.dumps({"console": url, "token": found.token, "users": sorted(found.users)}))
    say("Signed in. Start it with `butlers desk run`, or have it started with `butlers desk install`.")


def _keep(file: Path, text: str) -> None:
    """Write a file that is its user's alone, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as made:
        made.write(text)
    draft.replace(file)


@app.command()
def run(folder: FolderOption = FOLDER) -> None:
    """Show the open questions on this screen, until it is stopped."""
    if sys.platform == "linux" and find_spec("dbus_fast") is None:
        raise Misconfigured("The desk needs the extra `desktop`.", "Run `pip install 'butlers[desktop]'`.")
    from butlers.desk.console import Console  # noqa: PLC0415  # help should not wait for it
    from butlers.desk.run import follow  # noqa: PLC0415  # the same

    try:
        kept = json.loads((folder / KEPT).read_text(encoding="utf-8"))
        console = Console(str(kept["console"]), str(kept["token"]), frozenset(map(int, kept["users"])))
    except FileNotFoundError:
        raise Misconfigured("This desk is not signed in.", "Run `butlers desk pair` where your butlers are.") from None
    except (ValueError, KeyError, TypeError):
        raise Misconfigured(f"{folder / KEPT} is damaged.", "Remove it, and sign in again.") from None
    remark(f"Following the questions at {console.url}.")
    asyncio.run(follow(console, notifier(), remark))


@app.command()
def install(folder: FolderOption = FOLDER) -> None:
    """Have the desk started whenever you sign in to this computer, by a file; say which."""
    from butlers.desk import autostart  # noqa: PLC0415  # help should not wait for it

    command = [sys.executable, "-m", "butlers.cli", "desk", "run", "--folder", str(folder.absolute())]
    written = autostart.write_autostart(sys.platform, Path.home(), command)
    say(f"Wrote {written.file}. Start it now: {written.start}")


def notifier() -> "Notifier":
    """Return the way this system shows notifications."""
    from butlers.desk.dbus import Dbus  # noqa: PLC0415  # loads what only a desk needs
    from butlers.desk.desktop import Plain  # noqa: PLC0415  # the same

    return Dbus() if sys.platform == "linux" else Plain()
