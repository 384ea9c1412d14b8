"""Every planted bug fits the code as it stands, names tests that exist, and goes with what moves."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.planted.bugs import Bug, bugs
from tests.rig.code import PACKAGES, ROOT, edited
from tests.rig.failpoints import FAILPOINTS, OURS, located

BUGS = list(bugs().values())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_fits(bug: Bug) -> None:
    for path, text in edited(ROOT, bug.edits).items():
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


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str]]:
    """A copy in which three files lie deeper, and the modules' new names by the old ones."""
    copy, names = tmp_path_factory.mktemp("moved"), {}
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    movable = [path for package in OURS for path in sorted((copy / package).rglob("*.py")) if path.stem[:2] != "__"]
    for path in random.Random("three files").sample(movable, 3):
        deeper = path.parent / "somewhere" / "else" / path.name
        deeper.parent.mkdir(parents=True, exist_ok=True)
        path.rename(deeper)
        names[_module(path, copy)] = _module(deeper, copy)
    return copy, names


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts)


def test_what_moves_takes_its_bugs_with_it(moved: tuple[Path, Mapping[str, str]]) -> None:
    copy, _ = moved
    assert {bug.name: _texts(copy, bug) for bug in BUGS} == {bug.name: _texts(ROOT, bug) for bug in BUGS}


# The imports still say the old names, which are found at the new ones.
PROGRAM = """
import importlib.util, json, sys
MOVED = json.loads(sys.argv[1])
class Finder:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in MOVED else None
    def create_module(self, spec):
        return importlib.import_module(MOVED[spec.name])
    def exec_module(self, module):
        pass
sys.meta_path.append(Finder())
from tests.rig.failpoints import FAILPOINTS, located
print(json.dumps({one.name: located(one.site) for one in FAILPOINTS}))
"""


def test_what_moves_takes_its_failpoints_with_it(moved: tuple[Path, Mapping[str, str]]) -> None:
    copy, names = moved
    words = [sys.executable, "-c", PROGRAM, json.dumps(names)]
    told = subprocess.run(words, cwd=copy, capture_output=True, text=True, check=True).stdout
    for old, new in names.items():
        told = told.replace(f'"{new}:', f'"{old}:')
    assert json.loads(told) == {one.name: located(one.site) for one in FAILPOINTS}


def _texts(root: Path, bug: Bug) -> list[str]:
    """What its files would be."""
    return sorted(edited(root, bug.edits).values())
