"""Which port each butler has, counted from the first: noted in BUTLERS_HOME when it first comes, so that none moves.

A butler that is gone keeps its place: who comes after it is never reached by what was meant for it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.errors import Misconfigured

FILE: Final = "ports"


def places(home: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the place of each of these butlers and of all that are noted; newcomers get the first free ones."""
    found = _noted(home)
    for name in names:
        if name not in found:
            found[name] = min(set(range(len(found) + 1)) - set(found.values()))
    return found


def note(home: Path, names: Sequence[str]) -> None:
    """Note the places of butlers that have none yet, for every user to read."""
    found, path = places(home, names), home / FILE
    if found == _noted(home):
        return
    draft = path.with_name(f".{FILE}.new")
    try:
        draft.write_text("".join(f"{name} {place}\n" for name, place in found.items()), encoding="ascii")
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as refused:
        raise Misconfigured(f"{path} cannot be written: {refused.strerror}.", "Correct BUTLERS_HOME.") from None


def _noted(home: Path) -> dict[str, int]:
    path = home / FILE
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        return {name: int(place) for name, place in lines}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):
        remedy = "Give each butler a line with its name and position, 0 for the first, or remove the file."
        raise Misconfigured(f"{path} cannot be read.", remedy) from None
