"""What one test run stands on: one PostgreSQL, a migrated template to clone, and the fork server."""

import asyncio
import itertools
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from butlers import fleet
from butlers.setup import migrate
from shared.config.settings import Settings
from shared.postgres import server as postgres
from tests.rig.forks import Forks, Order, Process

OWNER = 5000000000000001
OWNER_EMAIL = "owner@sandbox.test"
BUTLERS = ("greeter", "health")
TEMPLATE = "template_fleet"
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
    """The run's PostgreSQL and fork server."""

    server: postgres.Server
    forks: Forks
    folder: Path

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
        self.server = postgres.start(self.folder / "postgres", system_folder=self.folder / "system")
        for lock in crashed.locks:
            lock.close()

    async def house(self, *, code: Path | None = None, butlers: Sequence[str] = BUTLERS, **env: str) -> House:
        """A fresh installation, migrated, with the invented owner and without a contact or a message.

        `code` is a folder whose copy of our packages the daemons run; `env` is added to their environment,
        in it {sandbox} stands for the sandbox's port.
        """
        name = f"fleet{next(_numbers)}"
        folder, dsn = self.folder / name, self.server.dsn_of(name)
        write_fleet(folder / "fleet", butlers)
        shutil.copytree(self.folder / "template" / "home", folder / "home")
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
        house = House(name, dsn, folder, base, claim, environment, self.forks, code)
        try:
            await self._clone(name)
            await migrate.migrate(house.settings, dsn, fleet.load(folder / "fleet"))
        except BaseException:
            house.close()
            raise
        return house

    async def _clone(self, name: str) -> None:
        connection = await asyncpg.connect(self.server.dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        finally:
            await connection.close()


@contextmanager
def running() -> Iterator[Bench]:
    """The bench for one run; afterwards nothing of it is left, also if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-rig-"))
    folder.chmod(0o755)  # the account PostgreSQL runs as must be able to pass
    forks = Forks()
    system = folder / "system"
    try:
        starting = postgres.begin(folder / "postgres", system_folder=system)
        forks.at_end(home=str(folder / "postgres"), system=str(system), folder=str(folder))
        server = starting.wait()
        made = Bench(server, forks, folder)
        try:
            asyncio.run(_make_template(server, folder / "template"))
            yield made
        finally:
            forks.kill_all()
            postgres.stop(made.server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        forks.close()


async def _make_template(server: postgres.Server, folder: Path) -> None:
    """A database at the newest revision and the keys that belong to its keyring, for BUTLERS."""
    write_fleet(folder / "fleet", BUTLERS)
    dsn = server.dsn_of(TEMPLATE)
    await migrate.ensure_database(dsn)
    settings = Settings.from_env({"BUTLERS_HOME": str(folder / "home")})
    await migrate.migrate(settings, dsn, fleet.load(folder / "fleet"))


def write_fleet(folder: Path, names: Sequence[str]) -> None:
    """A fleet folder with these butlers."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "butler.toml").write_text(f'name = "{name}"\ndescription = "The {name} butler of a test."\n')
        (folder / name / "PERSONA.md").write_text(f"# {name}\n\nBrief and exact.\n")


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
