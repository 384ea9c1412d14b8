"""status: which daemons there are, and which channels and chats have to wait."""

import asyncio
from urllib.parse import urlsplit

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.session import as_owner, say_json, settings_of, table
from butlers.daemon import discovery
from butlers.daemon.sockets import OFFSETS
from shared.config.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command()(status)


def status(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show daemons and paused channels."""
    settings = settings_of(None, home_folder)

    async def read() -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        async with as_owner(settings) as connection:
            rows = await discovery.daemons(connection)
            waits = await discovery.held_up(connection)
        daemons = [dict(row) | {"port": _port(row["url"])} for row in rows]
        return daemons, [dict(row) | {name: row[name].isoformat() for name in ("since", "until")} for row in waits]

    daemons, waits = asyncio.run(read())
    sandbox = _sandbox(settings)
    daemons += [sandbox] if sandbox else []
    if as_json:
        say_json({"daemons": daemons, "waiting": waits})
        return
    table(("name", "kind", "url", "ready"), [[d["name"], d["kind"], d["url"], d["ready"]] for d in daemons])
    if waits:
        table(("waits", "why", "until"), [[w["what"], w["why"], w["until"]] for w in waits])


def _sandbox(settings: Settings) -> dict[str, object] | None:
    """Ask the sandbox itself, as it keeps no row; None if it does not answer."""
    from urllib.error import URLError  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415

    url = settings.sandbox_url or f"http://127.0.0.1:{settings.port_base + OFFSETS['sandbox']}"
    try:
        with urlopen(f"{url}/healthz", timeout=2) as answer:  # noqa: S310  # http(s), checked by the settings
            ready = answer.status == 200  # noqa: PLR2004
    except (URLError, OSError):
        return None
    return {"name": "sandbox", "kind": "sandbox", "url": url, "ready": ready, "port": _port(url)}


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
