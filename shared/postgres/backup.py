"""A copy of the embedded server's data in one file, made while it serves, and put into a home that has none.

It is PostgreSQL's own base backup: all databases, logins and passwords, as they were when it ended.
"""

import os
import subprocess
import tarfile
from pathlib import Path
from typing import BinaryIO
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
)
from shared.postgres.server import Server
from shared.postgres.socket_folder import PORT


def copy_out(home: Path, target: BinaryIO) -> int:
    """Write the data of this home's server as a tar into the file, starting it if it is down; return its version."""
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
    """Put the data of such a file into this home, which has none; return where it lies."""
    if find_data(home) is not None:
        raise PostgresFailed("postgres_data_there", f"{home} has a database already.", "Choose another --home.")
    place = find_place(home, system_folder)
    if place.major != major:
        text = f"The backup was made by PostgreSQL {major}, and here PostgreSQL {place.major} would read it."
        raise PostgresFailed("postgres_data_version", text, f"Install PostgreSQL {major}, or the Butlers that made it.")
    fresh = place.base / f"{place.data.name}.new"
    fresh.mkdir(mode=0o700)
    with tarfile.open(fileobj=data, mode="r|") as archive:
        archive.extractall(fresh, filter="tar")
    if place.account.uid is not None:
        for path in (fresh, *fresh.rglob("*")):
            os.chown(path, place.account.uid, -1 if place.account.gid is None else place.account.gid)
    fresh.chmod(0o700)
    fresh.rename(place.data)
    return place


def _password(served: Server) -> str:
    return unquote(urlsplit(served.dsn).password or "")
