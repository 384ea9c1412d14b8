"""The command line. Client commands talk to the database, not to daemons, and import no server."""

import asyncio
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final

import typer
from typer.main import get_command

from butlers.cli import (
    approvals,
    audit,
    brake,
    config,
    contacts,
    deliveries,
    doctor,
    keys,
    mcp_config,
    notify,
    pair,
    rules,
    serve,
    sign_in,
    status,
    tokens,
    why,
)
from butlers.cli.session import complain, say
from shared.config.settings import quiet_third_parties
from shared.errors import ButlersError


def _show_version(asked: bool) -> None:  # noqa: FBT001  # typer's way
    if asked:
        say(f"butlers {version('butlers')}")
        raise typer.Exit


app: Final = typer.Typer(
    name="butlers",
    help="AI agents that can send messages for you, and ask for your approval first.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback()
def main(
    _: Annotated[  # noqa: FBT002  # typer's way
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """AI agents that can send messages for you, and ask for your approval first."""


serve.add_to(app)
sign_in.add_to(app)
notify.add_to(app)
app.command()(tokens.token)
mcp_config.add_to(app)
status.add_to(app)
app.add_typer(pair.app, name="pair")
app.add_typer(config.app, name="config")
app.add_typer(contacts.app, name="contacts")
app.add_typer(approvals.app, name="approvals")
app.add_typer(rules.app, name="rules")
app.add_typer(brake.app, name="brake")
app.command()(brake.restored)
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(audit.app, name="audit")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
why.add_to(app)
doctor.add_to(app)


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
        get_command(app)(argv)
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
