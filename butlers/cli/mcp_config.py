"""mcp-config: the configuration by which an MCP client reaches one butler."""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from butlers.cli.client import demand_butler, mint, url_of
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.session import say_json, settings_of


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command("mcp-config")(mcp_config)


def mcp_config(
    name: Annotated[str, typer.Argument(help="The butler.")],
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Print the MCP client configuration for one butler."""
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)

    async def gather() -> tuple[str, str]:
        url = await url_of(settings, name)
        return url, await mint(settings, name, timedelta(days=30))

    url, bearer = asyncio.run(gather())
    server = {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {bearer}"}}
    say_json({"mcpServers": {name: server}})
