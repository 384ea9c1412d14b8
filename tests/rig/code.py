"""A copy of our packages to plant bugs in, and the planting."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rig import symbols

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("butlers", "switchboard", "messenger", "shared", "migrations")


@dataclass(frozen=True, slots=True)
class Edit:
    """Other words for the one place in a symbol's source that reads `replace`."""

    symbol: str
    replace: str
    by: str


def copy_of_code(folder: Path) -> Path:
    """Copies of our packages in this folder; give it to `Bench.house` as `code`.

    What was compiled is copied too: by their times, it counts for all files but the damaged.
    """
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def plant(code: Path, *edits: Edit) -> None:
    """Make these edits in a fresh copy of our packages; LookupError where one does not fit exactly once."""
    for path, text in edited(ROOT, edits).items():
        (code / path.relative_to(ROOT)).write_text(text, encoding="utf-8")


def edited(root: Path, edits: Sequence[Edit]) -> Mapping[Path, str]:
    """Each file below `root` that these edits change, as it would be; all are found before the first is made."""
    spans: dict[Path, list[tuple[int, int, str]]] = {}
    for edit in edits:
        place = symbols.find(root, edit.symbol)
        lines = place.path.read_text(encoding="utf-8").splitlines(keepends=True)
        source, before = "".join(lines[place.start : place.end]), len("".join(lines[: place.start]))
        if (count := source.count(edit.replace)) != 1:
            raise LookupError(f"{edit.symbol} holds {count} times: {edit.replace}")
        at = before + source.index(edit.replace)
        spans.setdefault(place.path, []).append((at, at + len(edit.replace), edit.by))
    return {path: _spliced(path.read_text(encoding="utf-8"), found) for path, found in spans.items()}


def _spliced(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """The text with each span replaced, the last first, so that none moves another."""
    for start, end, by in sorted(spans, reverse=True):
        text = text[:start] + by + text[end:]
    return text
