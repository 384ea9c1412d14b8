"""Processes as the kernel shows them: those of sessions by the working folder, which is the session's own."""

import os
from pathlib import Path
from typing import Final

from tests.rig.waiting import until

PROC: Final = Path("/proc")


def children(session_id: str) -> list[int]:
    """Every process whose working folder is the session's."""
    return [int(one.name) for one in PROC.glob("[0-9]*") if session_id in folder(int(one.name))]


def running(program: str) -> int | None:
    """This process's own child that runs such a program, if one does."""
    own = (pid for pid in map(int, (one.name for one in PROC.glob("[0-9]*"))) if _parent(pid) == os.getpid())
    return next((pid for pid in own if program in command(pid)), None)


def folder(pid: int) -> str:
    """The working folder of a process, empty if it is gone."""
    try:
        return str((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return ""


def command(pid: int) -> str:
    """The argument list of a process, as everybody on the machine sees it."""
    return _read(pid, "cmdline")


def environment(pid: int) -> str:
    """The environment a process was started with."""
    return _read(pid, "environ")


def _parent(pid: int) -> int:
    # Behind the program's name, which may hold anything, come the state and the parent.
    return int((_read(pid, "stat").rpartition(")")[2].split() or ["", "0"])[1])


def _read(pid: int, what: str) -> str:
    try:
        return (PROC / str(pid) / what).read_text(encoding="utf-8")
    except OSError:
        return ""


async def child_of(session_id: str) -> int:
    """The session's own program, once it runs; not the shell that watches over its group."""
    return await until(lambda: next((pid for pid in children(session_id) if "script_child" in command(pid)), None))
