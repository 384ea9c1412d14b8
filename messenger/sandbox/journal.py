"""Append-only files of JSON lines that are on the disk before anybody is told."""

import fcntl
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from messenger.sandbox.room import weigh
from shared.errors import InvalidInput, Misconfigured

OWNERS_FOLDER: Final = 0o700
OWNERS_FILE: Final = 0o600


class SandboxBusy(Misconfigured):
    """Another sandbox uses the same folder."""


class BrokenFile(ValueError):
    """A file of the sandbox holds a line that is no JSON object, or more than may be kept."""


class SandboxFull(InvalidInput):
    """What is to be written does not fit any more."""


def _ensure_for_the_owner_alone(folder: Path) -> None:
    folder.mkdir(mode=OWNERS_FOLDER, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        try:
            folder.chmod(OWNERS_FOLDER)
        except PermissionError:
            raise Misconfigured(
                f"Others may read {folder}, which belongs to another user.", "Give it to the user who runs the sandbox."
            ) from None


def _for_the_owner_alone(path: Path) -> int:
    """Open a file to append to that nobody else may read, even if it was left readable."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, OWNERS_FILE)
    os.fchmod(file, OWNERS_FILE)
    return file


class Lines:
    """One file of JSON objects, one a line, of which all together weigh at most `most`.

    A line that was cut by a crash is dropped when the file is opened.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.most = most
        self.weight = 0
        _ensure_for_the_owner_alone(path.parent)
        self._file = os.fdopen(_for_the_owner_alone(path), "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise SandboxBusy(
                f"Another sandbox is using {path.parent}.", "Stop it, or give this one another home."
            ) from error
        self._drop_torn_line()
        self._sync_folder()

    def read(self) -> Iterator[Mapping[str, object]]:
        """Yield every line, oldest first; raise BrokenFile with the number of the line that cannot be read.

        Read each file once: what is read is what is weighed.
        """
        with self.path.open("rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(self.most + 1), b""), start=1):
                self.weight += weigh(raw)
                if self.weight > self.most:
                    raise BrokenFile(f"{self.path.name} holds too much")
                try:
                    line = json.loads(raw)
                except ValueError:
                    line = None
                if not isinstance(line, dict):
                    raise BrokenFile(f"line {number} of {self.path.name} is no JSON object")
                yield line

    def append(self, lines: Iterable[Mapping[str, object]]) -> None:
        """Write the lines and return once they are on the disk (write, flush, fsync).

        Raise SandboxFull, with nothing written, if they do not fit.
        """
        raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if self.weight + weigh(raw) > self.most:
            raise SandboxFull("The sandbox is full.", "Start it again: it sets aside what it kept, and begins anew.")
        self._file.write(raw)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.weight += weigh(raw)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    def _drop_torn_line(self) -> None:
        # INVARIANT: a line without its newline was never answered for, so nobody relies on it.
        size = self._file.seek(0, os.SEEK_END)
        if not size:
            return
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            end = whole.rfind(b"\n") + 1
        if end != size:
            self._file.truncate(end)
            os.fsync(self._file.fileno())

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
