"""The figures a test measured, for the verdict of the run and for docs that quote them: build/figures/NAME.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "figures"


def keep(name: str, figures: Mapping[str, object]) -> None:
    """Keep these under that name, and of those already there whatever they do not replace."""
    path = FOLDER / f"{name}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    there = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**there, **figures}, indent=1, sort_keys=True) + "\n")
