"""manictime: the timekeeper's tools on their own, for a client that starts them, without database and fleet."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="What you did at the computer, from ManicTime's record.")


def add_to(line: typer.Typer) -> None:
    """Add the group to the command line."""
    line.add_typer(app, name="manictime")


@app.callback()
def _group() -> None:
    """Tell what you did at the computer, from ManicTime's record."""


@app.command()
def mcp(
    data: Annotated[Path | None, typer.Option("--data", help="The folder that holds ManicTimeReports.db.")] = None,
    screenshots: Annotated[Path | None, typer.Option("--screenshots", help="The folder of the screenshots.")] = None,
    root: Annotated[list[Path] | None, typer.Option("--root", help="A folder to save screenshots into.")] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="The time zone of the recorded clock.")] = None,
) -> None:
    """Serve the tools on standard input and output (MCP over stdio), until the client closes it."""
    # Imported here, since help should not wait for a server.
    from pydantic import ValidationError  # noqa: PLC0415

    from butlers.daemon.mcp_server import over_stdio  # noqa: PLC0415
    from butlers.modules.manictime import ManicTime, components, desk_of  # noqa: PLC0415
    from shared.errors import InvalidInput  # noqa: PLC0415

    try:
        config = ManicTime(data=data, screenshots=screenshots, roots=root or [], timezone=timezone)
    except ValidationError:
        raise InvalidInput("There is no such time zone.", "Name it as in Europe/Vienna.") from None
    parts = components(desk_of(config))
    asyncio.run(over_stdio("timekeeper", "Read manictime://guide first.", parts))
