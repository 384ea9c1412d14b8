"""A PostgreSQL whose clock a test sets while it runs: libfaketime tells it another time of day, nobody else.

What counts seconds and never jumps goes on in it as everywhere.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.postgres import server as postgres

LIBRARY: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
PATIENCE_SECONDS: Final = 30.0
HOUR: Final = 3600
DAY: Final = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Clock:
    """What the database takes for the time of day, as far off as the file says."""

    file: Path

    def off_by(self, seconds: float) -> None:
        """From here on the database's clock is so far ahead (or behind, if negative)."""
        other = self.file.with_suffix(".new")
        other.write_text(f"{seconds:+.0f}\n")
        other.chmod(0o644)
        other.replace(self.file)


@contextmanager
def clock_of(server: postgres.Server, folder: Path) -> Iterator[Clock]:
    """Start that server anew, with a clock of its own that is right at first; end it afterwards."""
    assert LIBRARY is not None, "libfaketime is not here; install Debian's package libfaketime"
    clock = Clock(folder / "clock")
    clock.off_by(0)
    argv = shlex.split((server.data / "postmaster.opts").read_text())
    owner = server.data.stat()
    os.kill(server.pid, signal.SIGINT)
    _until(lambda: not (server.data / "postmaster.pid").exists())
    faked = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock.file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    is_root = os.geteuid() == 0
    with (folder / "set-clock.log").open("wb") as log:
        process = subprocess.Popen(
            argv,
            env={"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C", **faked},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            user=owner.st_uid if is_root else None,
            group=owner.st_gid if is_root else None,
            extra_groups=[] if is_root else None,
        )
    try:
        _until(lambda: _is_ready(server.data / "postmaster.pid"))
        yield clock
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)


def _is_ready(pid_file: Path) -> bool:
    """The last line says so; the process is another than before."""
    return pid_file.exists() and pid_file.read_text().splitlines()[-1:] == ["ready   "]


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, "PostgreSQL took too long"
        time.sleep(0.02)
