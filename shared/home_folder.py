"""The folder BUTLERS_HOME, which holds everything that must stay the owner's own."""

from pathlib import Path

# Where the latest log lines are kept, below the home.
LOGS = "logs"
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
