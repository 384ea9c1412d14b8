"""What a fleet in a test stands on: a PostgreSQL with a migrated template to clone, and fork servers."""

import asyncio
import itertools
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from butlers import fleet
from butlers.setup import migrate
from shared.config.settings import Settings
from shared.postgres import server as postgres
from shared.postgres.files import find_place
from tests.rig import cluster
from tests.rig.cluster import BUTLERS, ROOT, Cluster
from tests.rig.forks import Forks, Order, Process

OWNER = 5000000000000001
OWNER_EMAIL = "owner@sandbox.test"
PORTS = (0, 1, 2, 3, 4, 10, 11, 12, 13)
# Nothing listens here: whoever holds this port of a block holds the block, until its process is gone.
CLAIM = 19
# Of the environment of the test run only this reaches a daemon.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class House:
    """One installation that nobody else uses: database, home with keys, fleet folder, block of ports."""

    name: str
    dsn: str = field(repr=False)
    folder: Path
    base: int
    claim: socket.socket = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    forks: Forks = field(repr=False)
    code: Path | None = None

    @property
    def settings(self) -> Settings:
        """What a daemon here would read."""
        return Settings.from_env(self.env)

    @property
    def home(self) -> Path:
        """BUTLERS_HOME."""
        return self.folder / "home"

    def spawn(self, argv: Sequence[str], log: str, **env: str) -> Process:
        """Start `butlers ARGV`; what it says lies in logs/<log>.out and .err, earlier words kept."""
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        return self.forks.spawn(Order(argv, {**self.env, **env}, self.folder, logs / log, self.code))

    async def butlers(self, *argv: str, **env: str) -> tuple[int, str, str]:
        """Run `butlers ARGV` to its end: exit code, standard output, standard error."""
        process = self.spawn(argv, f"cli-{next(_numbers)}", **env)
        code = await process.wait()
        return code, process.out.read_text(), process.err.read_text()

    def close(self) -> None:
        """Let go of the ports."""
        self.claim.close()


_numbers = itertools.count(1)


@dataclass(slots=True)
class Bench:
    """The PostgreSQL of this process, the fork server of the checkout's code, and one for other code once needed."""

    cluster: Cluster
    forks: Forks
    other_forks: Forks | None = None

    @property
    def server(self) -> postgres.Server:
        """The server that runs."""
        return self.cluster.server

    @property
    def folder(self) -> Path:
        """Where all of it lies."""
        return self.cluster.folder

    def forks_of(self, code: Path | None) -> Forks:
        """The fork server for this code: for the checkout's it has been imported before, for another it is not."""
        if code is None:
            return self.forks
        if self.other_forks is None:
            self.other_forks = Forks()
        return self.other_forks

    def crash_postgres(self) -> None:
        """End PostgreSQL at once, as a crash would, and start it again in the same place; blocks until it answers."""
        self.lose_postgres()
        self.bring_postgres()

    def lose_postgres(self) -> None:
        """End PostgreSQL at once, as a crash would; blocks until it is gone."""
        os.kill(self.server.pid, signal.SIGQUIT)  # PostgreSQL's own word for an immediate shutdown
        while (found := postgres.running(self.folder / "postgres")) is not None and found.pid == self.server.pid:
            time.sleep(0.01)

    def bring_postgres(self) -> None:
        """Start what was lost in the same place; blocks until it answers."""
        crashed = self.server
        self.cluster.server = cluster.start(self.folder)
        for lock in crashed.locks:
            lock.close()

    async def ran(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs to its end."""
        binaries = find_place(self.folder / "postgres", self.folder / "system").binaries
        process = await asyncio.create_subprocess_exec(binaries / program, *arguments)
        assert await process.wait() == 0

    async def house(self, *, code: Path | None = None, butlers: Sequence[str] = BUTLERS, **env: str) -> House:
        """A fresh installation, migrated, with the invented owner and without a contact or a message.

        `code` is a folder whose copy of our packages the daemons run; `env` is added to their environment,
        in it {sandbox} stands for the sandbox's port.
        """
        name = f"fleet{next(_numbers)}"
        folder, dsn = self.folder / name, self.server.dsn_of(name)
        cluster.write_fleet(folder / "fleet", butlers)
        shutil.copytree(self.cluster.home, folder / "home")
        base, claim = free_block()
        environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        environment |= {
            "DATABASE_URL": dsn,
            "BUTLERS_HOME": str(folder / "home"),
            "BUTLERS_FLEET": str(folder / "fleet"),
            "BUTLERS_PORT_BASE": str(base),
            # Many tests share a fleet, and each may ask.
            "BUTLERS_CARD_BURST": "1000",
        }
        environment |= {key: value.replace("{sandbox}", str(base + 3)) for key, value in env.items()}
        house = House(name, dsn, folder, base, claim, environment, self.forks_of(code), code)
        try:
            await self.cluster.clone(name)
            await migrate.migrate(house.settings, dsn, fleet.load(folder / "fleet"))
        except BaseException:
            house.close()
            raise
        return house


@contextmanager
def running(cluster: Cluster) -> Iterator[Bench]:
    """Run a bench; afterwards none of its processes is left, and no PostgreSQL either if this process is killed."""
    made = Bench(cluster, Forks(ROOT))
    made.forks.at_end(home=str(made.folder / "postgres"), system=str(made.folder / "system"), folder=str(made.folder))
    try:
        yield made
    finally:
        made.forks.at_end()
        for forks in filter(None, (made.forks, made.other_forks)):
            forks.kill_all()
            forks.close()


def free_block() -> tuple[int, socket.socket]:
    """A port base whose block of twenty is free, and the socket that claims it."""
    for base in random.sample(range(12000, 32000, 20), 200):
        claim = _bound(base + CLAIM)
        if claim is None:
            continue
        probes = [_bound(base + offset) for offset in PORTS]
        for probe in probes:
            if probe is not None:
                probe.close()
        if all(probes):
            return base, claim
        claim.close()
    raise OSError("there is no free block of ports")


def _bound(port: int) -> socket.socket | None:
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return None
    return probe
