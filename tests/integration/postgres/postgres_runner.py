"""A BUTLERS_HOME with an embedded server of its own, and processes that start, use and stop it."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from shared.postgres.server import Server, running, start

ROOT = Path(__file__).resolve().parents[3]
IS_ROOT = os.geteuid() == 0

CHILD = """
import os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from shared.postgres.server import PostgresFailed, begin, running, start, stop
home, system = Path(sys.argv[1]), Path(sys.argv[2])
def say(*words):
    print(*words, flush=True)
try:
    {body}
except PostgresFailed as failed:
    say("failed", failed.code, failed)
"""


@dataclass(frozen=True, slots=True)
class House:
    """A BUTLERS_HOME and a stand-in for /var/lib/butlers, both gone after the test."""

    home: Path
    system: Path

    def start(self, *, exclusive: bool = False) -> Server:
        return start(self.home, exclusive=exclusive, system_folder=self.system)

    def data(self) -> Path:
        where = self.home / "postgres" / "where"
        base = Path(where.read_text().strip()) if where.exists() else self.home / "postgres"
        return next(path for path in base.iterdir() if path.name.removeprefix("pg").isdigit())

    def child(self, body: str, *options: str) -> "subprocess.Popen[str]":
        """A process of its own that runs `body` with `home`, `system` and `say` at hand."""
        code = CHILD.format(root=str(ROOT), body=body.strip().replace("\n", "\n    "))
        command = [sys.executable, *options, "-c", code, str(self.home), str(self.system)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")

    def told(self, body: str, *options: str) -> list[str]:
        """What such a process says until it ends."""
        with self.child(body, *options) as child:
            return child.communicate(timeout=60)[0].splitlines()


@contextmanager
def furnished() -> Iterator[House]:
    """One with nothing in it yet."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-test-"))
    folder.chmod(0o755)  # the account PostgreSQL runs as must be able to pass
    made = House(folder / "home", folder / "system")
    yield made
    if (made.home / "postgres").is_dir() and (left := running(made.home)):
        os.kill(left.pid, signal.SIGQUIT)
    shutil.rmtree(folder)


def ask(dsn: str, question: str) -> str:
    async def go() -> str:
        connection = await asyncpg.connect(dsn)
        try:
            return str(await connection.fetchval(question))
        finally:
            await connection.close()

    return asyncio.run(go())


def line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def finish(child: "subprocess.Popen[str]") -> list[str]:
    return child.communicate("\n", timeout=60)[0].splitlines()


HOLD = """
server = start(home, system_folder=system)
say(server.pid, server.started_by_us)
sys.stdin.readline()
say(stop(server))
"""
