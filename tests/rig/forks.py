"""Our side of the fork server: start a process, end it, learn how it ended. It blocks for milliseconds only."""

import asyncio
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.waiting import LONGEST

ROOT = Path(__file__).resolve().parents[2]
# As butlers.cli says it before the libraries are imported; here they are imported before.
QUIET = {
    "FASTMCP_SHOW_SERVER_BANNER": "false",
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "FASTMCP_ENABLE_RICH_TRACEBACKS": "false",
    "FASTMCP_LOG_LEVEL": "WARNING",
    "FASTMCP_LOG_ENABLED": "false",
    "FASTMCP_ENV_FILE": os.devnull,
}


@dataclass(frozen=True, slots=True)
class Order:
    """What to start: the command line's arguments, its whole environment, where, and where it writes.

    `code` is a folder that is searched for our packages before the checkout.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    code: Path | None = None
    entry: str = "butlers.cli:main"
    # Words of tests/rig/failpoints.py: which failpoint is armed; None for a process that knows nothing of them.
    chaos: Sequence[str] | None = None


@dataclass(eq=False, slots=True)
class Process:
    """A started process; `code` is its exit code once it has ended, negative for a signal."""

    pid: int
    order: Order
    code: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def out(self) -> Path:
        """The file of its standard output."""
        return self.order.log.with_suffix(".out")

    @property
    def err(self) -> Path:
        """The file of its standard error: its log."""
        return self.order.log.with_suffix(".err")

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self.ended.is_set()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is still somebody to get it."""
        if self.alive:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, number)

    async def wait(self, seconds: float = LONGEST) -> int:
        """The exit code; TimeoutError with what it said last if it does not end."""
        try:
            async with asyncio.timeout(seconds):
                while self.alive:
                    await asyncio.sleep(0.005)
        except TimeoutError:
            said = "\n".join(self.err.read_text(errors="replace").splitlines()[-20:])
            raise TimeoutError(f"{self.order.argv} did not end within {seconds} s\n{said}") from None
        assert self.code is not None
        return self.code


class Forks:
    """The fork server and the processes it started; what is given goes into the server's own environment.

    `code`: our packages are imported from this folder before it forks, and no other code can be started.
    """

    def __init__(self, code: Path | None = None, /, **env: str) -> None:
        self._code = code
        self._control, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("forkserver.py")), *([str(code)] if code else [])],
                stdin=theirs.fileno(),
                env={**os.environ, **QUIET, **env},
                cwd=ROOT,
                start_new_session=True,  # a signal to us must not reach it: it tidies up after us
            )
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._spawned: queue.SimpleQueue[Process] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._living: dict[int, Process] = {}
        self.import_seconds = 0.0
        threading.Thread(target=self._listen, daemon=True, name="forks").start()

    def spawn(self, order: Order) -> Process:
        """Start it; returns as soon as it has a process id."""
        if not self._ready.wait(60):
            raise TimeoutError("the fork server did not get ready")
        code = str(order.code or ROOT)  # so that tests in a copy of the tree run the copy
        assert self._code is None or str(self._code) == code, "this fork server has imported other code"
        told = {
            "argv": list(order.argv),
            "env": dict(order.env),
            "cwd": str(order.cwd),
            "out": str(order.log.with_suffix(".out")),
            "err": str(order.log.with_suffix(".err")),
            "code": code,
            "entry": order.entry,
            "chaos": None if order.chaos is None else list(order.chaos),
        }
        for kind in (".out", ".err"):
            order.log.with_suffix(kind).touch()
        with self._lock:
            self._orders.put(order)
            self._say(told)
            return self._spawned.get(timeout=10)

    def at_end(self, **what: str) -> None:
        """Let the fork server stop this PostgreSQL and remove this folder, should we be killed; else nothing."""
        self._say({"at_end": what})

    def kill_all(self) -> None:
        """End every process that is left, at once."""
        for process in list(self._living.values()):
            process.send(signal.SIGKILL)
            process.ended.wait(5)

    def close(self) -> None:
        """End every process and the fork server."""
        self._control.shutdown(socket.SHUT_WR)
        self._server.wait(15)
        self._control.close()

    def _say(self, message: Mapping[str, object]) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        with self._control.makefile("rb") as lines:
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, told: Mapping[str, object]) -> None:
        match told:
            case {"ready": float(seconds) | int(seconds)}:
                self.import_seconds = seconds
                self._ready.set()
            case {"spawned": int(pid)}:
                self._living[pid] = Process(pid, self._orders.get())
                self._spawned.put(self._living[pid])
            case {"ended": int(pid), "code": int(code)}:
                process = self._living.pop(pid)
                process.code = code
                process.ended.set()
