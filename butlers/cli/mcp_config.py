"""mcp-config: the configuration by which an MCP client reaches one butler."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from butlers.cli.client import demand_butler, mint, url_of
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.terminal import remark, say, say_json, settings_of
from butlers.daemon.sockets import at_port
from shared.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a butler is, and by which token it is reached."""

    name: str
    url: str
    bearer: str

    @property
    def server(self) -> dict[str, object]:
        """What most clients read of a server that is reached over HTTP."""
        return {"type": "http", "url": self.url, "headers": {"Authorization": f"Bearer {self.bearer}"}}


@dataclass(frozen=True, slots=True)
class Client:
    """What a client reads: where a person puts it, and how it is printed."""

    put: str
    show: Callable[[Reached], None]


def _project(one: Reached) -> None:
    """Print a file, since every user of the computer can read the arguments of a command that adds the server."""
    say_json({"mcpServers": {one.name: one.server}})


def _desktop(one: Reached) -> None:
    """Print a program that the client starts and that passes everything on: its file knows no server over HTTP.

    The token's header is a variable, as some versions tear arguments apart at spaces.
    """
    args = [
        "-y",
        "mcp-remote",
        one.url,
        "--transport",
        "http-only",
        "--header",
        "Authorization:${BUTLERS_AUTHORIZATION}",
    ]
    # It takes unencrypted HTTP to this computer alone unless it is told that the network is trusted.
    args += ["--allow-http"] if one.url.startswith("http://") else []
    env = {"BUTLERS_AUTHORIZATION": f"Bearer {one.bearer}"}
    say_json({"mcpServers": {one.name: {"command": "npx", "args": args, "env": env}}})


def _editor(one: Reached) -> None:
    say_json({"servers": {one.name: one.server}})


def _codex(one: Reached) -> None:
    """Print a table in TOML, whose strings in quotation marks are those of JSON."""
    say(f"[mcp_servers.{one.name}]")
    say(f"url = {json.dumps(one.url)}")
    say(f"http_headers = {{ Authorization = {json.dumps(f'Bearer {one.bearer}')} }}")


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client("Put this into .mcp.json in the folder of your project.", _project),
    "claude-desktop": Client("Put this into claude_desktop_config.json; it needs Node.js.", _desktop),
    "vscode": Client("Put this into .vscode/mcp.json.", _editor),
    "codex": Client("Put this into ~/.codex/config.toml.", _codex),
}

KEEP: Final = "It holds a token for thirty days: let nobody else read that file (`chmod 600`), or get a copy of it."


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command("mcp-config")(mcp_config)


def mcp_config(
    name: Annotated[str, typer.Argument(help="The butler.")],
    client: Annotated[str | None, typer.Option("--for", help=f"What this one reads: {', '.join(CLIENTS)}.")] = None,
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Print the MCP client configuration for one butler; by default what `.mcp.json` holds."""
    if client is not None and client not in CLIENTS:
        raise InvalidInput(f"Unknown client `{client}`.", f"Choose from: {', '.join(CLIENTS)}; or leave --for out.")
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)

    async def gather() -> Reached:
        url = await url_of(settings, name)
        if settings.agents_url and (port := urlsplit(url).port):
            url = at_port(settings.agents_url, port)
        return Reached(name, f"{url}/mcp", await mint(settings, name, timedelta(days=30)))

    reached = asyncio.run(gather())
    if client is None:
        _project(reached)
        return
    remark(f"{CLIENTS[client].put} {KEEP}")
    CLIENTS[client].show(reached)
