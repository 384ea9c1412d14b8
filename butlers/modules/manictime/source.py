"""ManicTime's report database: found, opened to read alone, and looked over; its rows come from here.

INVARIANT: nothing is ever written, and nothing here runs on the event loop. Each read has a connection of its own in a
worker thread, beside a live writer; it waits 50 and 200 ms for a busy one, and ends after ten seconds.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple
from urllib.parse import quote

from butlers.modules.manictime import queries
from butlers.modules.manictime.days import Range
from butlers.modules.manictime.queries import Activity, View
from shared.config.settings import variable
from shared.errors import ButlersError, InvalidInput, Unavailable

DATABASE: Final = "ManicTimeReports.db"
BUSY_WAITS: Final = (0.05, 0.2)
LONGEST_SECONDS: Final = 10.0
# The timekeeper's own: however many calls come and however long they take, they fill neither the threads of others in
# this process nor, with large pictures, its memory.
WORKERS: Final = ThreadPoolExecutor(2, "manictime")
STEPS_BETWEEN_LOOKS: Final = 20_000
BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
NO_LIMIT: Final = -1
# Text that can leave for any client, whatever bytes a row holds; it takes longer than what reads proper text.
TEXT: Final = partial(str, encoding="utf-8", errors="replace")
HEALTH: Final = "The resource manictime://health says more."
T = TypeVar("T")
Args = TypeVarTuple("Args")


class NoData(Unavailable):
    """The database cannot be read now; the tools say so, and nothing else stops."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where ManicTime's data is, and how that is known."""

    data: Path | None
    found_by: str
    screenshots: Path | None

    @property
    def database(self) -> Path:
        """Return the path of the database; raise NoData if nobody knows where it is."""
        if self.data is None:
            raise NoData(
                "The folder of ManicTime's data is not known.",
                "Name it as `data` in butler.toml, or by MANICTIME_DATA_DIR.",
                code="directory_unresolved",
            )
        return self.data if self.data.suffix == ".db" else self.data / DATABASE


def locate(data: Path | None, screenshots: Path | None) -> Location:
    """Return where the data is: as configured, else by MANICTIME_DATA_DIR, else where ManicTime puts it."""
    said, local = (variable("MANICTIME_DATA_DIR") or "").strip(), variable("LOCALAPPDATA")
    usual = Path(local) / "Finkit" / "ManicTime" if local else None
    registered = _registered()
    if data is not None:
        found, by = data, "ModuleConfig"
    elif said:
        found, by = Path(said), "EnvironmentVariable"
    elif registered:
        found, by = Path(registered), "Registry"
    elif usual is not None and usual.is_dir():
        found, by = usual, "LocalAppData"
    else:
        return Location(None, "Unresolved", screenshots)
    folder = found.parent if found.suffix == ".db" else found
    return Location(found, by, screenshots or folder / "Screenshots")


def _registered() -> str | None:
    """Return what ManicTime told Windows of its folder, or None."""
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415  # there is one on Windows alone

        try:
            with winreg.OpenKey(winreg.HKEY_CURRENT_USER, r"SOFTWARE\Finkit\ManicTime") as key:
                return str(winreg.QueryValueEx(key, "DataDirectory")[0])
        except OSError:
            pass  # ManicTime keeps its data at the usual place
    return None


@dataclass(frozen=True, slots=True)
class Schema:
    """What the file has of the tables we know: its views, and which are empty for want of a table or a column."""

    views: tuple[str, ...]
    # By view: why it is empty, as an issue of the health resource: the code and the table.
    missing: Mapping[str, tuple[str, str]]
    # The views whose buckets are hours; those of the others are days.
    hourly: frozenset[str]
    tags_by_activity: bool

    def has(self, view: str) -> bool:
        """Return whether the view is over a table that can be used."""
        return view not in self.missing

    @property
    def has_tags(self) -> bool:
        """Return whether there is a table of tags, in either form."""
        return self.tags_by_activity or self.has("v_list_items")


def _schema(columns: Mapping[str, Mapping[str, bool]]) -> Schema:
    """Choose the views by the columns of each table; raise NoData if a table is missing without which nothing works."""
    missing, hourly, made = dict[str, tuple[str, str]](), set[str](), list[str]()
    for view in queries.VIEWS:
        there = frozenset(columns.get(view.table, {}))
        made.append(queries.view_over(view, there))
        if any(not there & set(view.columns[alias]) for alias in view.needed):
            code = "SupplementalColumnMissing" if there else "SupplementalTableMissing"
            missing[view.name] = (code, view.table)
        elif "bucket" in view.columns and "Day" not in there:
            hourly.add(view.name)
    if lacking := [missing[view.name][1] for view in queries.CORE if view.name in missing]:
        raise NoData(
            f"The file is no report database of ManicTime that is known here: {', '.join(lacking)} cannot be used.",
            f"Wait until ManicTime has made it or name another. {HEALTH}",
            code="schema_incompatible",
        )
    # An activity's number is its own only where it is the whole key, or where a tag names the timeline too.
    keys = [name for name, is_key in columns["Ar_Activity"].items() if is_key]
    alone = keys == ["ActivityId"] or "ReportId" in columns.get("Ar_ActivityTag", {})
    by_activity = alone and not {"v_tags", "v_activity_tags"} & set(missing)
    return Schema(tuple(made), missing, frozenset(hourly), by_activity)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One connection, and what is known of its file."""

    connection: sqlite3.Connection
    schema: Schema

    def rows(self, sql: str, **given: object) -> Iterator[tuple[object, ...]]:
        """Return the rows of a query one after the other."""
        yield from self.connection.execute(sql, given)

    def timelines(self, *schemas: str) -> list[tuple[int, str, str]]:
        """Return the timelines of these schemas, or all: their number, schema and base schema."""
        wanted = {one.lower() for one in schemas}
        found = [(int(str(number)), str(name), str(base)) for number, name, base in self.rows(queries.TIMELINES)]
        return [one for one in found if not wanted or {one[1].lower(), one[2].lower()} & wanted]

    def reports(self, *schemas: str) -> str:
        """Return the numbers of the timelines of these schemas, as JSON for a query."""
        return json.dumps([number for number, _, _ in self.timelines(*schemas)])

    def activities(self, reports: str, asked: Range, limit: int = NO_LIMIT) -> list[Activity]:
        """Return the rows of these timelines that overlap a range, by their beginning."""
        given = {"reports": reports, "limit": limit, **asked.texts}
        return list(map(Activity._make, self.connection.execute(queries.ACTIVITIES, given)))


async def in_thread(work: Callable[[*Args], T], *args: *Args) -> T:
    """Return what the work makes of its arguments, in one of the timekeeper's threads; it waits for its turn."""
    return await asyncio.get_running_loop().run_in_executor(WORKERS, work, *args)


class Source:
    """The database of one butler's timekeeper."""

    def __init__(self, place: Location, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        # Why the last look failed, if it did.
        self.trouble: ButlersError | None = None
        self._clock = clock
        self._known: tuple[tuple[object, ...], Schema] | None = None

    async def read(self, work: Callable[[Snapshot], T]) -> T:
        """Return what the work makes of the database, in a worker thread; raise NoData if it cannot be read."""
        return await in_thread(self.read_here, work)

    def read_here(self, work: Callable[[Snapshot], T], seconds: float = LONGEST_SECONDS) -> T:
        """Do the same in the thread that calls."""
        try:
            made = self._patiently(work, seconds)
        except NoData as failed:
            self.trouble = failed
            raise
        self.trouble = None
        return made

    def _patiently(self, work: Callable[[Snapshot], T], seconds: float) -> T:
        deadline = self._clock() + seconds
        for wait in (*BUSY_WAITS, None):
            try:
                return self._once(work, deadline)
            except sqlite3.Error as failed:
                if getattr(failed, "sqlite_errorcode", 0) & 0xFF not in BUSY:
                    raise _told(failed) from None
            if wait is not None:
                time.sleep(wait)
        raise NoData("The database is busy, also after two more tries.", "Try again in a moment.", code="database_busy")

    def _once(self, work: Callable[[Snapshot], T], deadline: float) -> T:
        path = self.place.database
        try:
            found = path.stat()
        except OSError:
            raise NoData(
                "There is no ManicTime database where it is looked for.",
                f"Start ManicTime, or correct `data` in butler.toml. {HEALTH}",
                code="database_missing",
            ) from None
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.set_progress_handler(lambda: int(self._clock() > deadline), STEPS_BETWEEN_LOOKS)
            version = connection.execute(queries.SCHEMA_VERSION).fetchone()[0]
            schema = self._looked_over(connection, (path, found.st_dev, found.st_ino, version))
            connection.execute(queries.IN_MEMORY)
            for sql in schema.views:
                connection.execute(sql)
            # One view of the file for all that is read.
            connection.execute("BEGIN")
            try:
                return work(Snapshot(connection, schema))
            except sqlite3.OperationalError as failed:
                if hasattr(failed, "sqlite_errorcode"):  # SQLite's own, and not that a text cannot be decoded
                    raise
            connection.text_factory = TEXT
            return work(Snapshot(connection, schema))

    def _looked_over(self, connection: sqlite3.Connection, identity: tuple[object, ...]) -> Schema:
        """Return what the file has, looked at again once another file, or another schema, is in its place."""
        if self._known is None or self._known[0] != identity:
            columns = dict[str, dict[str, bool]]()
            for table, column, key in connection.execute(queries.COLUMNS):
                columns.setdefault(table, {})[column] = bool(key)
            self._known = (identity, _schema(columns))
        return self._known[1]


def _told(failed: sqlite3.Error) -> NoData:
    if getattr(failed, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_INTERRUPT:
        return NoData(
            f"The database did not answer within {LONGEST_SECONDS:.0f} seconds.",
            "Ask for fewer days.",
            code="database_error",
        )
    return NoData(f"Database error: {failed}.", HEALTH, code="database_error")


def no_timeline(number: int) -> InvalidInput:
    """Return the refusal of a timeline that is not there."""
    return InvalidInput(f"There is no timeline {number}.", "Use one that get_timelines lists.", code="unknown_timeline")


def capability_views() -> Iterator[View]:
    """Yield each view that makes a capability of its own."""
    yield from (view for view in queries.SUPPLEMENTAL if view.capability is not None)
