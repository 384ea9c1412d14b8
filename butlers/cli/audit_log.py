"""audit list, show, export: the lines of the audit, to read and to keep elsewhere."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.audit import MESSENGER, app
from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import as_login, as_owner, say, say_json, settings_of, table
from shared.auth import keystore
from shared.config.settings import Settings
from shared.db.pool import Connection
from shared.errors import InvalidInput
from shared.storage import audit_seals, keyring
from shared.storage.audit_seals import LINE, Wanted, subject_of

FORM = "butlers audit.v1"
# No line has a number that the database has no room for.
MOST_LINES = 2**63


def add_to(line: typer.Typer) -> None:
    """Put the group `audit` on the command line, these commands among it."""
    line.add_typer(app, name="audit")


@app.command("list")
def list_lines(
    about: Annotated[
        str | None, typer.Option("--about", help="The beginning of the ID of a message, approval or rule.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who did it: owner, messenger or a butler.")] = None,
    event: Annotated[str | None, typer.Option("--event", help="What happened, such as approved.")] = None,
    most: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many of the latest lines to print.")] = 50,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the latest lines of the log, oldest first."""

    async def read() -> list[dict[str, str | None]]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await audit_seals.latest_lines(connection, Wanted(about or "", event or "", by or ""), most)

    found = asyncio.run(read())
    if as_json:
        say_json({"lines": found})
        return
    columns = ("seq", "at", "event_type", "actor")
    cells = [[*(one[name] for name in columns), subject_of(one)[:SHORT], one["reason"] or ""] for one in found]
    table(("line", "at", "event", "by", "about", "reason"), cells, "There are no such lines.")


@app.command("show")
def show_line(
    line: Annotated[int, typer.Argument(help="The number of the line.")],
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one line of the log whole."""

    async def read() -> dict[str, str | None] | None:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await audit_seals.one_line(connection, line)

    found = asyncio.run(read()) if 0 < line < MOST_LINES else None
    if found is None:
        raise InvalidInput(f"The log has no line {line}.", "List its lines with `butlers audit list`.")
    if as_json:
        say_json(found)
        return
    for name, value in found.items():
        if value is not None:
            say(f"{name:<16} {value}")


@app.command("export")
def export(
    file: Annotated[str, typer.Argument(help="A new file, or - for standard output.")],
    home_folder: HomeOption = None,
) -> None:
    """Write all lines and seals as JSON lines, which examples/verify_audit.py checks without Butlers."""
    settings = settings_of(None, home_folder)
    if file == "-":
        asyncio.run(_write(settings, sys.stdout.write))
        return
    try:
        with Path(file).open("x", encoding="utf-8") as sink:
            asyncio.run(_write(settings, sink.write))
    except OSError as refused:
        raise InvalidInput(f"{file} cannot be written: {refused.strerror}.", "Name a new file.") from None


async def _write(settings: Settings, put: Callable[[str], object]) -> None:
    """Write everything in one view of the database."""
    known = keystore.public_keys(settings.home, MESSENGER)
    async with (
        as_login(settings, keystore.OWNER) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        keys = known or list(await keyring.all_of(connection, MESSENGER))
        async for record in _records(connection, keys):
            put(json.dumps(record) + "\n")  # in ASCII: it may go to a terminal


async def _records(connection: Connection, keys: Sequence[str]) -> AsyncIterator[dict[str, object]]:
    yield {"form": FORM, "keys": list(keys), "columns": LINE}
    last = 0
    while page := await audit_seals.after(connection, last):
        for seal in page:
            words = {"n": seal.n, "seqs": seal.seqs, "at": seal.at}
            raw = {name: getattr(seal, name).hex() for name in ("digests", "prev", "hash", "signature")}
            yield {"seal": words | raw}
        last = page[-1].n
    async for line in audit_seals.every_line(connection):
        yield {"line": list(line)}
