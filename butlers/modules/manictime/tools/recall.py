"""The tool that tells in words, for a message: a day as a bar and sums, or what was done at a moment.

A butler alone has it: it knows what today is, and keeps the bar of the last day it told for the butler's page. The
words that say which time is meant are read without a model, so that a script can answer its owner.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeAlias

from butlers.butler import Result, Tool, ToolCall
from butlers.modules.manictime import narrative, queries, usage
from butlers.modules.manictime.answers import TEXT, Given, Param, Told
from butlers.modules.manictime.days import (
    DAY,
    Range,
    Span,
    day_of,
    iso_text,
    local_of,
    spans,
    split,
    united,
)
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.screenshots import Desk
from butlers.modules.manictime.tools.summaries import SUMMARIES, get_activity_narrative, get_daily_summary
from butlers.modules.manictime.tools.timelines import Ask
from shared.display.day_bar import HALF_HOUR, HALF_HOURS, DayBar, long_date, spent
from shared.display.visible import shortened
from shared.errors import InvalidInput

HOURS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
NAMED: Final = {"noon": 12 * 60, "midnight": 0}
BESIDE: Final = {"half past": 30, "quarter past": 15, "quarter to": -15}
WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# Where a time is told, by a word before it, by its minutes, or by its half of the day; not any number.
TIME: Final = re.compile(
    rf"(?<![\d:-])(?:(?P<led>\b(?:at|around|about)\s+)?(?P<beside>\b(?:{'|'.join(BESIDE)})\s+)?"
    rf"(?:\b|(?<=\dT))(?P<hour>\d{{1,2}}|{'|'.join(HOURS)})(?:[:.](?P<minute>[0-5]\d)(?P<second>:[0-5]\d)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\b|(?![\w:-]|\s+(?:hour|min|day)))"
    rf"|\b(?P<named>{'|'.join(NAMED)})\b)",
    re.ASCII | re.IGNORECASE,
)
DATE: Final = re.compile(rf"\b(\d{{4}}-\d\d-\d\d|yesterday|today|{'|'.join(WEEKDAYS)})", re.ASCII | re.IGNORECASE)
NOON: Final = 12
LAST_HOUR: Final = 23
# A moment within a pause is told by what was done so shortly before or after it.
NEAR: Final = 15 * 60
AROUND: Final = 3 * 3600
LONGEST_NAME: Final = 60
LONGEST_QUESTION: Final = 20_000
MOST_NAMED: Final = 3
# What the house's own answers hold.
Answer: TypeAlias = Mapping[str, Any]
Keep: TypeAlias = Callable[[DayBar], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Meant:
    """Which time is asked about: a whole day, or a minute of it; of several the first in which anything was done."""

    day: date
    minutes: tuple[int, ...] = ()


def meant(question: str, now: datetime) -> Meant:
    """Return which time the words ask about.

    A time that has not come yet today is that of yesterday, and on a day told by its name that of a week before.
    """
    *_, day = [None, *(found[1].lower() for found in DATE.finditer(question))]
    times: list[tuple[int, ...]] = [found for one in TIME.finditer(question) if (found := _minutes(one))]
    on = _day(day, now.date())
    if not times:
        return Meant(on)
    minutes = times[-1]
    if on == now.date():
        past = tuple(one for one in minutes if one <= now.hour * 60 + now.minute)
        if not past and day in (None, *WEEKDAYS):
            return Meant(on - timedelta(days=1 if day is None else 7), minutes)
        minutes = past or minutes
    return Meant(on, minutes)


def _day(word: str | None, today: date) -> date:
    if word is None or word == "today":
        return today
    if word == "yesterday":
        return today - timedelta(days=1)
    if word in WEEKDAYS:
        return today - timedelta(days=(today.weekday() - WEEKDAYS.index(word)) % 7)
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise InvalidInput(f"There is no day {word}.", "Write it as 2026-03-14.", code="invalid_date") from None


def _minutes(found: re.Match[str]) -> tuple[int, ...]:
    """Return the minutes of the day that are meant, the later first; none if it is no time of day."""
    if found["named"]:
        return (NAMED[found["named"].lower()],)
    word, half = found["hour"].lower(), (found["half"] or "").lower()
    if not (found["led"] or found["beside"] or found["minute"] or half):
        return ()
    hour = int(word) if word.isdigit() else HOURS.index(word)
    more = int(found["minute"] or BESIDE.get(" ".join((found["beside"] or "").lower().split()), 0))
    if hour > (NOON if half else LAST_HOUR):
        return ()
    hours: tuple[int, ...] = (hour,)
    if half:
        hours = (hour % NOON + (NOON if half == "p" else 0),)
    elif 1 <= hour <= NOON and not (word.startswith("0") or found["second"]):
        # Told by one who says four and means the afternoon; of twelve, the noon.
        hours = (hour % NOON + NOON, hour % NOON)
    return tuple((one * 60 + more) % (DAY // 60) for one in hours)


def told_moment(ask: Callable[[Mapping[str, object]], Answer], day: date, minutes: Sequence[int]) -> str:
    """Return what was done at a moment, or shortly before or after it, as a sentence."""
    for minute in minutes:
        at = day_of(day.isoformat()).start + minute * 60
        given = {"startDate": iso_text(at - AROUND), "endDate": iso_text(at + AROUND), "maxSegments": 2000}
        one = min(ask(given)["segments"], key=lambda segment: _distance(segment, at), default=None)
        distance = _distance(one, at) if one else NEAR + 1
        if one and distance <= NEAR:
            when = f"At {_clock(minute)} on {long_date(day)}"
            pause = "" if distance == 0 else " nothing is recorded; nearest is"
            # A stretch may have gone from one website to the next: this minute alone says where it was then.
            now = ask({"startDate": iso_text(at), "endDate": iso_text(at + 60)})["segments"] if distance == 0 else []
            here = [part for part in now if part["application"] == one["application"]]
            what = _what(here[0]) if here else _short(one["application"])
            return f"{when}{pause}: {what}, {one['start'][11:16]} to {one['end'][11:16]}."
    return f"Nothing is recorded at {' or '.join(map(_clock, minutes))} on {long_date(day)}."


def _distance(one: Answer, at: int) -> int:
    """Return by how many seconds a segment misses a moment; 0 if it holds it."""
    start, end = (local_of(one[name], None, name) for name in ("start", "end"))
    return 0 if start <= at < end else start - at if at < start else at - end + 1


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _what(one: Answer) -> str:
    """Return what a segment is about; the words of others on one line, and short."""
    place = one.get("website") or str(one.get("document") or "").replace("\\", "/").rpartition("/")[2]
    return ", ".join(_short(name) for name in (one["application"], place) if name)


def _short(name: str) -> str:
    line = " ".join(name.split())
    return shortened(line, LONGEST_NAME)


def told_day(made: Answer, bar: DayBar) -> str:
    """Return a day as a message: how long, the bar, what was used most, and the longest stretch."""
    if not bar.text:
        return f"{bar.said}: nothing is recorded."
    lines = [f"{bar.said}: {spent(made['totalActiveMinutes'])} at the computer.", bar.text]
    tops = [f"{_short(one['name'])} {spent(one['totalMinutes'])}" for one in made["topApplications"][:MOST_NAMED]]
    if tops:
        lines.append(f"{', '.join(tops)}.")
    if made["segments"]:
        one = max(made["segments"], key=lambda segment: float(segment["durationMinutes"]))
        what = _short(one["application"])
        lines.append(f"Longest at a stretch: {what}, {one['start'][11:16]} to {one['end'][11:16]}.")
    return "\n".join(lines)


def bar_of(snapshot: Snapshot, desk: Desk, day: date) -> DayBar:
    """Return how much of each half hour of the day was active, each moment counting once."""
    asked = day_of(day.isoformat())
    reports = snapshot.reports(usage.APPLICATIONS)
    in_use = snapshot.activities(snapshot.reports(usage.COMPUTER_USAGE), asked)
    every = snapshot.connection.execute(queries.TIMES, {"reports": reports, **asked.texts})
    found = sorted(
        one for row in every if None not in row[:2] for one in spans(row[0], row[1], row[2], row[3], desk.zone)
    )
    active = narrative.active_times(in_use, desk.zone)
    return DayBar(day, _half_hours(asked, narrative.clipped(found, asked, active)))


def _half_hours(asked: Range, parts: Iterable[Span]) -> tuple[int, ...]:
    seconds = [0] * HALF_HOURS
    for start, end in united((one.local_start, one.local_end) for one in parts):
        for at, some in split(Span(start, end, 0), HALF_HOUR):
            seconds[(at - asked.start) // HALF_HOUR] += some
    return tuple(seconds)


QUESTION: Final = Param(
    "question",
    "string",
    "A day or a moment, as its owner would say it: `today`, `yesterday`, `2026-03-14`, `what was I doing at four?`.",
    required=True,
)
RECALL: Final = Told(
    "recall",
    "Tell in words for a message to the owner: a day with a bar of its half hours, or what was done at a moment.",
    (QUESTION,),
    {"text": TEXT, "bar?": TEXT, "date": TEXT},
)
PARAMS: Final = {told.name: told.params for told, _ in SUMMARIES}


def recall_over(desk: Desk, keep: Keep, now: Callable[[], float]) -> Tool:
    """Return the tool over this desk; `keep` is given the bar of each day that is told."""

    async def work(given: Given, _: ToolCall) -> Result:
        time = meant(given.text("question")[-LONGEST_QUESTION:], datetime.fromtimestamp(now(), desk.zone))

        def read(snapshot: Snapshot) -> tuple[str, DayBar | None]:
            if time.minutes:
                told = told_moment(lambda given: get_activity_narrative(ask(snapshot, given)), time.day, time.minutes)
                return told, None
            given = {"date": time.day.isoformat(), "maxSegments": 2000}
            bar = bar_of(snapshot, desk, time.day)
            return told_day(get_daily_summary(ask(snapshot, given, "get_daily_summary")), bar), bar

        def ask(snapshot: Snapshot, some: Mapping[str, object], name: str = "get_activity_narrative") -> Ask:
            return Ask(snapshot, Given(PARAMS[name], some), desk.zone, desk.pictures)

        text, bar = await desk.source.read(read)
        if bar is not None:
            await keep(bar)
        return Result({"text": text, "bar": bar.text if bar and bar.text else None, "date": time.day.isoformat()})

    return RECALL.tool(work)
