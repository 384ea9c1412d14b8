"""The folder BUTLERS_HOME, which holds everything that must stay the owner's own."""

from pathlib import Path

# What others must not do with it: who may write here can put a folder of theirs in the place of one of ours.
WRITABLE_BY_OTHERS = 0o022


def make(home: Path) -> None:
    """Make the folder for this user alone, whatever the umask; leave one that exists as it is."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o700, exist_ok=True)


def is_open(home: Path) -> bool:
    """Return whether others may write into the folder.

    The sticky bit, which keeps them from removing what is ours, makes no difference.
    """
    return home.is_dir() and bool(home.stat().st_mode & WRITABLE_BY_OTHERS)
