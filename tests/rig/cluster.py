"""The PostgreSQL of a process of tests: started on a copy of what one process of the run has prepared.

What is prepared is a migrated database to clone, with the keys and the fleet folder that belong to it. Every process
has a server of its own, so that it may crash it, flood it and count what is in it; making one takes 0.3 s instead of 3.
"""

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from butlers import fleet
from butlers.setup import migrate
from shared.config.settings import Settings
from shared.postgres import server as postgres
from shared.postgres.files import find_data

ROOT: Final = Path(__file__).resolve().parents[2]
BUTLERS: Final = ("greeter", "health")
# To whom what comes in is routed, where nothing says to whom else.
DEFAULT_BUTLER: Final = "health"
TEMPLATE: Final = "template_fleet"
PREPARED: Final = "PREPARED_CLUSTER"
"""The variable that names the folder of what is prepared."""
MADE_BY: Final = "made-by"
# What is prepared may be used by code that has the same files here.
MAKERS: Final = ("migrations", "butlers/setup", "shared/postgres", "shared/auth", "shared/db", "shared/storage")


@dataclass(slots=True)
class Cluster:
    """A server, and where the keys and the fleet of its template lie: folder/home and folder/fleet."""

    server: postgres.Server
    folder: Path

    @property
    def home(self) -> Path:
        """The home with the keys that belong to the template."""
        return self.folder / "home"

    @property
    def fleet(self) -> Path:
        """The folder of the butlers that the template knows."""
        return self.folder / "fleet"

    async def clone(self, name: str) -> str:
        """Make a database like the template; its URL."""
        connection = await asyncpg.connect(self.server.dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        finally:
            await connection.close()
        return self.server.dsn_of(name)


@contextmanager
def running() -> Iterator[Cluster]:
    """Run a server on what is prepared, or on what is made here; it is gone afterwards, its data too."""
    folder = new_folder()
    try:
        given = os.environ.get(PREPARED)
        if given and (Path(given) / MADE_BY).read_text() == made_by():
            copy(Path(given), folder)
            server = start(folder)
        else:
            server = start(folder)
            asyncio.run(make_template(server, folder))
        made = Cluster(server, folder)
        try:
            yield made
        finally:
            postgres.stop(made.server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare(folder: Path) -> None:
    """Prepare in this folder what `running` copies."""
    server = start(folder)
    try:
        asyncio.run(make_template(server, folder))
    finally:
        postgres.stop(server)
    (folder / MADE_BY).write_text(made_by())


def new_folder() -> Path:
    """Make a folder that the account PostgreSQL runs as may pass."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-rig-"))
    folder.chmod(0o755)
    return folder


def start(folder: Path) -> postgres.Server:
    """Start the server of this folder."""
    return postgres.start(folder / "postgres", system_folder=folder / "system")


def made_by() -> str:
    """Name the code that prepares."""
    told = hashlib.sha256()
    for path in sorted(path for maker in MAKERS for path in (ROOT / maker).rglob("*.py")):
        told.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return told.hexdigest()


def copy(prepared: Path, folder: Path) -> None:
    """Copy what is prepared, with its owners; the file that names the data's folder names the copy's."""
    shutil.copytree(prepared, folder, symlinks=True, dirs_exist_ok=True, copy_function=copy_owned, ignore=sockets)
    for path in (folder, *folder.rglob("*")):
        whose = (prepared / path.relative_to(folder)).lstat()
        os.chown(path, whose.st_uid, whose.st_gid, follow_symlinks=False)
    where = folder / "postgres" / "postgres" / "where"
    if where.exists():
        where.write_text(where.read_text().replace(str(prepared), str(folder)))
    data = find_data(folder / "postgres")
    assert data is not None
    (data.parent / postgres.HOME_FILE).unlink(missing_ok=True)  # it names what is prepared


def copy_owned(source: str, target: str) -> str:
    return shutil.copy2(source, target, follow_symlinks=False)


def sockets(folder: str, names: Sequence[str]) -> list[str]:
    return ["socket"] if "socket" in names else []


async def make_template(server: postgres.Server, folder: Path) -> None:
    """Make a database at the newest revision, and the keys that belong to its keyring, for BUTLERS."""
    write_fleet(folder / "fleet", BUTLERS)
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("ALTER SYSTEM SET fsync = off")  # this data ends with the run
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    dsn = server.dsn_of(TEMPLATE)
    await migrate.ensure_database(dsn)
    await migrate.migrate(Settings.from_env({"BUTLERS_HOME": str(folder / "home")}), dsn, fleet.load(folder / "fleet"))


def write_fleet(folder: Path, names: Sequence[str]) -> None:
    """Write a fleet folder with these butlers."""
    for name in names:
        (folder / name).mkdir(parents=True)
        says = "default = true\n" if name == DEFAULT_BUTLER else ""
        toml = f'name = "{name}"\ndescription = "The {name} butler of a test."\n{says}'
        (folder / name / "butler.toml").write_text(toml)
        (folder / name / "PERSONA.md").write_text(f"# {name}\n\nBrief and exact.\n")


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
