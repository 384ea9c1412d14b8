"""A3 and A2: whoever fills the database's places keeps nobody from the brake, from seeing, and from sending."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from butlers import fleet
from butlers.setup import migrate
from shared.auth import keystore
from shared.config.settings import Settings
from shared.db import dsn
from shared.postgres import server as postgres
from tests.rig.cluster import write_fleet
from tests.rig.gate import server_of

STRANGER: Final = "64009"
BECOME: Final = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=-all")
BUTLERS: Final = tuple(f"butler{n:02d}" for n in range(28))
# Connections that name a login and never say its password, as many as it takes.
HOLD: Final = """
import json, socket, struct, sys
place, login = json.loads(sys.argv[1]), b"user\\0butlers_up\\0database\\0butlers\\0\\0"
held = []
for _ in range(520):
    if isinstance(place, int):
        one, where = socket.socket(), ("127.0.0.1", place)
    else:
        one, where = socket.socket(socket.AF_UNIX), place
    try:
        one.connect(where)
        one.sendall(struct.pack("!II", 8 + len(login), 196608) + login)
        one.recv(1)
        held.append(one)
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.readline()
"""


@dataclass(slots=True)
class Installation:
    """A home with its embedded server, as `butlers up` has it."""

    folder: Path
    server: postgres.Server

    @property
    def dsn(self) -> str:
        return self.server.dsn_of(dsn.DATABASE)

    def login(self, name: str) -> str:
        return dsn.dsn_as(self.dsn, name, keystore.read(self.folder / "home", name).password)

    async def gets_in(self, name: str) -> bool:
        try:
            await (await asyncpg.connect(self.login(name), timeout=15)).close()
        except (asyncpg.PostgresError, OSError):
            return False
        return True


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix="butlers-full-"))
    folder.chmod(0o755)
    made = Installation(folder, postgres.start(folder / "home", system_folder=folder / "system"))
    try:
        write_fleet(folder / "fleet", BUTLERS)
        asyncio.run(migrate.ensure_database(made.dsn))
        settings = Settings.from_env({"BUTLERS_HOME": str(folder / "home")})
        asyncio.run(migrate.migrate(settings, made.dsn, fleet.load(folder / "fleet")))
        yield made
    finally:
        postgres.stop(made.server)
        shutil.rmtree(folder)


def test_another_users_connections_that_never_log_in(installed: Installation) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root may start processes under other users, and setpriv does it")
    place = server_of(installed.dsn)
    told = json.dumps(place if isinstance(place, int) else str(place))
    with subprocess.Popen(
        [*BECOME, sys.executable, "-c", HOLD, told], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None
        held = int(stranger.stdout.readline())
        got = {
            name: asyncio.run(installed.gets_in(name)) for name in (keystore.OWNER, "messenger", "console", keystore.UP)
        }
        stranger.communicate("\n")
    assert held == 0
    assert got == dict.fromkeys(got, True)


@pytest.mark.slow
async def test_the_logins_of_very_many_butlers_at_once(installed: Installation) -> None:
    async with AsyncExitStack() as held:
        taken = 0
        for name in (*BUTLERS, "switchboard"):
            with suppress(asyncpg.TooManyConnectionsError):
                while True:
                    one = await asyncpg.connect(installed.login(name), timeout=60)
                    held.push_async_callback(one.close)
                    taken += 1
        got = {name: await installed.gets_in(name) for name in (keystore.OWNER, "messenger", "console", keystore.UP)}
        butler = await installed.gets_in(BUTLERS[-1])
    assert taken > 400
    assert (got, butler) == (dict.fromkeys(got, True), False)
