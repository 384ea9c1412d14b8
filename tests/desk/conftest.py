"""One screen for the tests of the desk; at the end of them all, what became of each line of the contracts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk.checklist import walked
from tests.desk.screen import Screen, screen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines of the contracts, if all that walk them ran."""
    outcomes = dict[str, bool]()
    for how in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.getreports(how):
            if isinstance(report, pytest.TestReport):
                test = report.nodeid.rpartition("/")[2].partition("[")[0]
                outcomes[test] = outcomes.get(test, True) and how == "passed"
    for line in walked(outcomes):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def a_screen() -> Iterator[Screen]:
    with screen() as made:
        yield made


@pytest.fixture
def seen(a_screen: Screen, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """The screen that popups open on, where nothing of an earlier test stands."""
    monkeypatch.setenv("DISPLAY", a_screen.display)
    a_screen.run("xdotool", "mousemove", "640", "400")
    return a_screen


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that stand before the system's."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def stub(folder: Path, name: str, script: str) -> None:
    """Put up a command of that name."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
