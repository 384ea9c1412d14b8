"""The command line run in this process, which builds its commands once for all calls."""

import asyncio
import sys
from dataclasses import dataclass
from functools import cache

from typer.main import get_command
from typer.testing import CliRunner

from butlers.cli.app import build
from shared.errors import ButlersError
from tests.integration.house import House

commands = cache(lambda: get_command(build()))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    output: str
    exception: ButlersError | None = None


def call(house: House, *argv: str) -> Ended:
    """Run a command of the owner's."""
    env = {"DATABASE_URL": house.dsn, "BUTLERS_HOME": str(house.settings.home)}
    code, raised = 0, None
    with CliRunner().isolation(env=env) as (out, _, both):
        try:
            commands().main(argv, prog_name="butlers")
        except SystemExit as ended:
            code = int(ended.code or 0)
        except ButlersError as error:
            code, raised = 1, error
        sys.stdout.flush()
        sys.stderr.flush()
        return Ended(code, out.getvalue().decode(), both.getvalue().decode(), raised)


async def said(house: House, *argv: str) -> str:
    """Run a command that must end well; what it prints."""
    ended = await asyncio.to_thread(call, house, *argv)
    assert ended.exit_code == 0, (argv, ended.output[-2000:], ended.exception)
    return ended.stdout
