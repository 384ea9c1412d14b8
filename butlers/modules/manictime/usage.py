"""How long what was used, by hour or by day: from ManicTime's own sums, or the same from single rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from butlers.modules.manictime import queries
from butlers.modules.manictime.days import DAY, HOUR, Range, clip, clock_text, spans, split
from butlers.modules.manictime.source import Snapshot

APPLICATIONS: Final = "ManicTime/Applications"
COMPUTER_USAGE: Final = "ManicTime/ComputerUsage"
DOCUMENTS: Final = "ManicTime/Documents"
TAGS: Final = "ManicTime/Tags"
BROWSER_URLS: Final = ("ManicTime/BrowserUrls", "ManicTime/WebSites")
WIDTHS: Final = {HOUR: 13, DAY: 10}


class Used(NamedTuple):
    """How many seconds something was used within one hour or day, which its local time begins with."""

    bucket: str
    name: str
    color: str | None
    key: str | None
    seconds: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of use: the view of its sums, and the timelines and types of groups of its rows."""

    view: str
    # By schemas: the types of groups that count, as JSON, or None for all.
    raw: Sequence[tuple[Sequence[str], str | None]]


KINDS: Final = {
    "applications": Kind("v_applications", [((APPLICATIONS,), None)]),
    "documents": Kind("v_documents", [((DOCUMENTS,), '["ManicTime/Files"]')]),
    "websites": Kind("v_websites", [((DOCUMENTS,), '["ManicTime/WebSites"]'), (BROWSER_URLS, None)]),
}


def used(snapshot: Snapshot, kind: str, asked: Range, size: int, zone: ZoneInfo | None) -> tuple[list[Used], bool]:
    """Return what was used by hour or by day, by name; and whether it had to be computed from single rows.

    A range that begins or ends within an hour is computed from rows too, since the sums cannot be divided.
    """
    view = KINDS[kind].view
    fits = asked.of_days or (asked.of_hours and view in snapshot.schema.hourly)
    if snapshot.schema.has(view) and snapshot.schema.has("v_commons"):
        if fits and (size == DAY or view in snapshot.schema.hourly):
            return _aggregated(snapshot, view, asked, size), False
        return from_rows(snapshot, kind, asked, size, zone), view not in snapshot.schema.hourly
    return from_rows(snapshot, kind, asked, size, zone), True


def _aggregated(snapshot: Snapshot, view: str, asked: Range, size: int) -> list[Used]:
    # A bucket that is a day has a date alone, which lies before that day's midnight as text.
    texts = asked.texts if view in snapshot.schema.hourly else {key: one[:10] for key, one in asked.texts.items()}
    return _used(snapshot.rows(queries.AGGREGATED[view], width=WIDTHS[size], **texts))


def weekdays(snapshot: Snapshot, asked: Range) -> list[Used] | None:
    """Return the sums of whole days that ManicTime keeps for its weekdays; None where they do not fit."""
    view = "v_application_days"
    if not (asked.of_days and snapshot.schema.has(view) and snapshot.schema.has("v_commons")):
        return None
    return _used(
        snapshot.rows(
            queries.AGGREGATED[view],
            width=10,
            **asked.texts | {"start": asked.texts["start"][:10], "end": asked.texts["end"][:10]},
        )
    )


def from_rows(snapshot: Snapshot, kind: str, asked: Range, size: int, zone: ZoneInfo | None) -> list[Used]:
    """Return the same sums from single rows: those within an hour are summed by SQLite, the others split here."""
    sums: defaultdict[tuple[str, str], int] = defaultdict(int)
    looks = dict[str, tuple[str | None, str | None]]()
    for schemas, types in KINDS[kind].raw:
        given = {"reports": snapshot.reports(*schemas), "types": types, **asked.texts}
        for one in _used(snapshot.rows(queries.WITHIN_HOURS, width=WIDTHS[size], **given)):
            sums[one.bucket, one.name] += one.seconds
            looks[one.name] = _look(looks.get(one.name), one.color, one.key)
        for name, color, key, *times in snapshot.rows(queries.ACROSS_HOURS, **given):
            looks[str(name)] = _look(looks.get(str(name)), color, key)
            for bucket, seconds in _divided(times, asked, size, zone):
                sums[clock_text(bucket)[: WIDTHS[size]], str(name)] += seconds
    return [Used(bucket, name, *looks[name], seconds) for (bucket, name), seconds in sorted(sums.items())]


def _divided(times: Sequence[object], asked: Range, size: int, zone: ZoneInfo | None) -> Iterable[tuple[int, int]]:
    started, ended, started_utc, ended_utc = (None if one is None else int(str(one)) for one in times)
    for span in spans(started or 0, ended or 0, started_utc, ended_utc, zone):
        if part := clip(span, asked):
            yield from split(part, size)


def _look(known: tuple[str | None, str | None] | None, color: object, key: object) -> tuple[str | None, str | None]:
    """Return color and key of a name: of several the greatest, as SQLite's sums choose it."""
    first = known or (None, None)
    pairs = zip(first, (color, key), strict=True)
    color, key = (max((str(one) for one in pair if one is not None), default=None) for pair in pairs)
    return color, key


def _used(rows: Iterable[Sequence[object]]) -> list[Used]:
    return [
        Used(str(bucket), str(name), _or_none(color), _or_none(key), int(seconds))
        for bucket, name, color, key, seconds in rows
        if isinstance(seconds, int | float) and seconds > 0
    ]


def _or_none(value: object) -> str | None:
    return None if value is None else str(value)


def color_of(color: str | None) -> str | None:
    """Return a color as `#RRGGBB`, however ManicTime wrote it."""
    return "#" + color.removeprefix("#").upper() if color else None


def top(found: Iterable[Used], most: int, least_seconds: float = 0) -> list[dict[str, object]]:
    """Return what was used longest in all, with color where there is one."""
    sums: defaultdict[str, int] = defaultdict(int)
    colors = dict[str, str | None]()
    for one in found:
        sums[one.name] += one.seconds
        colors[one.name] = colors.get(one.name) or one.color
    ordered = sorted((-seconds, name) for name, seconds in sums.items() if seconds >= least_seconds)
    return [
        {"name": name, "color": color_of(colors[name]), "totalMinutes": round(-seconds / 60, 1)}
        for seconds, name in ordered[:most]
    ]


def sites(found: Iterable[Used]) -> list[Used]:
    """Return the websites among them: a name of one letter is none. They have no color."""
    return [one._replace(color=None) for one in found if len(one.name) > 1]
