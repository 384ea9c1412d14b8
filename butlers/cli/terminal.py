"""What the client commands share: settings, one connection as the owner, and how answers are printed.

INVARIANT: nothing of the command line is printed but from here, so that no word of others moves a terminal, begins a
line of its own or hides a character, whatever a command prints.
"""

import getpass
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import asyncpg
import typer

from butlers.setup import logins
from butlers.setup.migrate import demand_schema
from shared import home_folder
from shared.auth import keystore
from shared.config.settings import DEFAULT_HOME, Settings, current, named_home
from shared.db.dsn import admin_dsn, dsn_as, place_of, trouble
from shared.db.pool import LOST, Connection, Record, prepare_connection, transaction
from shared.db.proof import connect
from shared.display.visible import in_line, printable, rows, shortened
from shared.errors import ButlersError, InvalidInput, Misconfigured, Unavailable
from shared.storage import contacts

# The mark at the beginning of each row that continues a line too long for the screen.
GOES_ON: Final = "  | "
# Whose credentials those of the channels are.
MESSENGER: Final = "messenger"
# How many characters a row of a table shows of a text.
ROOM: Final = 60
Row = TypeVar("Row", Record, dict[str, object])
Found = TypeVar("Found")


def settings_of(
    fleet: Path | None = None,
    where: Path | None = None,
    *,
    makes: bool = False,
    is_shared: bool = False,
    credentials: bool = True,
) -> Settings:
    """Return the settings: what the command line says, else the environment, else what the home remembers.

    Raise Misconfigured where there is no home, unless the command `makes` one. Without `credentials` those that the
    home keeps for the Messenger are not read.
    """
    named = named_home() if where is None else where
    home = _home_of(named)
    if not makes and not home_folder.is_installed(home):
        raise _no_home(home, is_named=named is not None, is_daemon=is_shared)
    kept = credentials_in(home) if credentials else {}
    settings = current({**home_folder.remembered(home, is_shared=is_shared), **kept})
    for unknown in settings.unknown:
        complain(str(unknown))
    return replace(settings, home=home, fleet=settings.fleet if fleet is None else fleet)


def _home_of(named: Path | None) -> Path:
    """Return the home that is named, or else the nearest one here or in a folder above, as git finds its own."""
    here = Path.cwd()
    return (home_folder.find(here) or here / DEFAULT_HOME) if named is None else named.resolve()


def _no_home(home: Path, *, is_named: bool, is_daemon: bool) -> Misconfigured:
    """Return the error of a command that finds no installation; what would make a second one is no remedy."""
    if not is_named:
        return Misconfigured(
            f"There is no installation in {home.parent} or in a folder above it.",
            "Run the command where it is, or name its home with --home.",
        )
    migrate = "Run `butlers migrate` first, or correct" if is_daemon else "Correct"
    return Misconfigured(f"There is no installation in {home}.", f"{migrate} --home or BUTLERS_HOME.")


def credentials_in(home: Path) -> Mapping[str, str]:
    """Return the settings of the channels that `butlers go-live` keeps in this home."""
    content = keystore.read_credentials(home, MESSENGER)
    try:
        return {str(name): str(value) for name, value in json.loads(content or b"{}").items()}
    except (ValueError, AttributeError):
        path = keystore.folder(home, MESSENGER) / keystore.CREDENTIALS
        raise Misconfigured(f"{path} is damaged.", "Remove it, and run `butlers go-live` again.") from None


@asynccontextmanager
async def as_owner(settings: Settings) -> AsyncIterator[Connection]:
    """Open one transaction by the owner's login."""
    async with as_login(settings, keystore.OWNER) as connection, transaction(connection):
        yield connection


@asynccontextmanager
async def as_login(settings: Settings, name: str) -> AsyncIterator[Connection]:
    """Open one connection by the login of that daemon."""
    admin = admin_dsn(settings)
    keys = keystore.read(settings.home, name)
    dsn = dsn_as(admin, name, keys.password)
    try:
        connection = await connect(dsn, 10)
    except asyncpg.InvalidAuthorizationSpecificationError:
        raise Misconfigured("The database does not know this installation.", "Run `butlers migrate`.") from None
    except (*LOST, asyncpg.PostgresError) as lost:
        way = "Start it with `butlers up`." if settings.database_url is None else "Start it, or correct DATABASE_URL."
        where, why = place_of(dsn), trouble(lost)
        raise Unavailable(f"The database {where} cannot be reached: {why}.", way) from None
    try:
        await demand_schema(connection)
        await logins.demand_mode(connection, own_login=keys.has_login)
        await prepare_connection(connection)
        yield connection
    except LOST as lost:
        raise Unavailable(
            f"The connection to the database was lost: {trouble(lost)}.", "Try again in a moment."
        ) from None
    finally:
        await connection.close(timeout=2)


async def owner_id(connection: Connection) -> str:
    """Return the contact in whose name the command is given; raise Misconfigured if nobody is the owner."""
    found = await contacts.owner(connection)
    if found is None:
        raise Misconfigured("There is no owner yet.", "Run `butlers contacts add NAME --role owner`.")
    return str(found["id"])


def one_of(rows: Sequence[Row], beginning: str, what: str) -> Row:
    """Return the only row whose id begins so; raise InvalidInput unless there is exactly one."""
    return only([row for row in rows if beginning and str(row["id"]).startswith(beginning)], beginning, what)


def only(found: Sequence[Found], beginning: str, what: str) -> Found:
    """Return the only one that was found; raise InvalidInput unless there is exactly one. Two stand for more."""
    if len(found) > 1:
        raise InvalidInput(f"The ids of several {what}s begin with `{beginning}`.", "Give more of the id.")
    if len(found) != 1:
        everything = " --all" if what in {"approval", "question", "token"} else ""
        raise InvalidInput(f"No {what} matches the id `{beginning}`.", f"See `butlers {what}s list{everything}`.")
    return found[0]


def contact_of(rows: Sequence[Row], said: str) -> Row:
    """Return the only contact of this name, or whose name or id begins so; raise InvalidInput else."""
    name = said.strip().casefold()
    found = [row for row in rows if str(row["name"]).casefold() == name]
    if not found:
        names = [(row, (str(row["name"]).casefold(), str(row["id"]))) for row in rows]
        found = [row for row, known_as in names if name and any(one.startswith(name) for one in known_as)]
    if len(found) != 1:
        several = "; ".join(f"{row['name']} ({row['id']})" for row in found[:6])
        remedy = f"Give the id of one: {several}." if found else "See `butlers contacts list`."
        raise InvalidInput(f"{'Several contacts match' if found else 'No contact matches'} `{said}`.", remedy)
    return found[0]


def say(text: str) -> None:
    """Print one line for a person; where a terminal is too narrow for it, begin each further row with a mark."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in broken(printable(text), width):
        sys.stdout.write(f"{row}\n")


def broken(text: str, width: int | None) -> list[str]:
    """Break a line into rows for a screen so many columns wide; all but the first begin with a mark."""
    if width is None or width <= 2 * len(GOES_ON):
        return [text]
    first, *more = rows(text, width - len(GOES_ON))
    return [first, *(f"{GOES_ON}{row}" for row in more)]


def say_lines(text: str) -> None:
    """Print a text of several lines that are ours, or marked as somebody's by `quoted`."""
    for line in text.split("\n"):
        say(line)


def complain(text: str) -> None:
    """Print one line about what is wrong."""
    sys.stderr.write(f"butlers: {printable(text)}\n")


def remark(text: str) -> None:
    """Print one line for a person beside what a program reads: on the other stream."""
    sys.stderr.write(f"{printable(text)}\n")


def say_json(value: object, *, lines: int | None = 2) -> None:
    """Print a value for a program, in one line if `lines` is None; give a terminal nothing but printable ASCII."""
    text = json.dumps(value, ensure_ascii=True, default=_as_json, indent=lines)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")


def _as_json(value: object) -> str:
    return instant(value) if isinstance(value, datetime) else str(value)


def instant(at: datetime, precision: str = "milliseconds") -> str:
    """Return a moment as RFC 3339 in UTC, the one form of time in JSON: `2026-11-25T13:52:00.123Z`."""
    utc = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return f"{utc.replace(tzinfo=None).isoformat(timespec=precision)}Z"


def text_of(given: str) -> str:
    """Return the text that an option gives; for `-` what comes on standard input, without its last line break."""
    if given != "-":
        return given
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InvalidInput("What comes on standard input is not UTF-8 text.", "Send it as UTF-8.") from None


def each(ids: Sequence[str], do: Callable[[str], None]) -> None:
    """Do it for each id; where there are several, name the ones that fail, go on, and exit with 1 at the end."""
    failed = False
    for one in dict.fromkeys(ids):
        try:
            do(one)
        except ButlersError as refused:
            if len(ids) == 1:
                raise
            complain(f"{one}: {refused}")
            failed = True
    if failed:
        raise typer.Exit(1)


def beginning(text: str) -> str:
    """Return as much of a text as a row of a table has room for, with a mark where something is left out."""
    return shortened(text, ROOM)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], nothing: str = "") -> None:
    """Print rows in columns, each on one line: a cell's line breaks become spaces.

    Where there is no row, say `nothing` to a person instead, if that is given.
    """
    if nothing and not rows:
        remark(nothing)
        return
    cells = [[in_line(str(cell).replace("\n", " ")) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[n]) for row in cells)]) for n, title in enumerate(head)]
    for row in ([title.upper() for title in head], *cells):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def answer_to(question: str, *, secret: bool = False) -> str | None:
    """Return a person's answer to a question, without showing it if it is secret; None where nobody is there."""
    if not sys.stdin.isatty():
        return None
    if secret:
        return getpass.getpass(printable(question) + " ").strip()
    sys.stdout.write(printable(question) + " ")
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise KeyboardInterrupt
    return answer.strip()
