"""The witness: a small file outside the database that says how far its rows had come, so that older ones are known.

It lies beside the Messenger's keys, and a second one where the owner says. Of several, the furthest counts; one whose
content cannot be parsed says nothing.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from shared.auth import keystore
from shared.errors import Unavailable

FILE: Final = "witness"
_LARGEST: Final = 4096
# Wait two seconds for another process that writes at the same moment.
_TRIES: Final = 400
_BREATH_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rows held: how often the beat had moved, the newest seal of the audit, and whose rows they were."""

    beat: int = 0
    seal: int = 0
    seal_hash: str = ""
    # The system identifier of the PostgreSQL cluster, and its time then; both for people.
    system: str = ""
    at: str = ""
    # The second place it was written to, if there was one.
    elsewhere: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """How far the rows had come: the beat, and the seals that were made since it moved."""
        return self.beat, self.seal


def places(home_folder: Path, name: str, other: Path | None) -> tuple[Path, ...]:
    """Return where the witness of this home lies: beside the keys, and at the other place if one is named."""
    return (keystore.folder(home_folder, name) / FILE, *([other] if other is not None else []))


def furthest(paths: Sequence[Path]) -> Seen | None:
    """Return the furthest of the witnesses that exist, or None if there is none.

    Raises Unavailable where one cannot be read, or where the second one is gone that the first one names: neither
    proves that there was none.
    """
    found = {path: seen for path in paths if (seen := _read(path)) is not None}
    for seen in found.values():
        for path in paths:
            if seen.elsewhere == str(path) and path not in found:
                raise Unavailable(
                    f"The witness {path} is missing.",
                    "Bring back its disk. If it is lost, start once without BUTLERS_WITNESS.",
                )
    return max(found.values(), key=lambda seen: seen.order) if found else None


def _read(path: Path) -> Seen | None:
    try:
        content = path.read_bytes()[:_LARGEST]
    except FileNotFoundError:
        return None
    except OSError as refused:
        text = f"The witness {path} cannot be read: {refused.strerror}."
        raise Unavailable(text, "Let the Messenger read it; nothing is sent to others until then.") from None
    try:
        said = json.loads(content)
        return Seen(
            int(said["beat"]),
            int(said["seal"]),
            str(said["seal_hash"]),
            str(said["system"]),
            str(said["at"]),
            str(said.get("elsewhere", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def ahead(seen: Seen, by: int) -> Seen:
    """Return a witness so much further, behind which the rows of a backup are found to be."""
    return replace(seen, beat=seen.beat + by)


def write(paths: Sequence[Path], seen: Seen) -> None:
    """Make each place say at least this, on the disk before this returns; leave alone what says as much already.

    Raises Unavailable where it cannot be kept: then nothing may leave that it does not cover.
    """
    elsewhere = str(paths[1]) if len(paths) > 1 else ""
    content = json.dumps(asdict(replace(seen, elsewhere=elsewhere))).encode() + b"\n"
    for path in paths:
        try:
            with _alone(path):
                said = _read(path)
                if said is None or said.order < seen.order:
                    _replace(path, content)
        except OSError as refused:
            text = f"The witness {path} cannot be written: {refused.strerror}."
            raise Unavailable(text, "Let the Messenger write there; nothing is sent to others until then.") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let only one process at a time write, so that the witness never goes back.

    A process that stands still is waited for two seconds at most.
    """
    with _opened(path.with_name(f".{path.name}.lock"), os.O_WRONLY | os.O_CREAT) as lock:
        for _ in range(_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_BREATH_SECONDS)
        else:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds it")
        yield


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with _opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _opened(path: Path, flags: int) -> BinaryIO:
    """Open a file for its owner alone; if root makes it, give it to the owner of the folder."""
    file = os.fdopen(os.open(path, flags, 0o600), "wb")
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return file
