"""Where a name of the product stands: planted bugs name functions, classes and constants, and not files.

A symbol is the last word of a module's name and what it defines, as `deliver.send_part` or `store.CLAIM`; with more
words in front (`messenger.butler.build`) where that alone is not one place. So a file may move, and its lines may
change, and the symbol still leads there. `deliver.<module>` is the whole file.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PACKAGES: Final = ("butlers", "messenger", "migrations", "shared", "switchboard", "tests")
WHOLE: Final = "<module>"


@dataclass(frozen=True, slots=True)
class Place:
    """The lines of a file that a symbol covers: from the first, counted from 0, to the one before `end`."""

    path: Path
    start: int
    end: int


def find(root: Path, symbol: str) -> Place:
    """The one place of this symbol below `root`; LookupError where there is none, or more than one."""
    places = index(root).get(symbol, ())
    if len(places) != 1:
        raise LookupError(f"{symbol} stands at {len(places)} places: {', '.join(str(p.path) for p in places)}")
    return places[0]


@cache
def index(root: Path) -> Mapping[str, tuple[Place, ...]]:
    """Every symbol under each of its names, short and long."""
    found: dict[str, tuple[Place, ...]] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            words = path.relative_to(root).with_suffix("").parts
            words = words[:-1] if words[-1] == "__init__" else words
            for name, place in defined(path):
                for first in range(len(words)):
                    long = ".".join((*words[first:], name))
                    found[long] = (*found.get(long, ()), place)
    return found


def defined(path: Path) -> Iterator[tuple[str, Place]]:
    """What a file defines, by qualified name, and the file itself."""
    text = path.read_text(encoding="utf-8")
    yield WHOLE, Place(path, 0, len(text.splitlines()))
    yield from _in(ast.parse(text).body, path, "")


def _in(body: list[ast.stmt], path: Path, within: str) -> Iterator[tuple[str, Place]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield f"{within}{node.name}", Place(path, first - 1, node.end_lineno or node.lineno)
                if isinstance(node, ast.ClassDef):
                    yield from _in(node.body, path, f"{within}{node.name}.")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield f"{within}{name}", Place(path, node.lineno - 1, node.end_lineno or node.lineno)
