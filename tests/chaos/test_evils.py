"""The rig catches each of the reference's bugs by its name, and finds nothing wrong where none is planted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.directed import Scenario, play
from tests.chaos.scenarios import EVILS
from tests.planted.bugs import bugs
from tests.rig.bench import Bench
from tests.rig.changes import spread
from tests.rig.code import ROOT, copy_of_code, edited, plant

THE_REFERENCE_NAMES = 25


def test_each_evil_has_a_bug_that_fits() -> None:
    assert len(EVILS) == THE_REFERENCE_NAMES + 1
    for evil in EVILS.values():
        assert edited(ROOT, bugs()[evil.bug].edits), evil.bug
    only_the_rig = {bug.name for bug in bugs().values() if not bug.caught_by}
    assert not only_the_rig - {evil.bug for evil in EVILS.values()}


def evils() -> Iterator[object]:
    """Each evil; but for a third of those that only the rig catches, they are tried where all is played whole."""
    only_the_rig = [name for name, evil in EVILS.items() if not bugs()[evil.bug].caught_by]
    chosen = spread(only_the_rig, len(only_the_rig) // 3)
    for name in EVILS:
        yield pytest.param(name, marks=[] if name in chosen else [pytest.mark.whole])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(evils()))
async def test_the_rig_catches(bench: Bench, tmp_path: Path, name: str) -> None:
    evil = EVILS[name]
    code = copy_of_code(tmp_path / "code")
    plant(code, *bugs()[evil.bug].edits)
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
