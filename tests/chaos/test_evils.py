"""The rig catches each of the reference's bugs by its name, and finds nothing wrong where none is planted."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.directed import Scenario, play
from tests.chaos.scenarios import EVILS
from tests.rig.bench import Bench
from tests.rig.code import copy_of_code

ROOT = Path(__file__).resolve().parents[2]
PLANTED = ROOT / "tests" / "planted"
THE_REFERENCE_NAMES = 25


def patch_of(name: str) -> Path:
    """Where the patch lies: with the bugs that other tests catch, or with those that only the rig does."""
    found = [path for folder in ("bugs", "rig_bugs") if (path := PLANTED / folder / f"{name}.patch").exists()]
    assert found, f"there is no {name}.patch"
    return found[0]


def planted(folder: Path, name: str) -> Path:
    """A copy of our packages with the bug in it."""
    code = copy_of_code(folder)
    apply = ["git", "apply", "--whitespace=nowarn", str(patch_of(name))]
    applied = subprocess.run(apply, cwd=code, check=False, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    return code


def test_each_evil_has_a_patch_that_fits() -> None:
    assert len(EVILS) == THE_REFERENCE_NAMES + 1
    for evil in EVILS.values():
        apply = ["git", "apply", "--check", str(patch_of(evil.patch))]
        told = subprocess.run(apply, cwd=ROOT, check=False, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
    idle = {path.stem for path in (PLANTED / "rig_bugs").glob("*.patch")} - {evil.patch for evil in EVILS.values()}
    assert not idle, idle


@pytest.mark.slow
@pytest.mark.parametrize("name", EVILS)
async def test_the_rig_catches(bench: Bench, tmp_path: Path, name: str) -> None:
    evil = EVILS[name]
    code = planted(tmp_path / "code", evil.patch)
    wrong = await play(bench, evil.scenario, evil.env, code, evil.sql)
    called = [told for told in wrong if evil.says in told]
    assert called, f"{name} was not found by its name, {evil.says!r}, among {wrong}"
    print(f"{name}: {called[0]}")


def scenarios() -> Iterator[tuple[Scenario, dict[str, str]]]:
    """Each scenario once, with its settings."""
    seen: dict[Scenario, dict[str, str]] = {}
    for evil in EVILS.values():
        seen.setdefault(evil.scenario, dict(evil.env))
    yield from seen.items()


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "env"), list(scenarios()), ids=lambda one: getattr(one, "__name__", ""))
async def test_nothing_is_wrong_where_nothing_is_planted(bench: Bench, scenario: Scenario, env: dict[str, str]) -> None:
    assert await play(bench, scenario, env) == []
