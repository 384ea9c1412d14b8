"""A copy of our packages to plant bugs in."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("butlers", "switchboard", "messenger", "shared", "migrations")


def copy_of_code(folder: Path) -> Path:
    """Copies of our packages in this folder, without compiled files; give it to `Bench.house` as `code`."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def plant(folder: Path, file: str, old: str, new: str) -> None:
    """Replace the one place in a copied file that reads `old`; anything but exactly one is an error."""
    path = folder / file
    source = path.read_text(encoding="utf-8")
    if (count := source.count(old)) != 1:
        raise ValueError(f"{file} holds {count} times: {old[:60]!r}")
    path.write_text(source.replace(old, new), encoding="utf-8")
