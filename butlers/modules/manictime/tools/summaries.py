"""The tools that sum up: use, narrative, a day, several days, websites."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Final

from butlers.modules.manictime import narrative, queries, usage
from butlers.modules.manictime.answers import (
    BLOCKS,
    FALLBACK,
    NUMBER,
    TEXT,
    WHOLE,
    Param,
    Told,
    diagnostics,
    truncation,
)
from butlers.modules.manictime.days import (
    DAY,
    HOUR,
    MOST_DAYS,
    Range,
    clock_text,
    day_of,
    minutes,
    seconds_of,
    spans,
)
from butlers.modules.manictime.queries import Activity
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.timelines import (
    END,
    RANGE,
    START,
    Answering,
    Ask,
    as_given,
    limit_of,
    tag_rows,
    tags_by_row,
)

MOST_ROWS: Final = 5000
MOST_BESIDE: Final = 20_000
MOST_TOP: Final = 50
LEAST_SITE_SECONDS: Final = 30
# Up to so many days websites are told by the hour.
HOURLY_DAYS: Final = 7
# A time behind all others; no number, since a column of dates would take it for one.
ENDLESS: Final = "9999-12-31 24:00:00"


def _usage(kind: str) -> Callable[[Ask], dict[str, object]]:
    def answer(ask: Ask) -> dict[str, object]:
        asked, limit = ask.range(), ask.given.count("limit")
        found, fallback = ask.used(kind, asked, DAY)
        found.sort(key=lambda one: (one.bucket, -one.seconds, one.name))
        listed = [
            {
                "day": one.bucket,
                "name": one.name,
                "color": usage.color_of(one.color),
                "key": one.key,
                "totalMinutes": minutes(one.seconds),
            }
            for one in found[:limit]
        ]
        return {
            **as_given(ask.given),
            "count": len(listed),
            "usage": listed,
            "truncation": truncation(len(listed), len(found)),
            "diagnostics": diagnostics(_reason(ask, kind, fallback=fallback)),
        }

    return answer


def _reason(ask: Ask, kind: str, *, fallback: bool) -> str | None:
    if not any(ask.snapshot.timelines(*schemas) for schemas, _ in usage.KINDS[kind].raw):
        return "NoTimeline"
    return FALLBACK if fallback else None


def get_activity_narrative(ask: Ask) -> dict[str, object]:
    """Tell what was done, as segments."""
    asked = ask.range(MOST_DAYS)
    return as_given(ask.given) | _narrated(ask, asked, summary=ask.given.flag("includeSummary"), segments=True)


def get_daily_summary(ask: Ask) -> dict[str, object]:
    """Tell one day, with what was used most."""
    asked = day_of(ask.given.get("date"))
    made = _narrated(ask, asked, summary=True, segments=ask.given.flag("includeSegments"))
    if ask.given.flag("includeHourlyWebBreakdown"):
        found, _ = ask.used("websites", asked, HOUR)
        made["hourlyWebBreakdown"] = _broken_down(usage.sites(found), HOUR, LEAST_SITE_SECONDS) or None
    return {"startDate": clock_text(asked.start)[:10], "endDate": clock_text(asked.end)[:10], **made}


def _narrated(ask: Ask, asked: Range, *, summary: bool, segments: bool) -> dict[str, object]:
    given, snapshot, zone = ask.given, ask.snapshot, ask.zone
    reports = snapshot.reports(usage.APPLICATIONS)
    rows = snapshot.activities(reports, asked, limit=MOST_ROWS + 1)
    in_use = snapshot.activities(snapshot.reports(usage.COMPUTER_USAGE), asked)
    active = narrative.active_times(in_use, zone)
    parts = narrative.segments(rows[:MOST_ROWS], asked, active, zone)
    total = _total(ask, reports, asked, active) if len(rows) > MOST_ROWS else narrative.seconds_of_all(parts)
    with_sites = given.flag("includeWebsites") if "includeWebsites" in given.names else True
    found: list[narrative.Segment] = []
    if segments:
        beside = _beside(ask, asked, reports, rows)
        described = narrative.described(parts, beside, zone, with_websites=with_sites)
        found = narrative.merged(described, given.number("maxGapMinutes"))
        found = [one for one in found if one.seconds >= given.number("minDurationMinutes") * 60]
    shown = found[: given.count("maxSegments")]
    tops, fallback = _tops(ask, asked, with_sites=with_sites) if summary else ({"topApplications": []}, False)
    cut = segments and len(rows) > MOST_ROWS
    return {
        "totalActiveMinutes": minutes(total),
        "segments": [narrative.as_answer(one) for one in shown],
        **tops,
        "suggestedScreenshots": narrative.suggested(shown, ask.pictures.moment_of),
        "truncation": truncation(len(shown), None if cut else len(found), truncated=cut),
        "diagnostics": diagnostics(_reason(ask, "applications", fallback=fallback)),
    }


def _total(ask: Ask, reports: str, asked: Range, active: Sequence[tuple[int, int]] | None) -> int:
    """Return the seconds of activity in all rows there are, of which only some were read."""
    every = ask.snapshot.connection.execute(queries.TIMES, {"reports": reports, **asked.texts})
    times = (row for row in every if row[0] is not None and row[1] is not None)
    found = (one for row in times for one in spans(row[0], row[1], row[2], row[3], ask.zone))
    return narrative.total_seconds(narrative.clipped(found, asked, active))


def _tops(ask: Ask, asked: Range, *, with_sites: bool) -> tuple[dict[str, object], bool]:
    applications, fallback = ask.used("applications", asked, DAY)
    made: dict[str, object] = {"topApplications": usage.top(applications, MOST_TOP)}
    if with_sites:
        found, fallback_too = ask.used("websites", asked, DAY)
        made["topWebsites"] = usage.top(usage.sites(found), MOST_TOP, LEAST_SITE_SECONDS)
        fallback = fallback or fallback_too
    return made, fallback


def _beside(ask: Ask, asked: Range, reports: str, rows: Sequence[Activity]) -> narrative.Beside:
    """Return the rows of the other timelines, and the screenshots, of the time that these rows are of."""
    snapshot = ask.snapshot
    documents = snapshot.activities(snapshot.reports(usage.DOCUMENTS), asked, limit=MOST_BESIDE)
    urls = snapshot.activities(snapshot.reports(*usage.BROWSER_URLS), asked, limit=MOST_BESIDE)
    return narrative.Beside(
        [row for row in documents if row.group_type not in {narrative.WEB, narrative.CHAT}],
        [row for row in documents if row.group_type == narrative.WEB] + urls,
        tag_rows(snapshot, asked, MOST_BESIDE),
        tags_by_row(snapshot, reports, asked, rows),
        ask.pictures.moments(asked),
    )


def _broken_down(found: Sequence[usage.Used], size: int, least_seconds: float) -> list[dict[str, object]]:
    """Return each website with its hours or days, the longest first."""
    periods: defaultdict[str, list[usage.Used]] = defaultdict(list)
    for one in found:
        periods[one.name].append(one)
    total = {name: sum(one.seconds for one in some) for name, some in periods.items()}
    return [
        {
            "name": name,
            "totalMinutes": minutes(total[name]),
            "timeBreakdown": [
                {"period": _period(one.bucket, size), "minutes": minutes(one.seconds)} for one in sorted(periods[name])
            ],
        }
        for name in sorted(total, key=lambda name: (-total[name], name))
        if total[name] >= least_seconds
    ]


def _period(bucket: str, size: int) -> str:
    return bucket if size == DAY else f"{bucket[:10]}T{bucket[11:13]}:00"


def get_website_usage(ask: Ask) -> dict[str, object]:
    """Tell how long each website was looked at, by hour for a week, by day for more."""
    asked, limit = ask.range(MOST_DAYS), ask.given.count("limit")
    size = HOUR if asked.end - asked.start <= HOURLY_DAYS * DAY else DAY
    found, fallback = ask.used("websites", asked, size)
    listed = _broken_down(usage.sites(found), size, ask.given.number("minMinutes") * 60)
    return {
        "breakdownGranularity": "hour" if size == HOUR else "day",
        "websites": listed[:limit],
        "truncation": truncation(min(limit, len(listed)), len(listed)),
        "diagnostics": diagnostics(_reason(ask, "websites", fallback=fallback)),
    }


def get_period_summary(ask: Ask) -> dict[str, object]:
    """Tell several days: each of them, what was used most, and on which days of the week."""
    asked = ask.range(MOST_DAYS)
    applications, fallback = ask.used("applications", asked, DAY)
    websites, fallback_too = ask.used("websites", asked, DAY)
    by_day: defaultdict[str, list[usage.Used]] = defaultdict(list)
    for one in applications:
        by_day[one.bucket].append(one)
    edges = _edges(ask, asked)
    totals = {day: sum(one.seconds for one in some) for day, some in sorted(by_day.items())}
    days = [
        {
            "date": day,
            "totalActiveMinutes": minutes(seconds),
            "topApp": max(by_day[day], key=lambda one: (one.seconds, one.name)).name,
            **edges.get(day, {}),
        }
        for day, seconds in totals.items()
    ]
    aggregate = {
        "topApps": usage.top(applications, MOST_TOP),
        "topWebsites": usage.top(usage.sites(websites), MOST_TOP, LEAST_SITE_SECONDS) or None,
        "avgDailyMinutes": minutes(sum(totals.values()) / len(totals)) if totals else 0.0,
        "busiestDay": max(totals, key=lambda day: totals[day], default=None),
        "quietestDay": min(totals, key=lambda day: totals[day], default=None),
    }
    return {
        "days": days,
        "aggregate": aggregate,
        "patterns": {"dayOfWeekDistribution": _week(usage.weekdays(ask.snapshot, asked) or applications)},
        "truncation": truncation(len(days), len(days)),
        "diagnostics": diagnostics(_reason(ask, "applications", fallback=fallback or fallback_too)),
    }


def _week(found: Sequence[usage.Used]) -> list[dict[str, object]]:
    """Return the minutes of each day of the week, Sunday being 0."""
    sums: defaultdict[int, int] = defaultdict(int)
    for one in found:
        sums[date.fromisoformat(one.bucket).isoweekday() % 7] += one.seconds
    return [{"dayOfWeek": day, "totalMinutes": minutes(seconds)} for day, seconds in sorted(sums.items())]


def _edges(ask: Ask, asked: Range) -> dict[str, dict[str, object]]:
    """Return by which application each day began and ended, and when."""
    first, last = dict[str, tuple[str, str]](), dict[str, tuple[str, str]]()

    def widen(day: str, begun: tuple[str, str], ended: tuple[str, str]) -> None:
        first[day], last[day] = min(first.get(day, begun), begun), max(last.get(day, ended), ended)

    for number, _, _ in ask.snapshot.timelines(usage.APPLICATIONS):
        lasting = list(ask.snapshot.rows(queries.LASTING, report=number, start="", end=clock_text(asked.start)))
        for midnight in range(asked.start - asked.start % DAY, asked.end, DAY):
            part = Range(max(asked.start, midnight), min(asked.end, midnight + DAY))
            lasting += _edges_of(ask.snapshot, number, part, widen)
        for start, end, name in lasting:
            begun, ended = (max(asked.start, _seconds(start)), min(asked.end, _seconds(end)))
            for midnight in range(begun - begun % DAY, ended, DAY):
                bounds = max(begun, midnight), min(ended, midnight + DAY)
                widen(clock_text(midnight)[:10], *((clock_text(at), str(name)) for at in bounds))
    return {
        day: {
            "firstActivity": first[day][1],
            "lastActivity": last[day][1],
            "firstActivityTime": first[day][0].replace(" ", "T"),
            "lastActivityTime": last[day][0].replace(" ", "T"),
        }
        for day in first.keys() & last.keys()
    }


def _edges_of(
    snapshot: Snapshot, number: int, part: Range, widen: Callable[[str, tuple[str, str], tuple[str, str]], None]
) -> list[tuple[object, ...]]:
    """Widen a day by what begins in it; return the rows that begin in it and last beyond it."""
    end = part.texts["end"]

    def found(sql: str, **more: object) -> list[tuple[str, str]]:
        return [(str(at), str(name)) for at, name in snapshot.rows(sql, report=number, **part.texts, **more)]

    begun, ended = found(queries.EARLIEST), found(queries.LATEST, until=ENDLESS)
    lasting = list[tuple[object, ...]]()
    if ended and ended[0][0] > end:
        lasting = list(snapshot.rows(queries.LASTING, report=number, **part.texts))
        ended = found(queries.LATEST, until=end)
    if begun and ended:
        widen(clock_text(part.start)[:10], begun[0], ended[0])
    return lasting


def _seconds(text: object) -> int:
    return seconds_of(datetime.fromisoformat(str(text)[:19]))


_SEGMENTS: Final = (
    Param("minDurationMinutes", "number", "Leave out segments that are shorter.", default=0),
    Param("maxGapMinutes", "number", "Join segments of one application over gaps up to this.", default=2.0),
    Param("maxSegments", "integer", "How many segments to list.", default=200, most=2000),
)
_TOP: Final = {"name": TEXT, "totalMinutes": NUMBER}
_PERIODS: Final = [{"name": TEXT, "totalMinutes": NUMBER, "timeBreakdown": [{"period": TEXT, "minutes": NUMBER}]}]
_NARRATIVE: Final = {
    "startDate": TEXT,
    "endDate": TEXT,
    "totalActiveMinutes": NUMBER,
    "segments": [
        {
            "start": TEXT,
            "end": TEXT,
            "durationMinutes": NUMBER,
            "application?": TEXT,
            "document?": TEXT,
            "website?": TEXT,
            "tags?": [TEXT],
            "screenshotRef?": TEXT,
        }
    ],
    "topApplications": [{**_TOP, "color?": TEXT}],
    "topWebsites?": [_TOP],
    "suggestedScreenshots?": [{"screenshotRef": TEXT, "timestamp": TEXT, "application": TEXT, "hint": TEXT}],
    **BLOCKS,
}
_USAGE: Final = {
    **RANGE,
    "usage": [{"day": TEXT, "name": TEXT, "color?": TEXT, "key?": TEXT, "totalMinutes": NUMBER}],
    **BLOCKS,
}
SUMMARIES: Final[Sequence[Answering]] = (
    (
        Told(
            "get_application_usage",
            "Tell how long each application was used, day by day.",
            (START, END, limit_of(1000, 2000)),
            _USAGE,
        ),
        _usage("applications"),
    ),
    (
        Told(
            "get_document_usage",
            "Tell how long each file was worked on, day by day.",
            (START, END, limit_of(1000, 2000)),
            _USAGE,
        ),
        _usage("documents"),
    ),
    (
        Told(
            "get_daily_summary",
            "Tell one day: segments, what was used most, and screenshots worth a look.",
            (
                Param("date", "string", "The date (ISO-8601).", required=True),
                Param("includeSegments", "boolean", "List the segments.", default=True),
                Param("includeHourlyWebBreakdown", "boolean", "Add websites by the hour.", default=False),
                *_SEGMENTS,
            ),
            {**_NARRATIVE, "hourlyWebBreakdown?": _PERIODS},
        ),
        get_daily_summary,
    ),
    (
        Told(
            "get_activity_narrative",
            "Tell what was done, in one call: times with application, document, website, tags and screenshot.",
            (
                START,
                END,
                Param("includeWebsites", "boolean", "Say which websites.", default=True),
                Param("includeSummary", "boolean", "Add what was used most.", default=False),
                *_SEGMENTS,
            ),
            _NARRATIVE,
        ),
        get_activity_narrative,
    ),
    (
        Told(
            "get_period_summary",
            "Tell several days, 31 at most: each day, what was used most, the days of the week.",
            (START, END),
            {
                "days": [
                    {
                        "date": TEXT,
                        "totalActiveMinutes": NUMBER,
                        "topApp": TEXT,
                        "firstActivity?": TEXT,
                        "lastActivity?": TEXT,
                        "firstActivityTime?": TEXT,
                        "lastActivityTime?": TEXT,
                    }
                ],
                "aggregate": {
                    "topApps": [{**_TOP, "color?": TEXT}],
                    "topWebsites?": [_TOP],
                    "avgDailyMinutes": NUMBER,
                    "busiestDay?": TEXT,
                    "quietestDay?": TEXT,
                },
                "patterns": {"dayOfWeekDistribution": [{"dayOfWeek": WHOLE, "totalMinutes": NUMBER}]},
                **BLOCKS,
            },
        ),
        get_period_summary,
    ),
    (
        Told(
            "get_website_usage",
            "Tell how long each website was looked at: by the hour for 7 days or less, else by the day, 31 at most.",
            (
                START,
                END,
                limit_of(50, 200),
                Param("minMinutes", "number", "Leave out websites that were looked at for less.", default=0.5),
            ),
            {"breakdownGranularity": TEXT, "websites": _PERIODS, **BLOCKS},
        ),
        get_website_usage,
    ),
)
