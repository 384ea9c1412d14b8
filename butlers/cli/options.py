"""The options that many commands take, and how much of an id they print."""

from pathlib import Path
from typing import Annotated, Final

import typer

FleetOption = Annotated[Path | None, typer.Option("--fleet", help="The folder that holds one folder per butler.")]
HomeOption = Annotated[Path | None, typer.Option("--home", help="Where data and keys are stored (BUTLERS_HOME).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Output JSON.")]
# How many characters are printed of an id; a person may give an id by its beginning.
SHORT: Final = 8
