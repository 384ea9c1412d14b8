"""The processes of the embedded PostgreSQL: launch one, recognise a live one, end it."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shared.errors import PostgresFailed
from shared.postgres_files import CLEAN_ENVIRONMENT, Place, last_complaint

PATIENCE = 60.0
"""Seconds a start may take; recovery after a crash is the long case."""

POLL = 0.01
LOG_LIMIT = 5_000_000
LAUNCHES = 5
STATUS_LINE = 7
IO_METHOD_SINCE = 18

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "500",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # What a statement carries and what a row holds is told to whoever ran it, and never lies in the log.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "max_logical_replication_workers": "0",
}
SETTINGS_SINCE_18 = {"io_method": "sync"}
"""Three worker processes fewer; a household's database fits in memory."""


BACKEND_KB = 512 * 1024
"""What one connection may hold in memory beside what all share: whoever asks for more is refused, and nobody else."""
LAUNCH = ("/bin/sh", "-c", 'ulimit -d "$0"; exec "$@"', str(BACKEND_KB))


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The server process that serves a data directory; its port is 0 until it is ready."""

    pid: int
    port: int
    ready: bool


def serve(place: Place) -> tuple[Postmaster, bool]:
    """Attach to the live server, or launch one (then True); waits out one that starts, recovers or stops."""
    process: subprocess.Popen[bytes] | None = None
    launches, log_from = 0, 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = find_postmaster(place.data)
        if found is not None and found.ready:
            return found, process is not None and _let_go(process) == found.pid
        if process is not None and process.poll() is not None:
            _give_reason(place, log_from, launches)
            process = None
        if found is None and process is None:
            log_from, launches = _trim_log(place.log), launches + 1
            process = _launch(place, _port(place.folder / "port"))
        time.sleep(POLL)
    if process is not None:
        _let_go(process)
    raise late(place.data, f"see {place.log}")


def _let_go(process: subprocess.Popen[bytes]) -> int:
    """The process's id, from here on our only handle: the server may outlive us. `_reap` waits for it."""
    process.returncode = 0
    return process.pid


def _reap(pid: int) -> None:
    """Wait for an ended server if it was our child: until then PostgreSQL takes it for alive."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def late(where: Path, why: str) -> PostgresFailed:
    """The error of a start that took too long."""
    message = f"PostgreSQL in {where} was not ready within {PATIENCE:.0f} s: {why}."
    return PostgresFailed("postgres_start_timeout", message, "Start again; it may still be recovering.")


def _give_reason(place: Place, log_from: int, launches: int) -> None:
    """Raise what the server that just ended wrote last, unless another try can help.

    It can when the port was taken meanwhile, or when a killed server's children are still ending.
    """
    with place.log.open("rb") as log:
        log.seek(log_from)
        text = log.read().decode(errors="replace")
    passing = ("could not create any TCP/IP sockets", "pre-existing shared memory block", 'lock file "postmaster.pid"')
    if launches < LAUNCHES and any(reason in text for reason in passing):
        time.sleep(0.2)
        return
    raise PostgresFailed(
        "postgres_start_failed",
        f"PostgreSQL in {place.data} ended at once: {last_complaint(text)}.",
        f"Remove that cause and start again; the whole story is in {place.log}.",
    )


def _trim_log(log: Path) -> int:
    """The log's size, after a log grown too large was set aside as `.1`."""
    size = log.stat().st_size if log.exists() else 0
    if size > LOG_LIMIT:
        log.replace(f"{log}.1")
        return 0
    return size


def _port(kept: Path) -> int:
    """The port this installation has once chosen, or a new free one if something else has it now."""
    with suppress(OSError, ValueError, OverflowError):
        if port := int(kept.read_text()):
            return _bound(port)
    port = _bound(0)
    kept.write_text(f"{port}\n")
    return port


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])


def _launch(place: Place, port: int) -> subprocess.Popen[bytes]:
    settings = SETTINGS | {"port": str(port)} | (SETTINGS_SINCE_18 if place.major >= IO_METHOD_SINCE else {})
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with place.log.open("ab") as log:
        return subprocess.Popen(
            [*LAUNCH, place.binaries / "postgres", "-D", place.data, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            start_new_session=True,
            user=place.account.uid,
            group=place.account.gid,
            extra_groups=place.account.groups,
        )


def find_postmaster(data: Path) -> Postmaster | None:
    """The live server of this data directory; a stale file or a reused process id counts as none.

    The lines of postmaster.pid: pid, data, start time, port, socket folder, address, memory, status.
    """
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].isdigit():
        return None
    if not _serves(int(lines[0]), data):
        _reap(int(lines[0]))
        return None
    ready = len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"
    return Postmaster(int(lines[0]), int(lines[3]) if ready else 0, ready)


def _serves(pid: int, data: Path) -> bool:
    """Whether this process really is a postmaster of this data directory; a zombie is none."""
    if Path("/proc/self").exists():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return False
    else:
        asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
        command = asked.stdout
    return "postgres" in command.partition(" ")[0] and f"-D {data} " in f"{command.strip()} "


def end(pid: int, data: Path, patience: float) -> None:
    """Ask for a fast shutdown (SIGINT), after `patience` seconds for an immediate one (SIGQUIT)."""
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
            f"PostgreSQL (process {pid}) does not end.",
            "Its data is safe; end that process by hand.",
        )
    _reap(pid)
