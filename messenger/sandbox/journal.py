"""Append-only files of JSON lines that are on the disk before anybody is told."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from shared.errors import Misconfigured

OWNERS_FOLDER: Final = 0o700
OWNERS_FILE: Final = 0o600


class SandboxBusy(Misconfigured):
    """Another sandbox uses the same folder."""


class BrokenFile(Misconfigured):
    """A file of the sandbox holds a line that is no JSON object."""


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
    """One file of JSON objects, one a line. A line that was cut by a crash is dropped when the file is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        """Yield every line, oldest first; raise BrokenFile with the number of the line that cannot be read."""
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                try:
                    line = json.loads(raw)
                except ValueError:
                    line = None
                if not isinstance(line, dict):
                    raise BrokenFile(
                        f"Line {number} of {self.path} is no JSON object.", "Move the file away to start empty."
                    )
                yield line

    def append(self, lines: Iterable[Mapping[str, object]]) -> None:
        """Write the lines and return once they are on the disk (write, flush, fsync)."""
        self._file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    def _drop_torn_line(self) -> None:
        # INVARIANT: a line without its newline was never answered for, so nobody relies on it.
        self._file.seek(0)
        whole = self._file.read()
        end = whole.rfind(b"\n") + 1
        if end != len(whole):
            self._file.truncate(end)
            os.fsync(self._file.fileno())

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
