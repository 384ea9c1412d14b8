"""Reload: what the fleet's folders say now is checked whole, and then taken up by a running process.

A process notes itself below BUTLERS_HOME, so that `butlers reload` finds it: a file named by its number, locked as long
as it lives, with its namespace of numbers, how often it has reloaded, and what came of the last time.
"""

import fcntl
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from butlers import fleet
from butlers.butler import Context, NoConfig, joined, unfit
from butlers.daemon.assembly import TOPICS, parts_of
from butlers.daemon.host import Hangup
from butlers.daemon.process import Process
from butlers.modules import loader
from butlers.sessions.settings import demand_setups
from shared.auth.keypairs import generate_key
from shared.auth.tokens import Signer
from shared.config.settings import Settings
from shared.db.pool import Database
from shared.db.wake import Wake
from shared.errors import ButlersError, Misconfigured
from shared.rpc import DaemonClient
from shared.telemetry.logs import logger

log = logger("butlers.cli.reload")
FOLDER: Final = "running"
NAMESPACE: Final = Path("/proc/self/ns/pid")
Prepare = Callable[[Sequence[fleet.Entry]], Awaitable[Sequence[str]]]


async def survey(settings: Settings) -> tuple[list[fleet.Entry], list[Misconfigured]]:
    """Read the fleet whole: its files, its modules, and the tools that its schedules name; start and write nothing."""
    entries, mistakes = fleet.survey(settings.fleet, settings.home)
    for entry in entries:
        try:
            demand_setups([entry])
            mistakes += _unfit_calls(entry, _context(settings, entry.name))
        except Misconfigured as wrong:
            mistakes.append(wrong)
    return entries, mistakes


def _unfit_calls(entry: fleet.Entry, context: Context) -> Iterator[Misconfigured]:
    """Yield a mistake for each schedule whose call does not fit; raise Misconfigured for its modules.

    Of a module that is broken nobody knows the tools, so that nothing can be said.
    """
    from butlers.daemon.app import CORE  # noqa: PLC0415  # it brings a server of MCP along

    modules = loader.load(entry)
    if not all(part.tools or part.loops for part in (loader.built(one, context) for one in modules)):
        return
    core = [module.build(context, NoConfig()) for module in CORE]
    known = {tool.name: tool for tool in joined([*core, parts_of(modules, entry, context)]).tools}
    for one in entry.schedules:
        where = f"{entry.name}: [[schedules]] {one.name}:"
        if one.tool is not None:
            yield from (Misconfigured(f"{where} {why}", hint) for why, hint in unfit(known, one.tool, one.arguments))


def _context(settings: Settings, name: str) -> Context:
    """Return a context in which modules can be built, and nothing can be reached."""

    async def nobody(_: str) -> Sequence[str]:
        return ()

    return Context(
        name=name,
        instance=f"{name}@check",
        home=settings.home,
        settings=settings,
        db=Database.unreachable(),
        daemons=DaemonClient(Signer(name, generate_key()[0], time.time), nobody, {}, settings.timings),
        secret=b"",
        new_id=lambda: "",
        wakes={topic: Wake() for topic in TOPICS},
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """What is to be done so that a process serves what the fleet says now."""

    removed: Sequence[str]
    changed: Sequence[str]
    added: Sequence[str]

    def __str__(self) -> str:
        """Return it as a sentence."""
        told = [
            f"{what} {', '.join(names)}"
            for what, names in (("added", self.added), ("changed", self.changed), ("removed", self.removed))
            if names
        ]
        return f"{'; '.join(told).capitalize()}." if told else "Nothing has changed."


def difference(before: Sequence[fleet.Entry], now: Sequence[fleet.Entry], served: Sequence[str]) -> Difference:
    """Compare two readings of the fleet; `served` are the daemons of the process. Pure."""
    was, are = {one.name: one for one in before}, {one.name: one for one in now}
    return Difference(
        [name for name in served if name in was and name not in are],
        [name for name in served if name in was and name in are and was[name] != are[name]],
        [name for name in are if name not in served],
    )


async def take_up(process: Process, prepare: Prepare | None = None) -> str:
    """Take up what the fleet says now, and say what that was; raise Misconfigured if it cannot be, and change nothing.

    `prepare` makes what new butlers need: keys, logins, tables.
    """
    entries, mistakes = await survey(process.plan.settings)
    if mistakes:
        raise mistakes[0]
    what = difference(process.plan.entries, entries, [*process.served])
    what = what if process.plan.whole else replace(what, added=[])
    troubles = await prepare(entries) if prepare is not None else []
    before = process.plan.entries
    process.know(entries)
    try:
        await _carry_out(process, what)
    except ButlersError:
        # So that the next reload finds the difference again: what has been added is served.
        process.know([*before, *(one for one in entries if one.name in what.added and one.name in process.served)])
        raise
    if what.removed and not process.served:
        process.stopping.set()
    return " ".join([str(what), *troubles])


async def _carry_out(process: Process, what: Difference) -> None:
    for name in what.removed:
        await process.remove(name)
    for name in what.changed:
        await process.exchange(name)
    for name in what.added:
        for made in await process.open(replace(process.plan, names=[name])):
            process.start(made)


def noted(home: Path, prepare: Prepare | None = None) -> Hangup:
    """Return what notes that a process of this home is there, and what SIGHUP means to it."""

    def begin(process: Process) -> Callable[[], Awaitable[None]]:
        record = _Record(home)

        async def reload() -> None:
            try:
                said = await take_up(process, prepare)
            except ButlersError as unfit:
                said = f"Not reloaded: {unfit}"
            log.info("the fleet was read again", said=said)
            record.write(said)

        return reload

    return begin


class _Record:
    """The file by which this process is found; without one, where the home is not its own to write, it is not."""

    def __init__(self, home: Path) -> None:
        self._count = -1
        self._file: int | None = None
        with suppress(OSError):
            (home / FOLDER).mkdir(mode=0o700, exist_ok=True)
            self._file = os.open(home / FOLDER / str(os.getpid()), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write("")

    def write(self, said: str) -> None:
        self._count += 1
        if self._file is not None:
            text = f"{NAMESPACE.readlink()}\n{self._count}\n{said}\n".encode()
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))


def ask_processes(home: Path, seconds: float) -> list[tuple[int, str | None]]:
    """Ask every process of this home to reload; return what each says, or None where it says nothing in time."""
    asked: list[tuple[Path, str]] = []
    for path in sorted((home / FOLDER).glob("[0-9]*")):
        with _alive(path) as lines:
            if lines and lines[0] == str(NAMESPACE.readlink()):
                os.kill(int(path.name), signal.SIGHUP)
                asked.append((path, lines[1]))
    deadline = time.monotonic() + seconds
    return [(int(path.name), _answer(path, count, deadline)) for path, count in asked]


def _answer(path: Path, count: str, deadline: float) -> str | None:
    while time.monotonic() < deadline:
        with _alive(path) as lines:
            if not lines:
                return "It has ended."
            if lines[1] != count:
                return lines[2]
        time.sleep(0.05)
    return None


@contextmanager
def _alive(path: Path) -> "Iterator[list[str]]":
    """Give the file's lines if its process lives; if not, remove it and give none."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield []
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        yield []
    except BlockingIOError:
        yield os.pread(file, 65536, 0).decode().splitlines()
    finally:
        os.close(file)
