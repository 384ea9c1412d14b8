"""Planted bugs as data, a TOML file per area: what is wrong, where, and which tests must notice.

A bug has `name`, `says` (one sentence), `caught_by` (tests; none for what only the crash campaign's rig catches), and
where it is planted: `symbol` (tests/rig/symbols.py), `replace` and `with`, or several of these as `[[bug.edit]]`.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.rig.code import Edit

HERE: Final = Path(__file__).parent
_BUG: Final = {"name", "says", "caught_by"}
_EDIT: Final = {"symbol", "replace", "with"}


@dataclass(frozen=True, slots=True)
class Bug:
    """One mistake, and the tests that must fail with it."""

    name: str
    says: str
    edits: Sequence[Edit]
    caught_by: Sequence[str]


@cache
def bugs() -> Mapping[str, Bug]:
    """Return every bug by its name, in the files' order; ValueError where one is told wrongly, or twice."""
    found: dict[str, Bug] = {}
    for path in sorted(HERE.glob("*.toml")):
        for bug in read(path):
            if bug.name in found:
                raise ValueError(f"{path.name}: {bug.name} is told twice")
            found[bug.name] = bug
    return found


def read(path: Path) -> Iterator[Bug]:
    """Yield the bugs of one file."""
    for told in tomllib.loads(path.read_text(encoding="utf-8"))["bug"]:
        edits = told.pop("edit", None) or [{key: told.pop(key) for key in _EDIT if key in told}]
        if told.keys() != _BUG or any(edit.keys() != _EDIT for edit in edits):
            raise ValueError(f"{path.name}: {told.get('name')} is told wrongly")
        found = [Edit(edit["symbol"], edit["replace"], edit["with"]) for edit in edits]
        yield Bug(told["name"], told["says"], found, told["caught_by"])
