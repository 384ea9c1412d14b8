"""A copy of the embedded server's data in one file, made while it serves, and put into a home that has none.

It is PostgreSQL's own base backup: all databases, logins and passwords, as they were when it ended.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from shared.errors import PostgresFailed
from shared.postgres import server
from shared.postgres.files import (
    CLEAN_ENVIRONMENT,
    SYSTEM_FOLDER,
    Place,
    find_data,
    find_place,
    last_complaint,
    write_private,
)
from shared.postgres.server import Server
from shared.postgres.socket_folder import PORT

# What a copy of the data needs beside its folders. Any other file there would tell the server what to do.
KEPT: Final = frozenset({"PG_VERSION", "backup_label"})
# Whoever has the password may come in; all else is said to the server as it starts.
CONFIGURATION: Final = {
    "postgresql.conf": "",
    "postgresql.auto.conf": "",
    "pg_hba.conf": "local all all scram-sha-256\nlocal replication all scram-sha-256",
    "pg_ident.conf": "",
}


def copy_out(home: Path, target: BinaryIO) -> int:
    """Write the data of this home's server as a tar into the file, starting it if it is down; return its version.

    Raises PostgresFailed where the home has no data: what is made anew would be no backup of anything.
    """
    if find_data(home) is None:
        raise PostgresFailed(
            "postgres_no_data",
            f"There is no database in {home}.",
            "If it is one of your own, set DATABASE_URL as the fleet has it, and use pg_dump.",
        )
    served = server.start(home)
    try:
        place = find_place(home, SYSTEM_FOLDER)
        login: list[str | Path] = ["-h", served.folder, "-p", str(PORT), "-U", "postgres"]
        done = subprocess.run(
            [
                place.binaries / "pg_basebackup",
                *login,
                "-D",
                "-",
                "--format=tar",
                "--wal-method=fetch",
                "--checkpoint=fast",
                "--no-manifest",
            ],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.PIPE,
            check=False,
            cwd="/",
            env={**CLEAN_ENVIRONMENT, "PGPASSWORD": _password(served)},
        )
    finally:
        server.stop(served)
    if done.returncode:
        why = last_complaint(done.stderr.decode(errors="replace"))
        raise PostgresFailed("postgres_backup_failed", f"The database cannot be copied: {why}.", "Try again.")
    return place.major


def copy_in(home: Path, data: BinaryIO, major: int, system_folder: Path = SYSTEM_FOLDER) -> Place:
    """Put the data of such a file into this home, which has none; return where it lies.

    How the server is configured is ours, and not the file's: a setting may name a program that the server runs.
    """
    if find_data(home) is not None:
        raise PostgresFailed("postgres_data_there", f"{home} has a database already.", "Choose another --home.")
    place = find_place(home, system_folder)
    if place.major != major:
        text = f"The backup was made by PostgreSQL {major}, and here PostgreSQL {place.major} would read it."
        raise PostgresFailed("postgres_data_version", text, f"Install PostgreSQL {major}, or the Butlers that made it.")
    fresh = place.base / f"{place.data.name}.new"
    fresh.mkdir(mode=0o700)
    with tarfile.open(fileobj=data, mode="r|") as archive:
        for member in archive:
            if not member.isreg() or len(Path(member.name).parts) > 1 or member.name in KEPT:
                unpack(archive, member, fresh, member.name)
    for name, text in CONFIGURATION.items():
        write_private(fresh / name, text, place.account)
    if place.account.uid is not None:
        for path in (fresh, *fresh.rglob("*")):
            os.chown(path, place.account.uid, -1 if place.account.gid is None else place.account.gid)
    os.sync()
    fresh.rename(place.data)
    return place


def unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, name: str) -> None:
    """Unpack a member below the folder with its mode and, as root, its owner; raise ValueError for anything else.

    A member is a folder or a file, and its name leads nowhere else.

    tarfile's own filters came with later releases of Python than the oldest that serves.
    """
    content = archive.extractfile(member) if member.isreg() else None
    if ".." in Path(name).parts or Path(name).is_absolute() or (content is None and not member.isdir()):
        raise ValueError(member.name)
    path = folder / name
    if content is None:
        path.mkdir(mode=0o700, exist_ok=True)
    else:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            shutil.copyfileobj(content, file)
    path.chmod(member.mode & 0o755)
    if os.geteuid() == 0:
        os.chown(path, member.uid, member.gid)


def _password(served: Server) -> str:
    return unquote(urlsplit(served.dsn).password or "")
