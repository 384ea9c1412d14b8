"""The processes of the embedded PostgreSQL: launch one, recognise a live one, end it and what it left behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shared.errors import PostgresFailed
from shared.postgres.files import CLEAN_ENVIRONMENT, Place, last_complaint
from shared.postgres.socket_folder import NAME, PORT, folder_for, setting

PATIENCE = 60.0
"""Seconds a start may take; recovery after a crash is the long case."""

POLL = 0.01
LOG_LIMIT = 5_000_000
BREATH = 0.2
"""Seconds between a launch that failed for a passing reason and the next."""

FOLDER_LINE, STATUS_LINE = 4, 7
PROCESSES = Path("/proc")

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "max_connections": "500",
    # A client that connects and does not log in holds a place for so long; we give a login up then, too.
    "authentication_timeout": "10s",
    "shared_buffers": "64MB",
    # A plan holds until PostgreSQL has counted the rows anew: after a flood that is within seconds, and not a minute.
    "autovacuum_naptime": "10s",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # The values of a statement or a row are reported to the client that sent it, and never logged.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "max_logical_replication_workers": "0",
}
SETTINGS_SINCE = {
    # Places that no butler's login takes (`butlers/setup/logins.py`).
    16: {"reserved_connections": "40"},
    # Three worker processes fewer; a household's database fits in memory.
    18: {"io_method": "sync"},
}
BACKEND_KB = 512 * 1024
"""What one connection may hold in memory beside what all share: whoever asks for more is refused, and nobody else."""
LAUNCH = ("/bin/sh", "-c", 'ulimit -d "$0"; exec "$@"', str(BACKEND_KB))


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The server process of a data directory; once it is ready, with the folder of its socket if it has one."""

    pid: int
    folder: Path | None
    ready: bool


def serve(place: Place, end_older: Callable[[Postmaster], None], patience: float = PATIENCE) -> tuple[Postmaster, bool]:
    """Attach to the live server, or launch one (then True); wait while one starts, recovers or dies.

    `end_older` ends one that an older program started on TCP, or says why it cannot.
    """
    process: subprocess.Popen[bytes] | None = None
    log_from, folder = 0, folder_for(place.base, place.account)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = find_postmaster(place.data)
        if found is not None and found.ready:
            if found.folder is not None:
                return found, process is not None and _let_go(process) == found.pid
            end_older(found)
        if process is not None and process.poll() is not None:
            _give_reason(place, log_from)
            process = None
        if found is None and process is None:
            _clear_away(place.data, folder)
            log_from = _trim_log(place.log)
            process = _launch(place, folder)
        time.sleep(POLL)
    if process is not None:
        _let_go(process)
    raise late(place.data, f"see {place.log}", patience)


def _let_go(process: subprocess.Popen[bytes]) -> int:
    """Return the process's id, from here on our only handle: the server may outlive us. `_reap` waits for it."""
    process.returncode = 0
    return process.pid


def _reap(pid: int) -> None:
    """Wait for an ended server if it was our child: until then PostgreSQL takes it for alive."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def late(where: Path, why: str, patience: float = PATIENCE) -> PostgresFailed:
    """Return the error of a start that took too long."""
    message = f"PostgreSQL in {where} was not ready within {patience:.0f} s: {why}."
    return PostgresFailed("postgres_start_timeout", message, "Start again; it may still be recovering.")


def _give_reason(place: Place, log_from: int) -> None:
    """Raise what the server that just ended wrote last, unless the same attempt can succeed in a moment.

    It can while a killed server or its children are still ending. PostgreSQL's advice for that case is not passed on: a
    lock that somebody could remove by hand is all that keeps two servers off the same data.
    """
    with place.log.open("rb") as log:
        log.seek(log_from)
        text = log.read().decode(errors="replace")
    if any(reason in text for reason in ("pre-existing shared memory block", 'lock file "')):
        time.sleep(BREATH)
        return
    raise PostgresFailed(
        "postgres_start_failed",
        f"PostgreSQL in {place.data} stopped immediately: {last_complaint(text)}.",
        f"See {place.log}; leave all files in the data folder as they are, and start again.",
    )


def _clear_away(data: Path, folder: Path) -> None:
    """End what a killed server left running, and remove the locks that it had made and not yet written.

    The caller keeps all others from starting, and no server lives. A process that is left would hold the data's memory,
    and so keep a new server waiting, for as long as its statement takes.
    """
    if not (PROCESSES / "self").exists():
        return
    inside = dict(_inside(data.resolve()))
    for pid, parent in inside.items():
        if parent not in inside and _command(pid).startswith("postgres: "):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for lock in (data / "postmaster.pid", folder / f"{NAME}.lock"):
        if not inside and lock.exists() and not lock.stat().st_size:
            lock.unlink()


def _inside(data: Path) -> Iterator[tuple[int, int]]:
    """Yield every process that works in this folder, with its parent; a server and all its children do."""
    for entry in PROCESSES.iterdir():
        with suppress(OSError):  # it is gone, or another user's
            if entry.name.isdigit() and (entry / "cwd").readlink() == data:
                status = (entry / "status").read_text(errors="replace").splitlines()
                yield int(entry.name), next(int(one.split()[1]) for one in status if one.startswith("PPid:"))


def _trim_log(log: Path) -> int:
    """Return the log's size, after leaving only the end of a log that grew too large.

    A login can fill it with what it gives wrong at each connection; a start makes room again.
    """
    size = log.stat().st_size if log.exists() else 0
    if size > LOG_LIMIT:
        with log.open("r+b") as file:
            file.seek(-LOG_LIMIT, os.SEEK_END)
            end = file.read()
            file.seek(0)
            file.truncate()
            file.write(end)
    return min(size, LOG_LIMIT)


def _launch(place: Place, folder: Path) -> subprocess.Popen[bytes]:
    settings = {**SETTINGS, "unix_socket_directories": setting(folder)}
    for major, further in SETTINGS_SINCE.items():
        settings |= further if place.major >= major else {}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    # No server lives, so the process id in a lock that is left means a zombie or a stranger. PostgreSQL takes a lock
    # with its grandparent's id for such a one; whether old processes still use the data's memory, it asks all the same.
    stale = _locker(place.data)
    environment = CLEAN_ENVIRONMENT | ({"PG_GRANDPARENT_PID": str(stale)} if stale else {})
    with place.log.open("ab") as log:
        return subprocess.Popen(
            [*LAUNCH, place.binaries / "postgres", "-D", place.data, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            start_new_session=True,
            user=place.account.uid,
            group=place.account.gid,
            extra_groups=place.account.groups,
        )


def _lock_of(data: Path) -> list[str]:
    """Return the lines of postmaster.pid: pid, data, start time, port, socket folder, address, memory, status."""
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _locker(data: Path) -> int:
    """Return the process id in postmaster.pid; 0 where there is none."""
    lines = _lock_of(data)
    return int(lines[0]) if lines and lines[0].isdigit() else 0


def find_postmaster(data: Path) -> Postmaster | None:
    """Return the live server of this data directory; a stale file or a reused process id counts as none."""
    lines, pid = _lock_of(data), _locker(data)
    if not pid:
        return None
    if not _serves(pid, data):
        _reap(pid)
        return None
    ready = len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"
    folder = Path(lines[FOLDER_LINE]) if ready and lines[FOLDER_LINE] else None
    return Postmaster(pid, folder, ready)


def _serves(pid: int, data: Path) -> bool:
    """Return whether this process really is a postmaster of this data directory; no zombie, and not another user's."""
    command = _command(pid)
    with suppress(OSError):
        if (PROCESSES / "self").exists() and (PROCESSES / str(pid)).stat().st_uid != data.stat().st_uid:
            return False
    return "postgres" in command.partition(" ")[0] and f"-D {data} " in f"{command.strip()} "


def _command(pid: int) -> str:
    """Return the command line of a process; empty for one that is gone, and for a zombie."""
    if (PROCESSES / "self").exists():
        try:
            return (PROCESSES / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def end(pid: int, data: Path, patience: float) -> None:
    """End a server by a fast shutdown (SIGINT), after `patience` seconds by an immediate one (SIGQUIT)."""
    for how, seconds in ((signal.SIGINT, patience), (signal.SIGQUIT, 6.0)):
        if _serves(pid, data):
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + seconds
        while _serves(pid, data) and time.monotonic() < deadline:
            time.sleep(POLL)
    if _serves(pid, data):
        raise PostgresFailed(
            "postgres_stop_failed",
            f"PostgreSQL (process {pid}) does not stop.",
            "Its data is safe; stop that process by hand.",
        )
    _reap(pid)
