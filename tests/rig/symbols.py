"""Where a name of the product stands: planted bugs name functions, classes and constants, and not files.

A symbol is the last word of a module's name and what it defines, as `send.send_part` or `deliveries.CLAIM`; with more
of its words in front (`messenger.daemon.build`) where that alone is not one place. So a file may move, and its lines
may change, and the symbol still leads there. `send.<module>` is the whole file.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
    words = symbol.split(".")
    splits = ((words[:n], ".".join(words[n:])) for n in range(1, len(words)))
    places = [
        place
        for said, name in splits
        for module, path in modules(root).get(said[-1], ())
        if leads_to(said, module)
        for place in defined(path).get(name, ())
    ]
    if len(places) != 1:
        raise LookupError(f"{symbol} stands at {len(places)} places: {', '.join(str(p.path) for p in places)}")
    return places[0]


def leads_to(said: Sequence[str], module: Sequence[str]) -> bool:
    """Whether these words end as the module's name does; those in front stand in its order, with any between."""
    rest = iter(module[:-1])
    return said[-1] == module[-1] and all(word in rest for word in said[:-1])


@cache
def modules(root: Path) -> Mapping[str, Sequence[tuple[Sequence[str], Path]]]:
    """Every file, with the words of its module's name, by the last of these."""
    found = defaultdict[str, list[tuple[Sequence[str], Path]]](list)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            words = path.relative_to(root).with_suffix("").parts
            words = words[:-1] if words[-1] == "__init__" else words
            found[words[-1]].append((words, path))
    return found


@cache
def defined(path: Path) -> Mapping[str, Sequence[Place]]:
    """What a file defines, by qualified name, and the file itself."""
    text = path.read_text(encoding="utf-8")
    found = defaultdict[str, list[Place]](list, {WHOLE: [Place(path, 0, len(text.splitlines()))]})
    for name, place in _in(ast.parse(text).body, path, ""):
        found[name].append(place)
    return found


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
