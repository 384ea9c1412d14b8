"""backup, restore: the whole house in one file, and a house made from it, which sends nothing unseen."""

import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.brake import AHEAD
from butlers.cli.options import HomeOption
from butlers.cli.terminal import say, settings_of
from butlers.setup import backup as archive
from shared.config.settings import Settings
from shared.db.dsn import admin_dsn, is_embedded, place_of
from shared.errors import Misconfigured
from shared.home_folder import is_installed
from shared.postgres import server

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def add_to(app: typer.Typer) -> None:
    """Put these commands on the command line."""
    for command in (backup, restore):
        app.command()(command)


def backup(file: FileArgument, home_folder: HomeOption = None) -> None:
    """Write keys, settings and the embedded database to one file, also while everything runs."""
    settings = settings_of(None, home_folder)
    _demand_embedded(settings)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    archive.make(settings.home, file.resolve(), made_at=made_at, program=version("butlers"))
    say(f"Backed up {settings.home} to {file}. It holds every key and message: keep it as safe as these.")
    if settings.fleet is not None:
        say(f"The fleet in {settings.fleet} is not in it.")


def restore(file: FileArgument, home_folder: HomeOption = None) -> None:
    """Make a home from a backup; nothing is sent to others until you have checked and lifted the brake."""
    settings = settings_of(None, home_folder, makes=True)
    _demand_embedded(settings)
    where = settings.home
    if is_installed(where):
        what, first = ("a running", "Stop it and move") if server.running(where) else ("an", "Move")
        text = f"There is {what} installation in {where}, which a restore never replaces."
        raise Misconfigured(text, f"{first} that folder away first, or choose another with --home.")
    about = archive.put_back(file, where, ahead=AHEAD, now=time.time_ns(), elsewhere=settings.witness)
    say(f"Restored the backup of {about.made_at} to {where}.")
    say("Stop the house it was made of, and start this one with `butlers up`.")
    say("What was sent after that time is not in it: delivery of messages that waited for others becomes unconfirmed,")
    say("what you were asked is asked again, and nothing is sent to others until you have checked rules, brakes,")
    say("contacts and keys, and lifted the brake with `butlers brake off`.")


def _demand_embedded(settings: Settings) -> None:
    """Raise Misconfigured for a database outside the home, which has tools of its own."""
    if not is_embedded(settings):
        where = place_of(admin_dsn(settings))
        raise Misconfigured(
            f"The database {where} is one of your own, and not in the home.",
            "Use pg_dump and pg_restore for it, copy the home beside it, and run `butlers restored` after a restore.",
        )
