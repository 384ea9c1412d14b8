"""The folder BUTLERS_HOME: how it is found, what it remembers, and who may read it.

It holds everything that must stay the owner's own. It remembers what the house was last set up with, by the names of
the settings, so that no later command has to repeat it.
"""

import json
import os
import pwd
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from shared.errors import Misconfigured

NAME: Final = ".butlers"
FILE: Final = "settings.json"
# Under which it remembers where the database is that is not its own, which is no setting: DATABASE_URL has a password.
OUTSIDE: Final = "DATABASE"
# A home that remembers nothing was made when these were the ports.
EARLIER_PORTS: Final = {"BUTLERS_PORT_BASE": "41100"}
# Where the latest log lines are kept, below the home.
LOGS: Final = "logs"
# In which each session has a folder while it runs, below the home.
SESSIONS: Final = "sessions"
# What others must not do with it: who may write here can put a folder of theirs in the place of one of ours.
WRITABLE_BY_OTHERS = 0o022


def make(home: Path) -> None:
    """Make the folder so that only this user may write into it or list it, whatever the umask; leave one that exists.

    Others may pass through: a daemon under a user of its own has its keys below.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o711, exist_ok=True)


def is_open(home: Path) -> bool:
    """Return whether others may write into the folder.

    The sticky bit, which keeps them from removing what is ours, makes no difference.
    """
    return home.is_dir() and bool(home.stat().st_mode & WRITABLE_BY_OTHERS)


def is_installed(home: Path) -> bool:
    """Return whether there is an installation in this folder, or the beginning of one."""
    return any((home / part).is_dir() for part in ("keys", "postgres"))


def find(start: Path) -> Path | None:
    """Return the nearest home in this folder or above it, or None.

    Raises Misconfigured if it is another user's, or open to all: what others remember there could lead our words and
    keys astray.
    """
    for folder in (start, *start.parents):
        home = folder / NAME
        if not home.is_dir():
            continue
        demand_own("home", home, {os.geteuid()})
        if is_installed(home):
            return home
    return None


def demand_own(what: str, folder: Path, owners: Collection[int], within: Iterable[Path] = ()) -> None:
    """Raise Misconfigured if the folder, or what is named within it, is nobody's of these or open to every user."""
    for path in (folder, *within):
        try:
            found = path.stat()
        except OSError:  # a link to nowhere, or gone meanwhile: there is nothing to believe
            continue
        is_whole = path == folder
        called = f"{what} {folder}" if is_whole else f"{what}'s {path.relative_to(folder)}"
        if found.st_uid not in owners:
            own = f"Run the command as that user, or name a {what} of your own with --{what}."
            raise Misconfigured(
                f"The {called} belongs to another user, {_name_of(found.st_uid)}.",
                own if is_whole else "Remove it, or put a copy of your own in its place.",
            )
        if found.st_mode & stat.S_IWOTH and (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise Misconfigured(
                f"Every user can write to the {called}.",
                f"If you trust what lies in it, run `chmod {'' if is_whole else '-R '}go-w {folder}`.",
            )


def remembered(home: Path, *, is_shared: bool = False) -> Mapping[str, str]:
    """Return what the house was last set up with, by the names of the settings; raise Misconfigured if unreadable.

    Where the home `is_shared`, with daemons under users of their own, they are told by their environment instead.
    """
    path = home / FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in said.items()}
    except (FileNotFoundError, NotADirectoryError):
        return EARLIER_PORTS if is_installed(home) else {}
    except PermissionError:
        if is_shared:
            return {}
        raise Misconfigured(
            f"{path} cannot be read: Permission denied.", "Start as the user who made it, or correct --home."
        ) from None
    except (OSError, ValueError, AttributeError):
        raise Misconfigured(f"{path} is damaged.", "Remove it, and name fleet and ports once more.") from None


def remember(home: Path, settings: Mapping[str, str]) -> None:
    """Keep what the house is set up with, for its owner alone to read, whole or not at all."""
    path, text = home / FILE, json.dumps(settings, indent=2) + "\n"
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return
    draft = path.with_name(f".{FILE}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as refused:
        raise Misconfigured(f"{path} cannot be written: {refused.strerror}.", "Correct BUTLERS_HOME.") from None


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the one with id {uid}"
