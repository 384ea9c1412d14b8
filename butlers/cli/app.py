"""The command line. Client commands talk to the database, not to daemons, and import no server."""

import asyncio
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final

import typer
from typer.main import get_command

from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.terminal import complain, say
from shared.config.settings import quiet_third_parties
from shared.errors import ButlersError


def _show_version(asked: bool) -> None:  # noqa: FBT001  # typer's way
    if asked:
        say(f"butlers {version('butlers')}")
        raise typer.Exit


# The file of each command or group, in the order in which help lists them.
FILES: Final[Mapping[str, str]] = {
    "up": "serve",
    "run": "serve",
    "init": "serve",
    "migrate": "serve",
    "reload": "fleet",
    "fleet": "fleet",
    "sign-in": "sign_in",
    "notify": "notify",
    "ask": "ask",
    "sessions": "sessions",
    "schedules": "schedules",
    "history": "history",
    "mcp-config": "mcp_config",
    "status": "status",
    "why": "why",
    "doctor": "doctor",
    "logs": "logs",
    "go-live": "go_live",
    "pair": "pair",
    "config": "config",
    "contacts": "contacts",
    "approvals": "approvals",
    "questions": "questions",
    "rules": "rules",
    "routes": "routes",
    "token": "tokens",
    "tokens": "tokens",
    "brake": "brake",
    "restored": "brake",
    "backup": "backup",
    "restore": "backup",
    "deliveries": "deliveries",
    "audit": "audit_log",
    "keys": "keys",
    "manictime": "manictime",
    "desk": "desk",
}


def build(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line with the commands that are named in these words, or with all if none is.

    What the other commands import takes longer than most of them take.
    """
    line = typer.Typer(
        name="butlers",
        help="AI agents that can send messages for you, and ask for your approval first.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    line.callback()(main)
    for file in dict.fromkeys([FILES[word] for word in words if word in FILES] or FILES.values()):
        import_module(f"butlers.cli.{file}").add_to(line)
    return line


def main(
    context: typer.Context,
    _: Annotated[  # noqa: FBT002  # typer's way
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """AI agents that can send messages for you, and ask for your approval first."""
    given = {"fleet_folder": fleet_folder, "home_folder": home_folder}
    context.default_map = _for_every(context.command, {name: value for name, value in given.items() if value})


def _for_every(command: object, given: Mapping[str, Path]) -> dict[str, object]:
    """Return what is given before the command as defaults of each command below, as its parser looks them up."""
    below: Mapping[str, object] = getattr(command, "commands", {})
    return {name: _for_every(one, given) for name, one in below.items()} if below else dict(given)


def _unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unforeseen error in one line: what it was and, for a report, the lines of code it came through."""
    way = " < ".join(f"{Path(at.filename).name}:{at.lineno}" for at in reversed(traceback.extract_tb(trace)[-6:]))
    said = " ".join(str(error).split())
    complain(f"Unexpected error: {kind.__name__}: {said}. Please report it with: {way}")


def run(argv: Sequence[str] | None = None) -> None:
    """Run a command, this process's own or `argv`: exit 0 done, 1 failed or refused, 2 usage.

    A person never sees a traceback.
    """
    quiet_third_parties()
    sys.excepthook = _unforeseen
    try:
        get_command(build(sys.argv[1:] if argv is None else argv))(argv)
    except ButlersError as failed:
        complain(str(failed))
        raise SystemExit(1) from None
    except OSError as refused:
        if refused.filename is None:
            raise
        complain(f"{refused.filename} cannot be used: {refused.strerror}. Correct it, or its owner.")
        raise SystemExit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None
