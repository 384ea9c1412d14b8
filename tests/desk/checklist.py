"""The lines of the two contracts that are kept at the desk, and what became of each in a run of the tests."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
FILE: Final = HERE / "checklist.toml"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: whose it is, what it says, the tests that walk it, and the systems it was not seen on."""

    of: str
    says: str
    tests: Sequence[str]
    elsewhere: str = ""


def lines() -> list[Line]:
    """All lines, in their order."""
    return [Line(**one) for one in tomllib.loads(FILE.read_text(encoding="utf-8"))["line"]]


def walked(outcomes: Mapping[str, bool]) -> list[str]:
    """What to print, by whether each test passed in all its cases; nothing where a test of the lists did not run."""
    found = lines()
    if not all(test in outcomes for line in found for test in line.tests):
        return []
    good = [all(outcomes[test] for test in line.tests) for line in found]
    told = [
        f"{'ok' if ok else 'FAILED':<7}{line.of:<9} {line.says}"
        f"{f' (not seen on the real system: {line.elsewhere})' if line.elsewhere else ''}"
        for line, ok in zip(found, good, strict=True)
    ]
    return [*told, f"{sum(good)}/{len(good)} lines"]
