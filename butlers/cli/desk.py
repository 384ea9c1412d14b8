"""desk: what stands on your own screen; `mcp` alone needs neither database nor fleet."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from butlers.cli.session import remark

if TYPE_CHECKING:
    from butlers.desk.desktop import Notifier

app = typer.Typer(no_args_is_help=True, help="Popups and notifications on your own screen.")
FOLDER: Final = Path.home() / ".config" / "butlers"
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
    folder: FolderOption = FOLDER,
) -> None:
    """Serve the tool `notify` on standard input and output (MCP over stdio), until the client closes it."""
    from butlers.desk import server  # noqa: PLC0415  # help should not wait for a server

    if http is None:
        return asyncio.run(server.on_a_pipe(notifier()))
    kept = folder / "mcp-token"
    token = server.token_in(kept)
    remark(f"Serving http://{server.HOST}:{http}/mcp; the token is in {kept}.")
    return asyncio.run(server.over_http(notifier(), http, token))


def notifier() -> "Notifier":
    """Return the way this system shows notifications."""
    from butlers.desk.dbus import Dbus  # noqa: PLC0415  # loads what only a desk needs
    from butlers.desk.desktop import Plain  # noqa: PLC0415  # the same

    return Dbus() if sys.platform == "linux" else Plain()
