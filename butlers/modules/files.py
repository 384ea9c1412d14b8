"""The module `files`: a butler's agent is told which files changed in the folders that the owner has it watch.

It tells names alone, and begins no work. Whoever may write there chooses the names: they are somebody else's words.
"""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from watchfiles import Change, awatch

from butlers.butler import Components, Context, Module
from shared.display.visible import in_line
from shared.errors import ButlersError, Misconfigured
from shared.storage import notices
from shared.storage.notices import Notice
from shared.telemetry.logs import logger

log = logger("butlers.modules.files")
SOURCE: Final = "files"
# Milliseconds: what changes in one go is gathered until nothing has changed for so long, or for so long at most.
QUIET, GATHERED = 200, 5000
MOST_NAMED: Final = 5
LONGEST_NAME: Final = 80
WORDS: Final = {Change.added: "added", Change.modified: "changed", Change.deleted: "deleted"}


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
        changes = awatch(*config.folders, step=QUIET, debounce=GATHERED, stop_event=stopping, watch_filter=None)
        async for some in changes:
            await _tell(context, config.folders, some)
            # A folder that went away, and perhaps came back, is watched no more: begin anew.
            demand(config.folders, context.home)

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


async def _tell(context: Context, folders: Sequence[Path], changes: Collection[tuple[Change, str]]) -> None:
    """Make of all that changed together one notice for each folder; what cannot be written now is not told."""
    for folder in folders:
        # Whoever may write there may change hundreds of thousands at once; nothing else of the process waits for that.
        words = await asyncio.to_thread(_named, folder, changes)
        if not words:
            continue
        notice = Notice(SOURCE, "changed", words, key=str(folder), trust="external", priority="low")
        try:
            async with context.db.work() as connection:
                await notices.add(connection, context.name, notice)
        except ButlersError as lost:
            log.warning("changed files are not told", butler=context.name, why=lost.message)


def _named(folder: Path, changes: Collection[tuple[Change, str]]) -> str:
    """Return what changed in the folder in one line; nothing if nothing did."""
    # Of a file that was replaced the last is said: that it is there.
    each = sorted(changes, key=lambda one: one[0] == Change.added)
    found = {name: change for change, path in each if (name := _below(folder, path))}
    return said(folder, found) if found else ""


def _below(folder: Path, path: str) -> str:
    """Return the file's name as it is within the folder; nothing if it is not in it."""
    within = Path(path).is_relative_to(folder) and Path(path) != folder
    return str(Path(path).relative_to(folder)) if within else ""


def said(folder: Path, changed: dict[str, Change]) -> str:
    """Return what changed in a folder in one line, however much that is."""
    names = [f"{_shown(name)} ({WORDS[changed[name]]})" for name in sorted(changed)[:MOST_NAMED]]
    rest = f" and {len(changed) - MOST_NAMED:,} more files" if len(changed) > MOST_NAMED else ""
    return f"In {_shown(str(folder))}: {', '.join(names)}{rest}"


def _shown(name: str) -> str:
    # Of what is no text only that much can be told.
    plain = name.encode("utf-8", "replace").decode()
    return in_line(plain if len(plain) <= LONGEST_NAME else f"…{plain[-LONGEST_NAME:]}")


MODULE: Final = Module("files", build, FilesConfig)
