"""What every test may ask for: the bench, and a fleet in each of the shapes it is to run in."""

import gc
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.integration.console_runner import Running
    from tests.rig.bench import Bench
    from tests.rig.cluster import Cluster
    from tests.rig.fleet import Fleet

MODES = ("one", "each", "two")

# On a shared machine any example may stand still for seconds.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# As a daemon does, never on standard output, which a command's own words are read from.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(),
    ],
    logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", default="1", help="of the attack corpus, try every n-th attempt of each class only")
    parser.addoption("--modes", default="", help="The shapes of the fleet to run all tests in: one,each,two")
    told = "Run in these shapes what runs in others without this option, and nothing else"
    parser.addoption("--more-modes", default="", help=told)
    parser.addoption("--whole", action="store_true", help="Play at full length what else is played in part, or not")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_mode: is a stage of a message, which `make verify` runs in all shapes")
    config.addinivalue_line("markers", "whole: has a full length, which --whole asks for; without `whole` no other")
    config.addinivalue_line("markers", "modes(*names): only these shapes fit; the first is the one without --modes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fleet" in metafunc.fixturenames:
        metafunc.parametrize("fleet", fitting(metafunc.definition), indirect=True, scope="session")


def fitting(item: pytest.Item) -> tuple[str, ...]:
    """The shapes this test can run in."""
    mark = item.get_closest_marker("modes")
    return mark.args if mark else MODES


def pytest_collection_finish() -> None:
    """Look for no garbage among what is imported, and rarely elsewhere: that took a fifth of the processor's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked, more = (tuple(filter(None, config.getoption(name).split(","))) for name in ("--modes", "--more-modes"))
    dropped = [
        item
        for item in items
        if not (is_more(item, more) if more else wanted(item, asked))
        or (has_no_part(item) and not config.getoption("--whole"))
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    for item in items:
        if "fleet" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def wanted(item: pytest.Item, asked: tuple[str, ...]) -> bool:
    """Whether the run asked for this test in this shape."""
    spec = getattr(item, "callspec", None)
    if spec is None or "fleet" not in spec.params:
        return True
    mode, fit = spec.params["fleet"], fitting(item)
    if asked:
        return mode in asked
    return bool(mode == fit[0])


def is_more(item: pytest.Item, modes: tuple[str, ...]) -> bool:
    """Whether this is one of these shapes, and this test does not run in it where none is asked for."""
    return wanted(item, modes) and not wanted(item, ())


def has_no_part(item: pytest.Item) -> bool:
    """Whether this test is played whole or not at all."""
    return item.get_closest_marker("whole") is not None and "whole" not in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether what has a full length is to be played at it."""
    return bool(pytestconfig.getoption("--whole"))


@pytest.fixture(scope="session")
def cluster() -> "Iterator[Cluster]":
    """One PostgreSQL, and a migrated database in it to clone."""
    from tests.rig.cluster import running  # noqa: PLC0415  # a run of unit tests needs none of it

    with running() as made:
        yield made


@pytest.fixture(scope="session")
def bench(cluster: "Cluster") -> "Iterator[Bench]":
    """One fork server for all fleets."""
    from tests.rig.bench import running  # noqa: PLC0415  # as above

    with running(cluster) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fleet(bench: "Bench", request: pytest.FixtureRequest) -> "AsyncIterator[Fleet]":
    """A fleet that all tests of one shape share: use contacts and words of your own."""
    from tests.rig.fleet import Fleet  # noqa: PLC0415  # two seconds of imports that unit tests need not pay

    made = await Fleet.start(await bench.house(), request.param)
    yield made
    await made.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    made = getattr(item, "funcargs", {}).get("fleet")
    if report.failed and made is not None:
        report.sections.append(("what the fleet said", made.logs()))
    return report


@pytest_asyncio.fixture
async def console(cluster: "Cluster", tmp_path: Path) -> "AsyncIterator[Running]":
    """A console alone, over a real PostgreSQL."""
    from tests.integration.console_runner import running  # noqa: PLC0415  # as above

    async with running(cluster, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def browser() -> "AsyncIterator[Browser]":
    """A browser of the test's own."""
    from tests.rig.browser import chromium  # noqa: PLC0415  # as above

    async with chromium() as started:
        yield started
