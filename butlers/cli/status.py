"""status: which daemons there are and whether they answer, what has to wait, and the brakes that are on."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

import typer

from butlers import fleet
from butlers.cli import brake
from butlers.cli.client import exchange, own_url
from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, instant, say, say_json, settings_of, table
from butlers.daemon import discovery
from shared.config.settings import Settings
from shared.db.pool import Record
from shared.errors import Unavailable
from shared.storage import brakes

LOOKS_SECONDS = 2.0
READY = 200


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command()(status)


def status(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Ask each daemon whether it is ready, and show paused channels and the brakes that are on."""
    settings = settings_of(None, home_folder)

    async def read() -> tuple[list[dict[str, object]], list[Record], list[Record]]:
        async with as_owner(settings) as connection:
            rows = await discovery.daemons(connection)
            waits = await discovery.held_up(connection)
            on = await brakes.standing(connection)
        return await _asked(_known(settings, rows)), waits, on

    daemons, waits, on = asyncio.run(read())
    if as_json:
        say_json({"daemons": daemons, "waiting": [dict(row) for row in waits], "brakes": [dict(row) for row in on]})
        return
    cells = [[d["name"], d["kind"], d["url"], d["state"], _last(d), _why(d)] for d in daemons]
    table(("name", "kind", "url", "state", "last seen", "why"), cells)
    if waits:
        table(("waits", "why", "until"), [[w["what"], w["why"], _seen(w["until"])] for w in waits])
    for one in on:
        say(f"The brake is on: {brake.held(one)}. `butlers brake off` lifts it.")


def _known(settings: Settings, rows: Sequence[Record]) -> list[dict[str, object]]:
    """Return the daemons that are registered, and those of the house and the fleet that are not."""
    known = _registered(rows)
    named = {row["name"] for row in rows}
    for name in (*fleet.SERVICES, *(entry.name for entry in fleet.load(settings.fleet, settings.home))):
        if name not in named:
            sandbox = settings.sandbox_url if name == "sandbox" else None
            kind = "sandbox" if name == "sandbox" else discovery.kind_of(name)
            url = sandbox or own_url(settings, name)
            known.append({"name": name, "kind": kind, "url": url, "last_seen_at": None})
    return known


def _registered(rows: Sequence[Record]) -> list[dict[str, object]]:
    return [{key: row[key] for key in ("name", "kind", "url", "last_seen_at")} for row in rows]


async def remarks(rows: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what registered daemons say that they cannot do, each with its daemon's name."""
    found = await _asked(_registered(rows))
    return [(str(one["name"]), said) for one in found for said in _listed(one["remarks"])]


async def _asked(known: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Ask all at once, and leave out a sandbox that is not there: where all is live nobody needs it."""
    states = await asyncio.gather(*(_state(str(one["url"])) for one in known))
    asked = [one | {"port": _port(str(one["url"]))} | state for one, state in zip(known, states, strict=True)]
    return [one for one in asked if one["name"] != "sandbox" or one["state"] != "down"]


async def _state(url: str) -> dict[str, object]:
    """Return what a daemon says of itself: ready, not ready and why, what it remarks, or nothing, which is down."""
    try:
        answer = await exchange(f"{url}/readyz", is_checked=False, seconds=LOOKS_SECONDS)
    except Unavailable:
        return {"state": "down", "ready": False, "troubles": [], "remarks": []}
    ready = answer.status == READY
    said = {key: _listed(answer.told.get(key)) for key in ("troubles", "remarks")}
    return {"state": "ready" if ready else "not ready", "ready": ready, **said}


def _listed(said: object) -> list[str]:
    return [str(one) for one in said] if isinstance(said, list) else []


def _seen(at: object) -> str:
    return instant(at, "seconds") if isinstance(at, datetime) else "never"


def _last(daemon: dict[str, object]) -> str:
    """Return when a daemon was last seen: by its row, or now where it keeps none and answers."""
    return "now" if daemon["last_seen_at"] is None and daemon["ready"] else _seen(daemon["last_seen_at"])


def _why(daemon: dict[str, object]) -> str:
    return " ".join((*_listed(daemon["troubles"]), *_listed(daemon["remarks"])))


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
