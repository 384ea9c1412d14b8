"""config: what the environment says."""

import typer

from butlers.cli.options import HomeOption
from butlers.cli.terminal import say, settings_of
from shared.config.settings import dump

app = typer.Typer(help="Show the settings.", no_args_is_help=True)


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="config")


@app.callback()
def _() -> None:
    """Keep `dump` a word of its own while it is the only one."""


@app.command("dump")
def config_dump(home_folder: HomeOption = None) -> None:
    """Print every setting; secrets are masked."""
    for name, value in dump(settings_of(None, home_folder, makes=True)).items():
        say(f"{name}={value}")
