"""A3: somebody on this computer takes the place of a database that is gone, and asks for what it would like to have."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from butlers import fleet
from butlers.setup import migrate
from shared.auth import keystore
from shared.config.settings import Settings
from shared.db.dsn import DATABASE, dsn_as
from shared.db.pool import Database
from shared.db.wake import listen
from shared.errors import ButlersError
from shared.postgres import server as postgres
from tests.rig.cluster import write_fleet
from tests.rig.gate import server_of
from tests.rig.usurper import SCRIPTS, Usurper

ROOT: Final = Path(__file__).resolve().parents[2]
STRANGER: Final = "64009"
BECOME: Final = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=-all")
SECRET: Final = "correct-horse-battery"


@dataclass(slots=True)
class Installation:
    """A home with its embedded server, as `butlers up` has it."""

    folder: Path
    server: postgres.Server

    def login(self) -> tuple[str, str]:
        """The URL of `butlers up`, and the password in it."""
        password = keystore.read(self.folder / "home", keystore.UP).password
        return dsn_as(self.server.dsn_of(DATABASE), keystore.UP, password), password

    def lose(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        while postgres.running(self.folder / "home") is not None:
            time.sleep(0.01)

    def bring(self) -> None:
        gone = self.server
        self.server = postgres.start(self.folder / "home", system_folder=self.folder / "system")
        for lock in gone.locks:
            lock.close()


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root may start processes under other users, and setpriv does it")
    folder = Path(tempfile.mkdtemp(prefix="butlers-taken-"))
    folder.chmod(0o755)
    made = Installation(folder, postgres.start(folder / "home", system_folder=folder / "system"))
    try:
        write_fleet(folder / "fleet", ("greeter",))
        dsn = made.server.dsn_of(DATABASE)
        asyncio.run(migrate.ensure_database(dsn))
        settings = Settings.from_env({"BUTLERS_HOME": str(folder / "home")})
        asyncio.run(migrate.migrate(settings, dsn, fleet.load(folder / "fleet")))
        yield made
    finally:
        postgres.stop(made.server)
        shutil.rmtree(folder)


async def opens(dsn: str) -> bool:
    """Whether a daemon takes what answers there for its database."""
    try:
        await (await Database.open(dsn)).close()
    except ButlersError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("script", ["cleartext", "md5", "trust"])
def test_another_user_in_the_place_of_the_embedded_server(installed: Installation, script: str) -> None:
    dsn, password = installed.login()
    assert asyncio.run(opens(dsn))
    installed.lose()
    try:
        with subprocess.Popen(
            [*BECOME, sys.executable, "-m", "tests.rig.usurper", str(server_of(dsn)), script],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath},
        ) as stranger:
            assert stranger.stdout is not None
            said = stranger.stdout.readline()
            opened = asyncio.run(opens(dsn))
            heard, _ = stranger.communicate("\n")
    finally:
        installed.bring()
    assert said.startswith(("listens", "cannot: ")), said
    assert password.encode().hex() not in heard
    assert not opened
    assert asyncio.run(opens(dsn))


@pytest.mark.parametrize("place", ["a link in a folder of all", "a folder of its own"])
def test_another_user_at_the_socket_of_an_outside_server(place: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root may start processes under other users, and setpriv does it")
    folder = Path(tempfile.mkdtemp(prefix="butlers-link-"))
    folder.chmod(0o755)
    own, of_all = folder / "own", folder / "all"
    for made in (own, of_all):
        made.mkdir()
    os.chown(own, int(STRANGER), int(STRANGER))
    of_all.chmod(0o1777)
    (of_all / ".s.PGSQL.5432").symlink_to(own / ".s.PGSQL.5432")
    dialled = of_all if place.startswith("a link") else own
    with subprocess.Popen(
        [*BECOME, sys.executable, "-m", "tests.rig.usurper", str(own / ".s.PGSQL.5432"), "trust"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath},
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listens\n"
        opened = asyncio.run(opens(f"postgresql://butlers_up:{SECRET}@/butlers?host={dialled}"))
        stranger.communicate("\n")
    shutil.rmtree(folder)
    assert not opened


@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_port_of_an_outside_server(script: str) -> None:
    usurper = Usurper(script)
    await usurper.listen(0)
    dsn = f"postgresql://butlers_up:{SECRET}@127.0.0.1:{usurper.port}/butlers"
    believed = await opens(dsn)
    stopping, woken = asyncio.Event(), asyncio.Event()
    listening = asyncio.create_task(listen(lambda: dsn, {"cards": partial(wake, woken)}, stopping))
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), 0.5)
    stopping.set()
    await asyncio.wait([listening], timeout=5)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    usurper.close()
    assert usurper.visits >= 2
    assert SECRET.encode() not in usurper.heard
    assert not believed
    assert not woken.is_set()


def wake(woken: asyncio.Event, _key: str) -> None:
    woken.set()
