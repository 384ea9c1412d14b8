"""The process that watches folders for the module `files`, run by its path: whoever may write there can make it grow.

Nothing else of ours is in it, and its memory has an end. The first line that it reads says what to watch; when its
input ends, so does it. It writes one JSON line for each folder each time something changed in any: the folder's number,
how many files changed, and of a few the name and what became of it. It ends when a folder is
not there any more, or another is in its place.
"""

import json
import os
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from heapq import nsmallest
from pathlib import Path
from typing import Any

from watchfiles import Change, watch

# Milliseconds: what changes in one go is gathered until nothing has changed for so long, or for so long at most.
QUIET, GATHERED = 200, 5000
# Milliseconds between two looks at the folders themselves: the system does not say that one went away with the disk or
# the folder that it lies in.
LOOKED = 5000
WORDS = {Change.added: "added", Change.modified: "changed", Change.deleted: "deleted"}


def end_of_memory(megabytes: int) -> None:
    """Limit the data of this process where the system can; keep a limit that is lower."""
    with suppress(ImportError):
        import resource  # noqa: PLC0415  # not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([megabytes * 2**20, *limits]), hard))


def end_with_input() -> None:
    """End this process as soon as nobody holds the other end of its input."""
    while os.read(0, 1):
        pass
    os._exit(0)


def below(folder: str, changes: Collection[tuple[Change, str]]) -> dict[str, str]:
    """Return what became of each file, by its name within the folder."""
    inside = f"{folder}{os.sep}"
    # Of a file that was replaced the last is said: that it is there.
    each = sorted(changes, key=lambda one: one[0] == Change.added)
    return {path.removeprefix(inside): WORDS[change] for change, path in each if path.startswith(inside)}


def known(folder: str) -> tuple[int, int] | None:
    """Return which folder a path leads to, or None if there is none."""
    with suppress(OSError):
        there = Path(folder).stat()
        return there.st_dev, there.st_ino
    return None


def main(said: Mapping[str, Any]) -> None:
    """Watch the folders until the end."""
    end_of_memory(said["memory_mb"])
    threading.Thread(target=end_with_input, daemon=True).start()
    watched = [known(folder) for folder in said["folders"]]
    # A link to what this user may not read keeps nothing else from being watched.
    for changes in watch(
        *said["folders"],
        step=QUIET,
        debounce=GATHERED,
        rust_timeout=LOOKED,
        yield_on_timeout=True,
        watch_filter=None,
        ignore_permission_denied=True,
    ):
        if changes:
            tell(said, changes)
        if [known(folder) for folder in said["folders"]] != watched:
            sys.exit("a folder went away")


def tell(said: Mapping[str, Any], changes: Collection[tuple[Change, str]]) -> None:
    """Write what changed in each folder."""
    for number, folder in enumerate(said["folders"]):
        found = below(folder, changes)
        named = [(name[-said["longest"] :], found[name]) for name in nsmallest(said["most_named"], found)]
        sys.stdout.write(json.dumps([number, len(found), named]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
