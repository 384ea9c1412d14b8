"""A backup: one file with the home and its embedded database, for its owner alone; and a home made from it.

The witness is left out, since it would come back with the rows it is to watch. The database comes before what lies
beside it, so that no row in it is newer than the sandbox's journal.
"""

import gzip
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from shared.db import witness
from shared.errors import Misconfigured, Unavailable
from shared.home_folder import LOGS, SESSIONS
from shared.postgres import backup as database

ABOUT: Final = "about.json"
DATABASE: Final = "database.tar"
HOME: Final = "home"
FORM: Final = 1
BROKEN: Final = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, ValueError, KeyError, TypeError)


@dataclass(frozen=True, slots=True)
class About:
    """What a backup says of itself."""

    made_at: str
    program: str
    postgres: int
    form: int = FORM
    # How far the rows had come as the home's witness had it.
    beat: int | None = None


def make(home: Path, file: Path, *, made_at: str, program: str) -> None:
    """Write the backup of this home, all of it or nothing.

    Raises Misconfigured if the file is there already, or in the home: each later backup would hold all earlier ones.
    """
    if file.resolve().is_relative_to(home.resolve()):
        raise Misconfigured(f"{file} lies in the home, of which it is the backup.", "Choose a place outside of it.")
    if file.exists():
        raise Misconfigured(f"{file} already exists.", "Choose another name.")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with _private(draft) as out, tempfile.TemporaryFile(dir=file.parent) as data:
            postgres = database.copy_out(home, data)
            seen = witness.furthest(witness.places(home, "messenger", None)) or witness.Seen()
            about = About(made_at, program, postgres, beat=seen.beat)
            with (
                gzip.open(out, "wb", compresslevel=1) as packed,
                tarfile.open(fileobj=packed, mode="w|", dereference=True) as archive,
            ):
                _add(archive, ABOUT, json.dumps(asdict(about)).encode())
                archive.addfile(_member(DATABASE, data.seek(0, os.SEEK_END)), _from_start(data))
                for path in kept(home):
                    archive.add(path, f"{HOME}/{path.relative_to(home)}", recursive=False)
            out.flush()
            os.fsync(out.fileno())
        draft.rename(file)
    except OSError as refused:
        raise Unavailable(f"{file} cannot be written: {refused.strerror}.", "Nothing was kept of it.") from None
    finally:
        draft.unlink(missing_ok=True)


def put_back(file: Path, home: Path, *, ahead: int, now: int, elsewhere: Path | None = None) -> About:
    """Make the home that the backup was made of, all of it or nothing, with a witness so far ahead of its rows.

    `now`, in nanoseconds since 1970, is more than any count in a backup that does not say how far its rows were.

    Raises Misconfigured where the backup is not whole, or where there is something already.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise Misconfigured(f"{home} is not empty.", "Choose another folder with --home, or move that one away first.")
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        about = _unpack(file, draft)
        places = witness.places(draft, "messenger", elsewhere)
        seen = witness.furthest(places) or witness.Seen()
        # INVARIANT: the rows are behind it, however often a house was restored before.
        beat = max(seen.beat, now if about.beat is None else about.beat)
        witness.write(places[:1], witness.ahead(replace(seen, beat=beat), ahead))
        draft.chmod(0o711)
        draft.rename(home)
    except BaseException:
        _remove(draft)
        raise
    return about


def _unpack(file: Path, draft: Path) -> About:
    """Unpack into this folder; only what was read to its end, where its checksum stands, counts as whole."""
    try:
        with gzip.open(file) as packed, tempfile.TemporaryFile(dir=draft.parent) as data:
            with tarfile.open(fileobj=packed, mode="r|") as archive:
                about = read(archive, draft, data)
            while packed.read(1 << 20):
                pass
            data.seek(0)
            database.copy_in(draft, data, about.postgres)
    except BROKEN:
        remedy = "Nothing was restored; use another copy of it."
        raise Misconfigured(f"{file} is no whole backup: it was cut off, or changed.", remedy) from None
    return about


def read(archive: tarfile.TarFile, draft: Path, data: BinaryIO) -> About:
    """Read the parts in their order: what the backup says of itself, the database, and the files of the home."""
    about: About | None = None
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        if member.name == ABOUT and content is not None:
            about = About(**json.loads(content.read()))
        elif member.name == DATABASE and content is not None:
            shutil.copyfileobj(content, data)
        elif member.name.startswith(f"{HOME}/") and _belongs(Path(member.name.removeprefix(f"{HOME}/"))):
            database.unpack(archive, member, draft, member.name.removeprefix(f"{HOME}/"))
        elif Path(member.name).parts[:2] == (HOME, SESSIONS) or "/." in member.name:
            continue  # a backup by an earlier version holds these, and what lies in hidden folders
        else:
            raise ValueError(member.name)
    if about is None or about.form != FORM:
        raise ValueError(ABOUT)
    return about


def kept(home: Path) -> Iterator[Path]:
    """Yield what a backup keeps of a home, also behind a link that lies directly in it.

    Raises Misconfigured for any other link, and for one to nowhere: a backup without that would be no whole one.
    """
    for path in (found for top in sorted(home.iterdir()) for found in (top, *sorted(top.rglob("*")))):
        if not _belongs(path.relative_to(home)):
            continue
        if path.is_symlink() and (path.parent != home or not path.exists()):
            text = f"{path} is a link that a backup cannot follow."
            raise Misconfigured(text, "Put what belongs there in its place.")
        if path.is_dir() or path.is_file():
            yield path


def _belongs(path: Path) -> bool:
    """Return whether a backup holds this of a home.

    It holds all but the database, the logs, the folders of sessions that run, the witness, drafts and locks.
    Asked on both ways: a file that says where the data lies would have a restore remove what is there.
    """
    parts = path.parts or ("",)
    is_database = parts[0] == "postgres" and parts not in {("postgres",), ("postgres", "password")}
    is_hidden = any(part.startswith(".") for part in parts)
    return not (is_database or parts[0] in {LOGS, SESSIONS} or path.name == witness.FILE or is_hidden)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        archive.addfile(_member(name, len(content)), _from_start(file))


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def _from_start(file: BinaryIO) -> BinaryIO:
    file.seek(0)
    return file


@contextmanager
def _private(path: Path) -> Iterator[BinaryIO]:
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
        yield file


def _remove(draft: Path) -> None:
    """Remove a home that was not finished, with its data where that lies outside."""
    where = draft / "postgres" / "where"
    if where.exists():
        shutil.rmtree(where.read_text().strip(), ignore_errors=True)
    shutil.rmtree(draft, ignore_errors=True)
