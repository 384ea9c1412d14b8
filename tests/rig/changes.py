"""What the last commit and the working tree have changed, for runs that try first what may be broken, or a part."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]
T = TypeVar("T")
COMMANDS: Final = (("diff", "--name-only", "HEAD~1"), ("ls-files", "--others", "--exclude-standard"))


def changed_files(root: Path = ROOT) -> frozenset[str]:
    """Return the paths, relative to the root, that differ from the commit before the last."""
    return frozenset(line for command in COMMANDS for line in _lines(root, command))


def spread(all_of_them: Sequence[T], many: int) -> list[T]:
    """Return so many of these, from all over them, beginning at a place the commit decides: neighbours cost alike."""
    head = "".join(_lines(ROOT, ("rev-parse", "HEAD")))
    start, many = int(head or "0", 16), min(many, len(all_of_them))
    return [all_of_them[(start + n * len(all_of_them) // many) % len(all_of_them)] for n in range(many)]


def is_below(paths: Iterable[str], folders: Iterable[str]) -> bool:
    """Return whether one of these paths is one of these files, or lies in one of these folders."""
    return any(path == folder or path.startswith(f"{folder}/") for path in paths for folder in folders)


def _lines(root: Path, command: tuple[str, ...]) -> list[str]:
    ran = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines()
