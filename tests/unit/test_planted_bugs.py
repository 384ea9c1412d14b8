"""Every planted bug fits the code as it stands, names tests that exist, and goes with what moves."""

import ast
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.bugs import Bug, bugs
from tests.rig.code import PACKAGES, ROOT, edited

BUGS = list(bugs().values())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_fits(bug: Bug) -> None:
    for path, text in edited(ROOT, bug.edits).items():
        ast.parse(text)
        assert text != path.read_text(encoding="utf-8")


def test_none_is_caught_for_a_name_that_is_not_there(tmp_path: Path) -> None:
    for bug in BUGS:
        for path, text in edited(ROOT, bug.edits).items():
            (tmp_path / f"{bug.name}__{path.stem}.py").write_text(text, encoding="utf-8")
    ruff = [
        str(Path(sys.executable).with_name("ruff")),
        "check",
        "--isolated",
        "--select",
        "F821",
        "--quiet",
        str(tmp_path),
    ]
    found = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_the_tests_it_names_exist() -> None:
    named = {test.partition("[")[0] for bug in BUGS for test in bug.caught_by}
    missing = [test for test in sorted(named) if not _exists(test)]
    assert missing == []


def _exists(test: str) -> bool:
    """Whether the file has a function of that name, at its top or in its class."""
    file, *_, name = test.split("::")
    path = ROOT / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def test_what_moves_takes_its_bugs_with_it(tmp_path: Path) -> None:
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    before = {bug.name: _texts(ROOT, bug) for bug in BUGS}
    movable = [path for path in sorted(tmp_path.glob("[bms]*/*.py")) if path.stem not in {"__init__", "__main__"}]
    for path in random.Random("three files").sample(movable, 3):
        place = path.parent / "somewhere" / "else"
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
    assert {bug.name: _texts(tmp_path, bug) for bug in BUGS} == before


def _texts(root: Path, bug: Bug) -> list[str]:
    """What its files would be."""
    return sorted(edited(root, bug.edits).values())
