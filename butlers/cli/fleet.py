"""reload, fleet check: take up what the fleet's folders say now, or only check it."""

import asyncio
from collections.abc import Sequence

import typer

from butlers import fleet
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.terminal import complain, say, settings_of
from shared.config.settings import Settings
from shared.errors import Misconfigured, Unavailable

WAIT_SECONDS = 120.0


def add_to(app: typer.Typer) -> None:
    """Put these commands on the command line."""
    app.command()(reload)
    group = typer.Typer(help="Check the folders of your butlers.", no_args_is_help=True)
    group.command()(check)
    app.add_typer(group, name="fleet")


def reload(fleet_folder: FleetOption = None, home_folder: HomeOption = None) -> None:
    """Let the running processes take up new, changed and removed butlers; no call is lost."""
    from butlers.cli import reload as reloading  # noqa: PLC0415

    settings = settings_of(fleet_folder, home_folder)
    checked(settings)
    answers = reloading.ask_processes(settings.home, WAIT_SECONDS)
    if not answers:
        raise Unavailable("No process of this installation runs here.", "Start it with `butlers up`.")
    for number, said in answers:
        say(f"process {number}: {said or f'It has said nothing for {WAIT_SECONDS:.0f} seconds; see its log.'}")
    if any(said is None or said.startswith("Not reloaded") for _, said in answers):
        raise typer.Exit(1)


def check(fleet_folder: FleetOption = None, home_folder: HomeOption = None) -> None:
    """Check every butler.toml without starting anything, and print each mistake."""
    entries = checked(settings_of(fleet_folder, home_folder, makes=True, credentials=False))
    say(f"{len(entries)} butler{'' if len(entries) == 1 else 's'}, no mistake: {', '.join(e.name for e in entries)}.")


def checked(settings: Settings) -> Sequence[fleet.Entry]:
    """Return the fleet; print each mistake in it but the last, and raise that."""
    from butlers.cli import reload as reloading  # noqa: PLC0415

    entries, mistakes = asyncio.run(reloading.survey(settings))
    for one in mistakes[:-1]:
        complain(str(one))
    if mistakes:
        raise Misconfigured(mistakes[-1].message, mistakes[-1].remedy)
    return entries
