"""The ten stages of a message, as our docstrings say them in a first line: `Stage 3, gather: what it does`.

docs/architecture.md holds their table; `python -m tests.rig.stages` prints it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.rig.code import ROOT

PACKAGES: Final = ("butlers", "messenger", "shared", "switchboard")
_SAID: Final = re.compile(r"Stage (\d+), (\w+): (.+?)(?: Pure\.)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Stage:
    """One stage: a whole file, or the one function of it."""

    number: int
    name: str
    place: str
    does: str


@cache
def stages(root: Path = ROOT) -> list[Stage]:
    """Every stage that a docstring below `root` names, by number."""
    files = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return sorted(stage for path in files for stage in _in(path, str(path.relative_to(root))))


def _in(path: Path, name: str) -> Iterator[Stage]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for node in (tree, *parts):
        if said := _SAID.match(ast.get_docstring(node) or ""):
            place = name if isinstance(node, ast.Module) else f"{name}::{node.name}"
            yield Stage(int(said[1]), said[2], place, said[3])


def stage_table() -> str:
    """Return the table as the page holds it."""
    rows = (f"| {one.number} {one.name} | `{one.place}` | {one.does.removesuffix('.')} |" for one in stages())
    return "\n".join(("| stage | where | what |", "| --- | --- | --- |", *rows))


if __name__ == "__main__":
    print(stage_table())
