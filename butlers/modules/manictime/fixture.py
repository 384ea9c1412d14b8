"""A made-up record in every form of ManicTime's, so that anybody can try the timekeeper, and tests know what is true.

`python -m butlers.modules.manictime.fixture DIR --days 30 --profile real`. The same days make the same record.
"""

import argparse
import random
import shutil
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from butlers.modules.manictime.forms import (
    APPS,
    BROWSER,
    CREATE,
    CREATE_ALONE,
    DOCS,
    EDITOR,
    FORMS,
    GROUPS,
    INDEXES,
    INSERT,
    OTHER_APPS,
    SCHEMAS,
    TAGS,
    TITLES,
    URLS,
    USAGE,
    WEB,
    Group,
)
from butlers.modules.manictime.source import DATABASE

ZONE: Final = ZoneInfo("Europe/Vienna")
PROFILES: Final = {"real": "A", "mcp": "B", "core": "C", "drift": "D", "empty": "E"}
FIRST: Final = date(2025, 1, 13)


@dataclass(frozen=True, slots=True)
class Event:
    """One activity: its timeline, its group and its times, in UTC."""

    report: int
    group: int | None
    start: datetime
    end: datetime
    title: str | None = None
    list_id: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Record:
    """What is to be written, and in which form."""

    form: str
    events: list[Event] = field(default_factory=list)

    def add(self, report: int, group: int | None, start: datetime, seconds: float, **more: object) -> datetime:
        """Add an activity of so many seconds; return its end."""
        end = start + timedelta(seconds=seconds)
        title = TITLES.get((report, group or 0)) or next((g.name for g in GROUPS[report] if g.number == group), None)
        given = {"title": title, **more}
        self.events.append(Event(report, group, start, end, **given))  # type: ignore[arg-type]  # of one dict
        return end


def local(day: date, hour: int, minute: int = 0, second: int = 0) -> datetime:
    """Return a moment of the local clock, in UTC; of a time that comes twice, the first."""
    return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=ZONE).astimezone(UTC)


def working_day(record: Record, day: date, draw: random.Random) -> None:
    """Add a day of work: two stretches with a lunch between, and what was open in each of them."""
    for begin, hours in ((local(day, 8, draw.randrange(30)), 4), (local(day, 13, draw.randrange(30)), 4)):
        end = begin + timedelta(hours=hours, minutes=draw.randrange(20))
        record.add(USAGE, 1, begin, (end - begin).total_seconds())
        record.add(USAGE, draw.choice((2, 3)), end, 1800)
        at = begin
        while at < end:
            group, seconds = draw.choice((1, 1, 2, 2, 3, 4)), draw.choice((15, 45, 300, 900, 1500, 2400))
            at = _used(record, group, at, min(seconds, (end - at).total_seconds()), draw)
            at += timedelta(seconds=draw.choice((0, 0, 0, 1, 90)))
        tag = draw.choice((1, 2))
        record.add(TAGS, None, begin, 3600, title="Client, Project", **_tags(record.form, tag))


def _tags(form: str, tag: int) -> dict[str, object]:
    return {"list_id": tag} if form == "A" else {"tags": ("Client",)} if form == "B" else {}


def _used(record: Record, group: int, at: datetime, seconds: float, draw: random.Random) -> datetime:
    """Add one use of an application, with the document or website in it."""
    if group == EDITOR:
        record.add(DOCS, draw.choice((1, 2)), at, seconds)
    if group == BROWSER:
        for_urls = record.form == "B"
        record.add(URLS if for_urls else DOCS, draw.choice((1, 2) if for_urls else (3, 4)), at, seconds)
    tagged = ("coding",) if record.form == "B" and group == 1 else ()
    return record.add(APPS, group, at, seconds, tags=tagged)


def record_of(form: str, days: int, first: date = FIRST) -> Record:
    """Return the record of so many days; weekends are free."""
    made, draw = Record(form), random.Random(7)  # noqa: S311  # the same days every time
    for number in range(days):
        day = first + timedelta(days=number)
        if day.weekday() < 5:  # noqa: PLR2004  # Monday to Friday
            working_day(made, day, draw)
    return made


def write(folder: Path, record: Record, *, empty: bool = False, without: Iterable[str] = ()) -> Path:
    """Write the record as ManicTime's database into the folder, without some of its tables; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / DATABASE
    path.unlink(missing_ok=True)
    tables, skipped = FORMS[record.form], set(without)
    with closing(sqlite3.connect(path)) as connection:
        for table in tables:
            if table not in skipped:
                alone = record.form == "B" and table == "Ar_Activity"
                connection.execute(CREATE_ALONE if alone else CREATE[record.form, table])
        if not skipped & {"Ar_Group", "Ar_Activity"}:
            for sql in INDEXES:
                connection.execute(sql)
        for table, rows in ({} if empty else _rows(record)).items():
            if table in tables and table not in skipped:
                connection.executemany(INSERT[record.form, table], rows)
        connection.commit()
    return path


def _rows(record: Record) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of every table."""
    used = sorted({event.report for event in record.events} | {TAGS, USAGE, APPS, DOCS})
    sign = "#" if record.form == "B" else ""
    groups = {(report, g.number): g for report in used for g in GROUPS[report]}
    numbers: defaultdict[int, int] = defaultdict(int)
    rows: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    rows["Ar_Timeline"] = [(one, SCHEMAS[one], _base(one)) for one in used]
    rows["Ar_Group"] = [
        (report, g.number, g.name, sign + g.color, g.key, g.type, g.common) for (report, _), g in groups.items()
    ]
    commons = {g.common: (g.common, g.name, sign + g.color, g.key) for g in groups.values() if g.common}
    rows["Ar_CommonGroup"] = list(commons.values())
    tags = sorted({tag for event in record.events for tag in event.tags})
    rows["Ar_Tag"] = list(enumerate(tags, start=1))
    for event in record.events:
        key = 0 if record.form == "B" else event.report
        numbers[key] += 1
        group = groups.get((event.report, event.group or 0))
        times = [text for at in (event.start, event.end) for text in (_text(at.astimezone(ZONE)), _text(at))]
        head = (event.report, numbers[key], event.group, event.list_id, group.common if group else None, event.title)
        rows["Ar_Activity"].append((*head, *times))
        rows["Ar_ActivityTag"] += [(numbers[key], tags.index(tag) + 1) for tag in event.tags]
    rows["Ar_GroupListItem"] = [(TAGS, 1, 1), (TAGS, 2, 1), (TAGS, 2, 2)]
    rows["Ar_Environment"] = [(1, "WORKSTATION-01", "Windows 11", "2025.3.5.0", ".NET 8.0.1")]
    rows["Ar_TimelineSummary"] = [(one, *_bounds(record, one), *_bounds(record, one)) for one in used]
    return {**rows, **_sums(record, groups)}


def _base(report: int) -> str:
    return "ManicTime/GenericGroup" if report in {DOCS, URLS, OTHER_APPS} else SCHEMAS[report]


def _bounds(record: Record, report: int) -> tuple[str | None, str | None]:
    some = [event for event in record.events if event.report == report]
    if not some:
        return None, None
    first, last = min(event.start for event in some), max(event.end for event in some)
    return _text(first.astimezone(ZONE)), _text(last.astimezone(ZONE))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _sums(record: Record, groups: Mapping[tuple[int, int], Group]) -> dict[str, list[tuple[object, ...]]]:
    """Return what ManicTime sums up, counted hour by hour on the UTC clock."""
    sums: defaultdict[tuple[str, int, str], int] = defaultdict(int)
    for event in record.events:
        group = groups.get((event.report, event.group or 0))
        if group is None or group.common is None or event.report in {USAGE, TAGS}:
            continue
        is_site = group.type == WEB or event.report == URLS
        kind = "Application" if event.report in {APPS, OTHER_APPS} else "WebSite" if is_site else "Document"
        for hour, seconds in _hours(event):
            text = _text(hour) if record.form == "A" else _text(hour)[:10]
            sums[f"Ar_{kind}ByDay", group.common, text] += seconds
            sums[f"Ar_{kind}ByYear", group.common, text[:10]] += seconds
    rows: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for (table, common, text), seconds in sorted(sums.items()):
        rows[table].append((common, text, seconds))
    return rows


def _hours(event: Event) -> Iterator[tuple[datetime, int]]:
    """Yield each local hour of an activity; in this zone hours begin where those of UTC do."""
    at = event.start
    while at < event.end:
        stop = min(event.end, at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1))
        yield at.astimezone(ZONE).replace(minute=0, second=0), int((stop - at).total_seconds())
        at = stop


def draw_screenshots(folder: Path, moments: Iterable[datetime], *, signed: bool = False) -> None:
    """Draw a picture of four colors, and its thumbnail, for each of these moments."""
    from PIL import Image  # noqa: PLC0415  # whoever wants no pictures needs no Pillow

    colors = ((200, 40, 40), (40, 160, 40), (40, 40, 200), (220, 200, 40))
    for number, at in enumerate(moments, start=1):
        clock = at.astimezone(ZONE)
        picture = Image.new("RGB", (640, 360))
        for quarter, color in enumerate(colors):
            picture.paste(
                color,
                (320 * (quarter % 2), 180 * (quarter // 2), 320 * (quarter % 2) + 320, 180 * (quarter // 2) + 180),
            )
        offset = clock.strftime("%z")
        sign = offset[0] if signed or offset[0] == "-" else ""
        day = folder / clock.strftime("%Y-%m-%d")
        day.mkdir(parents=True, exist_ok=True)
        stem = f"{clock:%Y-%m-%d_%H-%M-%S}_{sign}{offset[1:3]}-{offset[3:5]}_640_360_{number}_0"
        picture.save(day / f"{stem}.jpg", quality=90)
        picture.resize((320, 180)).save(day / f"{stem}.thumbnail.jpg", quality=80)


def make(folder: Path, profile: str, days: int, first: date = FIRST) -> Path:
    """Write a record of this profile, with screenshots of its last three days; return the database's path."""
    form = PROFILES.get(profile, profile)
    record = record_of(form if form in FORMS else "A", days, first)
    shots = folder / "Screenshots"
    shutil.rmtree(shots, ignore_errors=True)
    without = ("Ar_CommonGroup", "Ar_ApplicationByDay") if form == "D" else ()
    path = write(folder, record, empty=form == "E", without=without)
    uses = [event.start for event in record.events if event.report == APPS]
    if form in {"A", "B"} and uses:
        since = max(uses) - timedelta(days=3)
        draw_screenshots(shots, [at + timedelta(seconds=20) for at in uses if at > since], signed=form == "B")
    return path


def main(argv: Sequence[str]) -> int:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(prog="fixture", description="Make up a record of ManicTime.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--profile", choices=[*PROFILES, *PROFILES.values()], default="real")
    parser.add_argument("--first", type=date.fromisoformat, default=FIRST)
    given = parser.parse_args(argv)
    sys.stdout.write(f"{make(given.folder, given.profile, given.days, given.first)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
