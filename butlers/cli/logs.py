"""logs: what the daemons logged lately, from the files that they keep in the home."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import remark, say, say_json, settings_of
from shared.errors import InvalidInput, Misconfigured
from shared.home_folder import LOGS

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LOOKS_SECONDS: Final = 0.3
HEAD: Final = ("at", "level", "daemon", "event")


def add_to(line: typer.Typer) -> None:
    """Put this command on the command line."""
    line.command()(logs)


def logs(
    daemon: Annotated[str | None, typer.Option("--daemon", help="Only the lines of this daemon.")] = None,
    level: Annotated[str, typer.Option("--level", help="Only from this level on, such as warning.")] = "debug",
    most: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines to print.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Print what the daemons logged lately; each process keeps its last 5 MB."""
    if level not in LEVELS:
        raise InvalidInput(f"Unknown level `{level}`.", f"Choose from: {', '.join(LEVELS)}.")
    folder = settings_of(None, home_folder).home / LOGS
    if not folder.is_dir():
        raise Misconfigured(f"There are no logs in {folder}.", "Start them with `butlers up`, or correct --home.")
    wanted = (daemon, LEVELS.index(level))
    reader = Reader(folder)
    found = sorted((line for line in reader.lines() if _fits(line, *wanted)), key=lambda line: str(line.get("at")))
    if not found:
        remark("Nothing was logged.")
    for line in found[len(found) - min(most, len(found)) :]:
        _print(line, as_json=as_json)
    while follow:
        sys.stdout.flush()
        for line in reader.lines():
            if _fits(line, *wanted):
                _print(line, as_json=as_json)
        time.sleep(LOOKS_SECONDS)


class Reader:
    """The files of a folder, each read once and then from where it was left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # How far each file was read, by its number on the disk: one that is put aside keeps it.
        self._read: dict[int, int] = {}

    def lines(self) -> Iterator[Mapping[str, object]]:
        """Yield each line that is whole and was not read before."""
        for path in sorted(self._folder.glob("*.jsonl*")):
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                number = found.st_ino
                if self._read.get(number, 0) > found.st_size:  # a new file, which was given the number of an old one
                    del self._read[number]
                file.seek(self._read.get(number, 0))
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    self._read[number] = self._read.get(number, 0) + len(raw)
                    if (line := _object(raw)) is not None:
                        yield line


def _object(raw: bytes) -> Mapping[str, object] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _fits(line: Mapping[str, object], daemon: str | None, least: int) -> bool:
    level = line.get("level")
    return daemon in {None, line.get("daemon")} and (level not in LEVELS or LEVELS.index(str(level)) >= least)


def _print(line: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        say_json(line, lines=None)
        return
    at, level, daemon, event = (str(line.get(name, "")) for name in HEAD)
    more = " ".join(f"{name}={value}" for name, value in line.items() if name not in {*HEAD, "logger"})
    say(f"{at} {level:<8} {daemon:<12} {event} {more}".rstrip())
