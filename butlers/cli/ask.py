"""ask: one prompt to a butler from the terminal, and the words of its session as they come."""

import asyncio
import sys
import time
from typing import Annotated, Final
from uuid import uuid4

import typer

from butlers import fleet
from butlers.cli.client import demand_butler
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.terminal import as_login, complain, remark, say_lines, settings_of, text_of
from butlers.daemon import discovery
from shared.auth import keystore
from shared.config.settings import Settings
from shared.db.pool import Connection, Record
from shared.display.visible import quoted
from shared.errors import InvalidInput, Unavailable
from shared.storage import session_list, sessions

LOOKS_SECONDS: Final = 0.2
# After so long without a beginning a person is told what it waits for.
PATIENT_SECONDS: Final = 3.0


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command()(ask)


def ask(
    name: Annotated[str, typer.Argument(help="The butler.")],
    prompt: Annotated[str, typer.Argument(help="What it is asked; `-` reads it from standard input.")],
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Ask a butler something, and print its words; Ctrl-C stops its session."""
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)
    entry = next((one for one in fleet.load(settings.fleet, settings.home) if one.name == name), None)
    if entry is None or entry.runtime is None:
        raise InvalidInput(f"Nothing thinks for `{name}` here.", "Give it a table [runtime] in its butler.toml.")
    status, outcome = asyncio.run(_asked(settings, name, text_of(prompt)))
    if status != "done":
        complain(f"{session_list.STATES[status]}. {outcome}")
        raise typer.Exit(1)


async def _asked(settings: Settings, name: str, prompt: str) -> tuple[str, str]:
    """Put the prompt into the queue, print what is said until the session ends, and return how it ended."""
    session_id = str(uuid4())
    async with as_login(settings, keystore.OWNER) as connection:
        if not await discovery.is_up(connection, name):
            raise Unavailable(f"{name} is not running.", "Start it with `butlers up`.")
        await sessions.enqueue(connection, session_id=session_id, butler=name, cause="ask", prompt=prompt)
        try:
            row = await _followed(connection, session_id)
        except (KeyboardInterrupt, asyncio.CancelledError):
            await sessions.ask_to_stop(connection, session_id)
            raise
    if row["status"] == "done" and not row["said"]:
        _print(str(row["outcome"] or ""))
    return str(row["status"]), str(row["outcome"] or "")


async def _followed(connection: Connection, session_id: str) -> Record:
    shown, began, patient = 0, time.monotonic(), True
    while True:
        row = await session_list.one(connection, session_id)
        if row is None:
            raise Unavailable("The session is gone.", "Ask again.")
        _print(row["said"][shown:].removeprefix("\n"))
        shown = len(row["said"])
        if row["ended_at"] is not None:
            return row
        if patient and row["began_at"] is None and time.monotonic() - began > PATIENT_SECONDS:
            patient = False
            remark(f"{row['butler']} has other sessions first; this one waits its turn.")
        await asyncio.sleep(LOOKS_SECONDS)


def _print(words: str) -> None:
    """Print an agent's words, each line marked as somebody's."""
    if words:
        say_lines(quoted(words))
        sys.stdout.flush()
