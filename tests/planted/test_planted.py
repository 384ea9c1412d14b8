"""A suite that cannot fail proves nothing: each planted bug must make the test it names fail.

A bug is a patch on a copy of our packages and tests. Its head says in one line what is wrong and names, line
by line after `caught-by:`, the tests that must fail; on the clean tree the same tests pass elsewhere in the run.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.forks import Forks, Order

ROOT = Path(__file__).resolve().parents[2]
BUGS = sorted((Path(__file__).parent / "bugs").glob("*.patch"))
COPIED = ("butlers", "messenger", "migrations", "shared", "switchboard", "tests", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "docker-compose.yml", "Dockerfile", "Makefile")
CAUGHT_BY = re.compile(r"^caught-by: (\S.*)$", re.MULTILINE)
# Only what hangs takes so long: the slowest wait for what the bug keeps from coming, again and again.
SECONDS = 900
TESTS_FAILED = 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per bug that is tried."""
    if "bug" in metafunc.fixturenames:
        chosen = rotation(str(metafunc.config.getoption("--planted", default="all")))
        metafunc.parametrize("bug", chosen, ids=[bug.stem for bug in chosen])


def rotation(wanted: str) -> list[Path]:
    """All bugs, or so many spread over them, beginning at a place the commit decides: neighbours cost alike."""
    if wanted == "all":
        return BUGS
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    start = int(head.stdout.strip() or "0", 16) % len(BUGS)
    many = min(int(wanted), len(BUGS))
    return [BUGS[(start + n * len(BUGS) // many) % len(BUGS)] for n in range(many)]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our packages and tests, to be damaged."""
    where = tmp_path / "copy"
    where.mkdir()
    leave_out = shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.png")
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


def test_planted_bug_is_caught(bug: Path, copy: Path, forks: Forks) -> None:
    """Each named test fails on the damaged copy, and fails as a test: a broken import catches nothing."""
    tests = CAUGHT_BY.findall(bug.read_text(encoding="utf-8"))
    assert tests, f"{bug.name} names no test"
    applied = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(bug)], cwd=copy, check=False, capture_output=True, text=True
    )
    assert applied.returncode == 0, f"{bug.name} no longer fits: {applied.stderr}"
    argv = [
        "-q",
        f"--maxfail={len(tests)}",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        *tests,
    ]
    ran = forks.spawn(Order(argv, os.environ, copy, copy.parent / "run", code=copy, entry="pytest:main"))
    ended, said = ran.ended.wait(SECONDS), ran.out.read_text()
    ran.send(signal.SIGKILL)
    assert ended, f"{bug.stem}: its tests did not end within {SECONDS} s\n{said[-3000:]}"
    assert ran.code == TESTS_FAILED, f"{bug.stem} lives: pytest ended with {ran.code}\n{said[-3000:]}"
    failed = set(re.findall(r"^FAILED (.+?)(?: - |$)", said, re.MULTILINE))
    blind = [test for test in tests if not failed & {test, *(one for one in failed if one.startswith(f"{test}["))}]
    assert not blind, f"{bug.stem} lives: {', '.join(blind)} did not fail as a test\n{said[-3000:]}"
    print(f"{bug.stem}: caught by {', '.join(tests)}")
