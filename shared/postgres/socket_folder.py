"""The folder of the embedded server's socket: only the account that serves may put anything into it.

So nobody else can listen where our logins are sent, even while no server runs. It lies beside the data; where that path
is too long for a socket, it lies in the system's folder for passing files, under a name that follows from the data's.
"""

import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from shared.errors import PostgresFailed
from shared.postgres.files import Account

PORT = 5432
"""A part of the socket's name; nothing listens on it."""

NAME = f".s.PGSQL.{PORT}"
LONGEST_PATH = 103
"""Linux takes 107 bytes, macOS 103."""

PASSING = Path("/tmp")  # noqa: S108  # the folder in it is made for one account alone, and checked each time
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def folder_for(base: Path, account: Account, passing: Path = PASSING) -> Path:
    """Return the folder that the server of this data listens in; make it where it is missing.

    Its mode is 0700 until its owner lets others pass, which lets them connect and no more.
    """
    uid = os.geteuid() if account.uid is None else account.uid
    folder = base / "socket"
    if len(os.fsencode(folder / NAME)) > LONGEST_PATH:
        folder = passing / f"butlers-{uid}-{sha256(os.fsencode(base)).hexdigest()[:16]}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if account.uid is not None:
            os.chown(folder, uid, -1 if account.gid is None else account.gid, follow_symlinks=False)
    demand_own(folder, uid)
    return folder


def demand_own(folder: Path, uid: int) -> None:
    """Raise PostgresFailed for a folder in which anybody but that user could have made the socket."""
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & WRITABLE_BY_OTHERS:
        return
    raise PostgresFailed(
        "postgres_socket_folder",
        f"The folder of the database's socket, {folder}, is writable for others than the user with id {uid}.",
        "Find out who created it, remove it and start again, or choose a shorter path with --home.",
    )


def url(folder: Path, password: str) -> str:
    """Return the superuser's URL of the database `postgres`, which both asyncpg and psql understand."""
    return f"postgresql://postgres:{quote(password, safe='')}@{quote(os.fsencode(folder), safe='')}:{PORT}/postgres"


def setting(folder: Path) -> str:
    """Return the folder as PostgreSQL reads it in its list of folders."""
    return '"' + str(folder).replace('"', '""') + '"'
