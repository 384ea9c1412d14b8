"""README's commands do what README says: run in order in one shell, in an empty folder with a fleet of its own."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.fleet import House, house, resident_megabytes

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```(sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = ["make up", "make test"]
# Of the whole fleet in one process, which has just made its database.
MOST_MEGABYTES = 145


@dataclass(frozen=True, slots=True)
class Block:
    """Commands, and the JSON object their last one is said to print, if one is."""

    commands: str
    printed: object = None


def blocks(document: str) -> list[Block]:
    """The sh blocks in order; a json block tells what the one before it prints."""
    found: list[Block] = []
    for kind, body in FENCE.findall(document):
        if kind == "sh":
            found.append(Block(body))
        else:
            found[-1] = Block(found[-1].commands, json.loads(body))
    return found


def script(parts: Sequence[Block], sinks: Path) -> str:
    """One shell for all, since later blocks use what earlier ones set; the first command that fails ends it."""
    lines = ["set -eu"]
    for n, block in enumerate(parts):
        lines.append(f"{{\n{block.commands}}} > {sinks}/{n}.out 2> {sinks}/{n}.err")
    return "\n".join(lines)


def differs(said: object, real: object, where: str = "answer") -> str:
    """Where the real answer is not the one documented, `...` standing for any text; empty if nowhere."""
    if said == "..." and isinstance(real, str) and real:
        return ""
    if isinstance(said, dict) and isinstance(real, dict):
        if said.keys() != real.keys():
            return f"{where} has the keys {sorted(real)}"
        return next((found for key in said if (found := differs(said[key], real[key], f"{where}.{key}"))), "")
    return "" if said == real else f"{where} is {real!r}"


def run(here: House, parts: Sequence[Block]) -> tuple[int, list[str], str]:
    """Exit code, what each block printed, and the last words on stderr."""
    sinks = here.folder / "printed"
    sinks.mkdir()
    (here.folder / "examples").symlink_to(ROOT / "examples")
    ended = subprocess.run(
        ["bash", "-c", script(parts, sinks)], cwd=here.folder, env=here.environment, timeout=600, check=False
    )
    files = [sinks / f"{n}.out" for n in range(len(parts))]
    printed = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    errors = "".join(file.read_text(encoding="utf-8") for file in sorted(sinks.glob("*.err")))
    return ended.returncode, printed, errors


@pytest.mark.slow
def test_the_tour_goes_as_printed() -> None:
    every = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    installing = [block for block in every if block.commands.strip() in INSTALL]
    tour = [block for block in every if block not in installing]
    assert [block.commands.strip() for block in installing] == INSTALL
    assert sum(block.printed is not None for block in tour) >= 4
    with house() as here, here.up() as running:
        assert resident_megabytes([running.pids["up"]]) <= MOST_MEGABYTES
        code, printed, errors = run(here, tour)
    assert code == 0, f"{tour[len(printed) - 1].commands}{printed[-1]}{errors}"
    wrong = [
        f"{block.commands}{said}"
        for block, real in zip(tour, printed, strict=True)
        if block.printed is not None and (said := differs(block.printed, json.loads(real)))
    ]
    assert wrong == []
    assert errors == ""


@pytest.mark.parametrize(
    ("said", "real"),
    [
        ({"status": "ok"}, {"status": "queued"}),
        ({"status": "ok"}, {"status": "ok", "duplicate": True}),
        ({"id": "..."}, {"id": ""}),
        ({"delivery": {"parts": 1}}, {"delivery": {"parts": 2}}),
        ({"id": "..."}, {"id": None}),
    ],
)
def test_a_difference_is_seen(said: object, real: object) -> None:
    assert differs(said, real)


def test_a_failing_command_ends_the_tour(tmp_path: Path) -> None:
    parts = blocks("```sh\nA=1\n```\n```sh\ntest $A = 2\n```\n```sh\necho never\n```\n")
    code, printed, _ = run(House(tmp_path, 20_000), parts)
    assert (code, len(printed)) == (1, 2)
