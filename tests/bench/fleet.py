"""A whole fleet in an empty folder, started by its real commands: for measuring, and for README's blocks."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.postgres import server as postgres

BIN = Path(sys.executable).parent
OFFSETS = (0, 1, 2, 3, 4, 10)
DAEMONS = ("sandbox", "switchboard", "messenger", "console", "greeter")
# The sandbox sends no heartbeat.
KNOWN = frozenset(DAEMONS) - {"sandbox"}
PATIENCE = 60.0
LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Running:
    """A fleet that is ready: seconds it took from the first command on, and its processes by name."""

    seconds: float
    pids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class House:
    """One installation in a folder of its own; nothing of the surrounding environment reaches it."""

    folder: Path
    port_base: int

    @property
    def home(self) -> Path:
        """BUTLERS_HOME, as the commands take it by default."""
        return self.folder / ".butlers"

    @property
    def environment(self) -> dict[str, str]:
        """The environment for every command in this house."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BUTLERS_", "DATABASE_URL"))}
        return kept | {"BUTLERS_PORT_BASE": str(self.port_base), "PATH": f"{BIN}:{kept.get('PATH', '')}"}

    def url(self, offset: int) -> str:
        """Where the daemon with this port offset is."""
        return f"http://127.0.0.1:{self.port_base + offset}"

    def butlers(self, *arguments: str) -> str:
        """What a command prints; one that fails is an error with its words."""
        ended = subprocess.run(
            ["butlers", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"butlers {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout.strip()

    @contextmanager
    def up(self, *options: str) -> Iterator[Running]:
        """`butlers up`, until the block ends; then Ctrl-C."""
        started = time.monotonic()
        with self._process("up", *options) as (process, printed):
            _wait_for("Ready.", process, printed)
            yield Running(time.monotonic() - started, {"up": process.pid})

    @contextmanager
    def apart(self) -> Iterator[Running]:
        """`butlers migrate` where it is needed, then the database and `butlers run NAME` for each daemon."""
        started = time.monotonic()
        if not self.home.exists():
            self.butlers("migrate")
        server = postgres.start(self.home)
        try:
            with ExitStack() as stack:
                opened = {name: stack.enter_context(self._process("run", name)) for name in DAEMONS}
                for process, printed in opened.values():
                    _wait_for(" is ready at ", process, printed)
                seconds = time.monotonic() - started
                self._wait_until_known()
                yield Running(seconds, {name: one.pid for name, (one, _) in opened.items()})
        finally:
            postgres.stop(server)

    def _wait_until_known(self) -> None:
        """Wait for the first heartbeat of each: what is sent before the Messenger's is queued, and measures nothing."""
        deadline = time.monotonic() + PATIENCE
        while any(one["name"] in KNOWN and not one["last_seen_at"] for one in self._daemons()):
            if time.monotonic() > deadline:
                raise RuntimeError("Not every daemon was heard.")

    def _daemons(self) -> list[dict[str, object]]:
        found = json.loads(self.butlers("status", "--json"))["daemons"]
        return [dict(one) for one in found]

    @contextmanager
    def _process(self, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
        printed = self.folder / f"{'-'.join(arguments)}.out"
        with printed.open("wb") as sink:
            process = subprocess.Popen(
                ["butlers", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            yield process, printed
        finally:
            _end(process)


@contextmanager
def house() -> Iterator[House]:
    """An empty folder with free ports, and nothing left of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="butlers-") as folder:
        made = House(Path(folder), free_port_base())
        try:
            yield made
        finally:
            remove_data(made.home)


def free_port_base() -> int:
    """A base whose ports are all free now, below the range from which clients get theirs."""
    while True:
        base = 20_000 + secrets.randbelow(600) * 20
        if all(_is_free(base + offset) for offset in OFFSETS):
            return base


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as trying:
        try:
            trying.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait_for(words: str, process: "subprocess.Popen[bytes]", printed: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while words not in (said := printed.read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"It did not come up: {said}")
        time.sleep(LOOK_SECONDS)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """One Ctrl-C; whoever is still there after ten seconds is ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def remove_data(home: Path) -> None:
    """As root the database lies outside the house; where, it says itself."""
    pointer = home / "postgres" / "where"
    if pointer.exists():
        shutil.rmtree(pointer.read_text(encoding="utf-8").strip(), ignore_errors=True)


def resident_megabytes(pids: Sequence[int]) -> float:
    """The resident memory of these processes, in MB (10^6 bytes; Linux, /proc/PID/status)."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return total / 1e6
