"""Nobody gets past the gate: every attempt of every class, and what must work beside it."""

import pytest

from tests.attacks.conftest import Attacked
from tests.attacks.corpus import CLASSES, classes, modules
from tests.attacks.engine import run_class

BY_NUMBER = {one.number: one for one in classes()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each class in each shape; one with settings of its own has a fleet in one process."""
    if "number" in metafunc.fixturenames:
        asked = tuple(filter(None, metafunc.config.getoption("--modes").split(","))) or ("one",)
        alone = [("one", one.number) for one in BY_NUMBER.values() if one.settings]
        cases = [(mode, one.number) for mode in asked for one in BY_NUMBER.values() if not one.settings] + alone
        metafunc.parametrize(("mode", "number"), cases, ids=[f"{mode}-{number}" for mode, number in cases])


@pytest.mark.asyncio(loop_scope="session")
async def test_class(attacked: Attacked, request: pytest.FixtureRequest, mode: str, number: int) -> None:
    """No attempt of the class gets through."""
    attack = BY_NUMBER[number]
    world = await attacked(mode, attack.settings)
    tried = await run_class(world, attack, int(request.config.getoption("--every", "1")), most=5)
    through = [f"{one.attempt.name}\n    " + "\n    ".join(one.breaches) for one in tried if one.breaches]
    assert not through, f"{len(through)} of {len(tried)} got through\n" + "\n".join(through)


def test_the_corpus_has_every_class_once_and_more_than_five_hundred_attempts() -> None:
    assert sorted([*BY_NUMBER, *modules()]) == list(CLASSES)
    assert all(one.attempts for one in BY_NUMBER.values())
    assert sum(len(one.attempts) for one in BY_NUMBER.values()) >= 500


def test_no_two_attempts_of_a_class_are_called_the_same() -> None:
    for one in BY_NUMBER.values():
        names = [attempt.name for attempt in (*one.attempts, *one.controls)]
        assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1][:3]
