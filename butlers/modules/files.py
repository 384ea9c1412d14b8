"""The module `files`: a butler's agent is told which files changed in the folders that the owner has it watch.

It tells names alone, and begins no work. Whoever may write there chooses the names: they are somebody else's words. How
many there are is theirs to choose too, so that a process of its own watches, of little memory and without a key.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from butlers.butler import Components, Context, Module
from shared.display.visible import in_line
from shared.errors import ButlersError, Misconfigured, Unavailable
from shared.storage import notices
from shared.storage.notices import Notice
from shared.telemetry.logs import logger

log = logger("butlers.modules.files")
SOURCE: Final = "files"
CHILD: Final = Path(__file__).with_name("files_child.py")
# To watch 40,000 folders takes 22 of them, and 400,000 files that are written in one go 170.
MEMORY_MB: Final = 256
ENVIRONMENT: Final = {"LANG": "C.UTF-8"}
MOST_NAMED: Final = 5
LONGEST_NAME: Final = 80
LONGEST_COMPLAINT: Final = 300


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("give each folder by its whole path, from / on")
    return path


class FilesConfig(BaseModel):
    """What a butler watches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folders: Annotated[list[Annotated[Path, AfterValidator(_absolute)]], Field(max_length=20)] = Field(
        default=[], description="The folders, by their whole paths; all that is in them is watched."
    )


def build(context: Context, config: FilesConfig) -> Components:
    """Make the watch over the folders of one butler."""

    async def start() -> None:
        demand(config.folders, context.home)

    async def watch(stopping: asyncio.Event) -> None:
        demand(config.folders, context.home)
        child = await _begun(config.folders)
        ending = asyncio.create_task(_end_at(stopping, child))
        try:
            complaint = await _follow(context, config, child)
        finally:
            ending.cancel()
            _kill(child)
            code = await child.wait()
        if not stopping.is_set():
            demand(config.folders, context.home)
            why = f"exit code {code}{complaint and ': '}{complaint}"
            raise Unavailable(
                f"What watches the folders ended, and what had just changed is not told ({why}).",
                "It is started again.",
            )

    return Components(loops=[watch], start=start)


def demand(folders: Sequence[Path], home: Path) -> None:
    """Raise Misconfigured for no folder, for one that is not there, and for one in which we write ourselves."""
    if not folders:
        raise Misconfigured("The module `files` watches nothing.", "Give it `folders` below [files].")
    for folder in folders:
        if not folder.is_dir():
            raise Misconfigured(f"There is no folder `{folder}`.", "Make it, or take it out of [files] folders.")
        there, ours = folder.resolve(), home.resolve()
        if there.is_relative_to(ours) or ours.is_relative_to(there):
            raise Misconfigured(
                f"`{folder}` holds this installation's own files, which change all the time.", "Watch another folder."
            )


async def _begun(folders: Sequence[Path]) -> asyncio.subprocess.Process:
    """Start what watches the folders; it ends when its input does, and so with this process."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(CHILD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    watched = {"folders": [str(one) for one in folders], "memory_mb": MEMORY_MB, "most_named": MOST_NAMED}
    if child.stdin is not None:
        # Of a name that is too long it hands over one letter more than is shown, which says so.
        child.stdin.write(json.dumps({**watched, "longest": LONGEST_NAME + 1}).encode() + b"\n")
    return child


def _kill(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()


async def _end_at(stopping: asyncio.Event, child: asyncio.subprocess.Process) -> None:
    await stopping.wait()
    _kill(child)


async def _follow(context: Context, config: FilesConfig, child: asyncio.subprocess.Process) -> str:
    """Tell what the child says until it ends; return the end of what else it wrote, which says why."""
    else_said = ""
    while child.stdout is not None and (line := await child.stdout.readline()):
        try:
            number, count, named = json.loads(line)
            folder, words = config.folders[number], [(str(name), str(word)) for name, word in named]
        except (ValueError, TypeError, LookupError):
            else_said = f"{else_said} {line.decode(errors='replace').strip()}"[-LONGEST_COMPLAINT:]
            continue
        if words:
            await _tell(context, folder, said(folder, words, int(count)))
    return else_said.strip()


async def _tell(context: Context, folder: Path, words: str) -> None:
    """Make one notice of what changed together in a folder; what cannot be written now is not told."""
    notice = Notice(SOURCE, "changed", words, key=str(folder), trust="external", priority="low")
    try:
        async with context.db.work() as connection:
            await notices.add(connection, context.name, notice)
    except ButlersError as lost:
        log.warning("changed files are not told", butler=context.name, why=lost.message)


def said(folder: Path, named: Sequence[tuple[str, str]], count: int) -> str:
    """Return what changed in a folder in one line: a few names, and how many more there are."""
    names = [f"{_shown(name)} ({word})" for name, word in named]
    rest = f" and {count - len(names):,} more files" if count > len(names) else ""
    return f"In {_shown(str(folder))}: {', '.join(names)}{rest}"


def _shown(name: str) -> str:
    # Of what is no text only that much can be told.
    plain = name.encode("utf-8", "replace").decode()
    return in_line(plain if len(plain) <= LONGEST_NAME else f"…{plain[-LONGEST_NAME:]}")


MODULE: Final = Module("files", build, FilesConfig)
