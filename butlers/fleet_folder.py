"""The folder of a fleet: whether nobody else can put anything into it, and which butlers it holds.

A module in it is code that runs beside our keys.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from shared.errors import Misconfigured
from shared.home_folder import demand_own


def demand_fit(where: Path, home: Path | None) -> None:
    """Raise Misconfigured if there is no such folder, or if others than we trust can put something into it."""
    if not where.is_dir():
        what = "is not a folder" if where.exists() else "does not exist"
        remedy = "Put it back, choose another with --fleet, or create a butler with `butlers init NAME`."
        raise Misconfigured(f"The fleet folder {where} {what}.", remedy)
    demand_own("fleet", where, _trusted(where, home), _believed(where))


def butlers_in(where: Path) -> list[Path]:
    """Return the folders of its butlers; raise Misconfigured if there are none.

    Often it is a butler's own folder that was named.
    """
    found = [path for path in sorted(where.iterdir()) if path.is_dir() and (path / "butler.toml").exists()]
    if not found and (where / "butler.toml").exists():
        raise Misconfigured(
            f"{where} is the folder of one butler, and no fleet.",
            f"Name the folder above it: --fleet {where.resolve().parent}.",
        )
    if not found:
        raise Misconfigured(f"The fleet folder {where} contains no butler.", "Create one with `butlers init NAME`.")
    return found


def left_out(where: Path) -> list[Misconfigured]:
    """Return a mistake for each folder that describes a butler and is none."""
    return [
        Misconfigured(f"{path} describes a butler that has no butler.toml.", "Add the file beside it, or remove it.")
        for path in sorted(where.glob("*/PERSONA.md"))
        if not path.with_name("butler.toml").exists()
    ]


def _trusted(where: Path, home: Path | None) -> set[int]:
    """Return whose folders and files a fleet may hold: this user's, root's, and those of the home's owner.

    Those of whoever owns this program's own files too, since what they write runs already; and where nobody can write
    to it, as in a container, its own owner's, as whoever mounted it there chose it.
    """
    owners = {os.geteuid(), 0}
    owners.add(Path(__file__).stat().st_uid)
    if home is not None and home.is_dir():
        owners.add(home.stat().st_uid)
    if os.statvfs(where).f_flag & os.ST_RDONLY:
        owners.add(where.stat().st_uid)
    return owners


def _believed(where: Path) -> Iterator[Path]:
    """Yield all in a fleet from which a butler or code may be read; of links to folders only its own are followed.

    Among what is hidden Python finds no module, and a home may lie there.
    """
    for child in sorted(where.iterdir()):
        if not child.name.startswith(".") or (child / "butler.toml").exists():
            yield child
            for below, folders, files in os.walk(child):
                yield from (Path(below, name) for name in (*folders, *files))
