"""The pages for beginners go as written, from an empty folder.

docs/first-hour.md: two butlers, an agent, a backup, a refused copy. docs/write-a-butler.md: a session, a clock, a tool.
"""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.bench.fleet import House, house, remove_data
from tests.rig.cluster import ROOT

FENCE = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 120


@contextmanager
def first_terminal(here: House, command: str) -> Iterator[None]:
    """What runs in the first terminal until Ctrl-C; it has said that it is ready."""
    with subprocess.Popen(
        ["bash", "-c", command.replace("&& ", "&& exec ") if "&&" in command else f"exec {command}"],
        cwd=here.folder / "first",
        env=here.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            said.append(line)
            if line.startswith("Ready"):
                break
        else:
            pytest.fail(f"{command}\n{''.join(said)}")
        try:
            yield
        finally:
            running.send_signal(signal.SIGINT)
            running.stdout.read()
    assert running.returncode == 0


def second_terminal(here: House, commands: str) -> str:
    """What these commands print; each must end well."""
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=here.folder / "first",
        env=here.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def walked(page: str) -> str:
    """What is printed by everything on this page, one command after the other, from an empty folder."""
    parts = FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    printed: list[str] = []
    with house() as here, ExitStack() as afterwards:
        for folder in ("first", "restored"):
            afterwards.callback(remove_data, here.folder / folder / ".butlers")
        (here.folder / "first").mkdir()
        (here.folder / "first" / "examples").symlink_to(ROOT / "examples")
        while parts:
            kind, body = parts.pop(0)
            if kind == "sh":
                printed.append(second_terminal(here, body))
                continue
            with first_terminal(here, body.removeprefix("$ ").strip()):
                # Everything up to the next start, or to a copy, is done while this runs.
                while parts and parts[0][0] == "sh" and not needs_a_stop(parts[0][1]):
                    printed.append(second_terminal(here, parts.pop(0)[1]))
    return "\n".join(printed)


def test_the_first_hour_goes_as_written() -> None:
    told = walked("first-hour.md")
    assert told.count('"status": "ok"') == 5, told
    assert "a backup was restored" in told
    assert "--moved" in told
    assert "It did not start." in told


def test_a_butler_is_written_as_the_page_says() -> None:
    told = walked("write-a-butler.md")
    for said in ("> You asked: How are the beans?", "It stands: pending_approval", "Open the valve of the bed beans."):
        assert said in told, told
    assert "status: Ran" in told, told


def needs_a_stop(commands: str) -> bool:
    """Whether the page says to stop the first terminal before these commands."""
    return commands.startswith(("butlers init", "mkdir", "cp -r"))
