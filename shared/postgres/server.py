"""The embedded PostgreSQL server: start it, attach to it, stop it.

One data directory has at most one server, no matter which process started it. It runs in a session of its own, so a
terminal's Ctrl-C or the death of its starter leaves it running, and the next start attaches to it. Each holder of a
`Server` from `start` holds a shared lock on it; the last holder to call `stop` ends it. Every function blocks: call
them from a thread, or `begin` early and collect with `wait`.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from shared.errors import PostgresFailed
from shared.postgres.files import (
    SYSTEM_FOLDER,
    Account,
    Place,
    find_data,
    find_place,
    initialise,
    read_password,
    write_private,
)
from shared.postgres.process import PATIENCE, POLL, Postmaster, end, find_postmaster, late, serve
from shared.postgres.socket_folder import demand_own, url

__all__ = ["PostgresFailed", "Server", "Starting", "begin", "running", "start", "stop"]


HOME_FILE: Final = "home"
"""Beside the data: which home it belongs to, so that a copy of that home does not write into it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the superuser's URL of its database `postgres`, and the locks that show that we use it."""

    dsn: str = field(repr=False)
    folder: Path
    data: Path
    pid: int
    started_by_us: bool
    locks: tuple[TextIO, ...] = field(default=(), repr=False, compare=False)

    def dsn_of(self, database: str) -> str:
        """Return the superuser's URL of another database of this server."""
        return f"{self.dsn.removesuffix('/postgres')}/{database}"


class Starting:
    """A start under way in a thread, so that the caller can import heavy modules meanwhile."""

    def __init__(self, home: Path, *, exclusive: bool, system_folder: Path, moved: bool) -> None:
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres")
        self._outcome = thread.submit(start, home, exclusive=exclusive, system_folder=system_folder, moved=moved)
        thread.shutdown(wait=False)

    def wait(self) -> Server:
        """Return the server once it accepts connections.

        A caller that gives up in between must still wait, and then stop the server.
        """
        return self._outcome.result()


def begin(home: Path, *, exclusive: bool = False, system_folder: Path = SYSTEM_FOLDER, moved: bool = False) -> Starting:
    """Start the server of this BUTLERS_HOME, or attach to it, without waiting for it."""
    return Starting(home, exclusive=exclusive, system_folder=system_folder, moved=moved)


def start(home: Path, *, exclusive: bool = False, system_folder: Path = SYSTEM_FOLDER, moved: bool = False) -> Server:
    """Start the server of this BUTLERS_HOME, or attach to it, and wait until it accepts connections.

    `exclusive` is for the one process that is the whole installation: a second one gets an error. `moved` takes over
    data that names another home, as long as nobody uses it.
    Takes about 0.7 s the first time (plus 0.3 s where root has to copy the binaries), 0.05 s afterwards.
    """
    with _plainly(), ExitStack() as held:
        place = find_place(home, system_folder)
        if not moved:
            _demand_own_data(place.base, home)
        locks = [held.enter_context(_claim(place))] if exclusive else []
        with _starting(place.base) as starting:
            if not moved:
                _demand_own_data(place.base, home)
            _note_home(place.base, home)
            password = read_password(place)
            if not place.data.exists():
                initialise(place, password, starting.fileno())
            locks.append(held.enter_context(_open(place.base / "users.lock")))
            postmaster, ours = serve(place, partial(_end_older, place, locks[-1]))
            fcntl.flock(locks[-1], fcntl.LOCK_SH)
        held.pop_all()
    return _server(place.data, password, postmaster, *locks, ours=ours)


def running(home: Path) -> Server | None:
    """Return the server of this BUTLERS_HOME if it is up, for a client that neither starts nor keeps it."""
    with _plainly():
        data = find_data(home)
        if data is not None:
            _demand_own_data(data.parent, home)
        postmaster = None if data is None else find_postmaster(data)
        if data is None or postmaster is None or not postmaster.ready:
            return None
        if postmaster.folder is None:
            raise _older(data)
        password = (home.resolve() / "postgres" / "password").read_text().strip()
        return _server(data, password, postmaster, ours=False)


def is_gone(home: Path) -> bool:
    """Return whether no process serves the data of this BUTLERS_HOME, not even one that starts or recovers."""
    with _plainly():
        data = find_data(home)
        return data is not None and find_postmaster(data) is None


def revive(home: Path, *, system_folder: Path = SYSTEM_FOLDER, patience: float = 5.0) -> None:
    """Start the server again for its holders; it goes on starting where it needs longer than `patience` seconds."""
    with _plainly():
        place = find_place(home, system_folder)
        with _starting(place.base):
            serve(place, partial(_end_older, place, None), patience)


def stop(server: Server, patience: float = 4.0) -> bool:
    """Give the server up, and end it if nobody else uses it: fast, then at once after `patience` seconds.

    Returns whether it was ended. A server from `running`, or given up before, is never ended.
    """
    if not server.locks or server.locks[0].closed:
        return False
    with _plainly(), ExitStack() as held, _starting(server.data.parent):
        for lock in server.locks:
            held.enter_context(lock)
        if not _locked_alone(server.locks[-1]):
            return False
        found = find_postmaster(server.data)  # it may be another than the one we began with
        if found is not None:
            end(found.pid, server.data, patience)
        return True


def _demand_own_data(base: Path, home: Path) -> None:
    """Raise PostgresFailed if the data names another home than this one: this home is a copy, or was moved.

    A folder that was renamed is known by its number in the file system, which no copy shares. The path alone is enough
    too: `butlers restored` has to reach a home that was put back by hand before anything of it starts, and some file
    systems number their folders anew at each start.
    """
    named = _home_of(base)
    if named is None or named[0] == str(home.resolve()) or named[1] == _number_of(home):
        return
    raise PostgresFailed(
        "postgres_other_home",
        f"The database in {base} belongs to the home {named[0]}, and this is {home.resolve()}.",
        f"If it was moved, run `butlers up --moved` here. If it is a copy, remove it, run `butlers backup FILE` in "
        f"{Path(named[0]).parent}, and `butlers restore FILE` here.",
    )


def _note_home(base: Path, home: Path) -> None:
    """Let the data name this home."""
    if _home_of(base) != (noted := (str(home.resolve()), _number_of(home))):
        write_private(base / HOME_FILE, "\n".join(noted), Account())


def _home_of(base: Path) -> tuple[str, str] | None:
    """Return the path and the number of the home that the data names; None where it names none yet."""
    path = base / HOME_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    return (lines[0], lines[1]) if len(lines) > 1 else None


def _number_of(home: Path) -> str:
    found = home.stat()
    return f"{found.st_dev}:{found.st_ino}"


def _server(data: Path, password: str, found: Postmaster, *locks: TextIO, ours: bool) -> Server:
    if found.folder is None:
        raise _older(data)
    demand_own(found.folder, data.stat().st_uid)
    return Server(url(found.folder, password), found.folder, data, found.pid, ours, locks)


def _older(data: Path) -> PostgresFailed:
    return PostgresFailed(
        "postgres_older",
        f"PostgreSQL in {data} is still serving an older version of Butlers by TCP.",
        "Stop that version, then start with `butlers up`.",
    )


def _end_older(place: Place, users: TextIO | None, found: Postmaster) -> None:
    """End a server on TCP that nobody uses any more; the next server goes on with its data."""
    if users is None or not _locked_alone(users):
        raise _older(place.data)
    end(found.pid, place.data, 4.0)


@contextmanager
def _plainly() -> Iterator[None]:
    """Turn an error of the operating system into a sentence that names the path."""
    try:
        yield
    except OSError as error:
        raise PostgresFailed(
            "postgres_cannot_write",
            f"PostgreSQL's files cannot be used: {error.strerror or error}: {error.filename}.",
            "Give this user access to that path, or choose another folder with --home.",
        ) from error


def _open(path: Path) -> TextIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+", encoding="utf-8")


def _locked_alone(file: TextIO) -> bool:
    """Return whether this open file now has its lock to itself; never wait."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _claim(place: Place) -> TextIO:
    with ExitStack() as held:
        lock = held.enter_context(_open(place.base / "owner.lock"))
        if not _locked_alone(lock):
            raise PostgresFailed(
                "postgres_in_use",
                f"Another `butlers up` (process {lock.read().strip()}) is using {place.folder.parent}.",
                "Stop that one first, or choose another folder with --home.",
            )
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        held.pop_all()
    return lock


@contextmanager
def _starting(base: Path) -> Iterator[TextIO]:
    """Let only one process at a time start or stop the server.

    The lock also lives in that process's initdb, in case the process is killed.
    """
    deadline = time.monotonic() + PATIENCE
    with _open(base / "starting.lock") as lock:
        while not _locked_alone(lock):
            if time.monotonic() > deadline:
                raise late(base, "another process is still starting or stopping it")
            time.sleep(POLL)
        yield lock
