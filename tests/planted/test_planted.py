"""A suite that cannot fail proves nothing: each planted bug must make the test it names fail.

A bug is an edit in a copy of our packages and tests (bugs.py says how it is told), and names the tests that must
fail; on the clean tree the same tests pass elsewhere in the run.
"""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.bugs import Bug, bugs
from tests.rig import waiting
from tests.rig.changes import changed_files, spread
from tests.rig.code import edited, plant
from tests.rig.forks import Forks, Order

ROOT = Path(__file__).resolve().parents[2]
BUGS = [bug for bug in bugs().values() if bug.caught_by]
COPIED = ("butlers", "examples", "fleet", "messenger", "migrations", "shared", "switchboard", "tests", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "docker-compose.yml", "Dockerfile", "Makefile")
# Only what hangs takes so long: the slowest wait for what the bug keeps from coming, again and again.
SECONDS = 900
TESTS_FAILED = 1
# A commit that moves much changes nearly every file.
MOST_TOUCHED = 40
# What a bug keeps from coming is not waited for as long as what is only slow.
PATIENCE = "10"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per bug that is tried."""
    if "bug" in metafunc.fixturenames:
        number, _, many = str(metafunc.config.getoption("--share", default="1/1")).partition("/")
        chosen = rotation(str(metafunc.config.getoption("--planted", default="all")))[int(number) - 1 :: int(many)]
        metafunc.parametrize("bug", chosen, ids=[bug.name for bug in chosen])


def rotation(wanted: str) -> list[Bug]:
    """Choose all bugs; or a twelfth and those in changed files; or so many, in changed files if there are any."""
    changed = changed_files()
    touched = [bug for bug in BUGS if any(str(file.relative_to(ROOT)) in changed for file in edited(ROOT, bug.edits))]
    match wanted:
        case "all":
            return BUGS
        case "twelfth":
            chosen = {bug.name for bug in (*spread(touched, MOST_TOUCHED), *spread(BUGS, len(BUGS) // 12))}
            return [bug for bug in BUGS if bug.name in chosen]
        case number:
            return spread(touched or BUGS, int(number))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our packages and tests, to be damaged."""
    where = tmp_path / "copy"
    where.mkdir()
    leave_out = shutil.ignore_patterns(".pytest_cache", "*.png")  # what was compiled is good for all but the damaged
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, where / name, ignore=leave_out)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, where / name)
    return where


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Where the libraries are imported once for all bugs."""
    made = Forks()
    yield made
    made.close()


def test_planted_bug_is_caught(bug: Bug, copy: Path, forks: Forks) -> None:
    """Each named test fails on the damaged copy, and fails as a test: a broken import catches nothing."""
    tests = bug.caught_by
    plant(copy, *bug.edits)
    argv = [
        "-q",
        f"--maxfail={len(tests)}",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        *tests,
    ]
    env = {**os.environ, waiting.VARIABLE: PATIENCE}
    ran = forks.spawn(Order(argv, env, copy, copy.parent / "run", code=copy, entry="pytest:main"))
    ended, said = ran.ended.wait(SECONDS), ran.out.read_text()
    ran.send(signal.SIGKILL)
    assert ended, f"{bug.name}: its tests did not end within {SECONDS} s\n{said[-3000:]}"
    assert ran.code == TESTS_FAILED, f"{bug.name} lives: pytest ended with {ran.code}\n{said[-3000:]}"
    failed = set(re.findall(r"^FAILED (.+?)(?: - |$)", said, re.MULTILINE))
    blind = [test for test in tests if not failed & {test, *(one for one in failed if one.startswith(f"{test}["))}]
    assert not blind, f"{bug.name} lives: {', '.join(blind)} did not fail as a test\n{said[-3000:]}"
    print(f"{bug.name}: caught by {', '.join(tests)}")
