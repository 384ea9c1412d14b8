"""Ranges and spans of time, midnight, and the nights on which clocks are changed. Pure.

A moment is a number of seconds since 1970, as UTC tells it; local time is that plus a shift. A range is told in local
time, as the computer's clock showed it. INVARIANT: minutes are counted in UTC, so that no night is an hour off.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from shared.errors import InvalidInput

DAY: Final = 86_400
HOUR: Final = 3_600
MOST_DAYS: Final = 31
DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Range:
    """A time to look at, in local seconds: the start is part of it, the end is not."""

    start: int
    end: int

    @property
    def texts(self) -> dict[str, str]:
        """Return both bounds as ManicTime writes them, for a query."""
        return {"start": clock_text(self.start), "end": clock_text(self.end)}

    @property
    def of_hours(self) -> bool:
        """Return whether it begins and ends at full hours."""
        return self.start % HOUR == 0 and self.end % HOUR == 0

    @property
    def of_days(self) -> bool:
        """Return whether it begins and ends at midnight."""
        return self.start % DAY == 0 and self.end % DAY == 0


class Span(NamedTuple):
    """A time in which local time ran evenly: its start and end in UTC, and how far local time was ahead."""

    start: int
    end: int
    shift: int

    @property
    def local_start(self) -> int:
        """Return when it began by the local clock."""
        return self.start + self.shift

    @property
    def local_end(self) -> int:
        """Return when it ended by the local clock."""
        return self.end + self.shift


def seconds_of(moment: datetime) -> int:
    """Return a moment without a time zone as seconds, as if it were UTC."""
    return int(moment.replace(tzinfo=UTC).timestamp())


def clock_text(local: int) -> str:
    """Return local seconds as ManicTime writes them."""
    return _moment(local).strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")


def iso_text(local: int) -> str:
    """Return local seconds as an ISO-8601 moment."""
    return clock_text(local).replace(" ", "T")


def _moment(local: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=local)


def minutes(seconds: float) -> float:
    """Return seconds as minutes with one decimal."""
    return round(seconds / 60, 1)


def local_of(text: object, zone: ZoneInfo | None, name: str) -> int:
    """Return a date's local midnight, or a moment as the clock of this zone shows it; raise InvalidInput."""
    if isinstance(text, str) and (DATE.fullmatch(text) or MOMENT.fullmatch(text)):
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                moment = moment.astimezone(zone).replace(tzinfo=None)
            return seconds_of(moment)
        except (ValueError, OverflowError):
            pass  # the 30th of February, or a moment before the first year
    raise _no_date(name, "a date such as 2026-03-14, or a moment such as 2026-03-14T09:30:00")


def date_of(text: object, name: str) -> date:
    """Return a date; raise InvalidInput for anything else."""
    if isinstance(text, str) and DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass  # the 30th of February
    raise _no_date(name, "a date such as 2026-03-14")


def _no_date(name: str, wanted: str) -> InvalidInput:
    return InvalidInput(f"Invalid date format. Expected ISO-8601 in `{name}`.", f"Write {wanted}.", code="invalid_date")


def range_of(start: object, end: object, zone: ZoneInfo | None, most_days: int | None = None) -> Range:
    """Return the range between two dates or moments; raise InvalidInput if it is reversed or too long."""
    found = Range(local_of(start, zone, "startDate"), local_of(end, zone, "endDate"))
    if found.end < found.start:
        raise InvalidInput(
            "The end lies before the start.", "Swap startDate and endDate; the end is exclusive.", code="invalid_range"
        )
    if most_days is not None and found.end - found.start > most_days * DAY:
        raise InvalidInput(
            f"Date range exceeds maximum of {most_days} days.", "Ask for a part of it.", code="range_too_long"
        )
    return found


def day_of(text: object) -> Range:
    """Return the whole of one day, named by its date; raise InvalidInput for anything else."""
    start = seconds_of(datetime.combine(date_of(text, "date"), datetime.min.time()))
    return Range(start, start + DAY)


def spans(
    started: int, ended: int, started_utc: int | None, ended_utc: int | None, zone: ZoneInfo | None
) -> tuple[Span, ...]:
    """Return an activity as spans: one, or two where the clock was changed within it; none if it has no length."""
    if started_utc is None or ended_utc is None:
        started_utc, ended_utc = started, ended
    if ended_utc <= started_utc:
        return ()
    before, after = started - started_utc, ended - ended_utc
    if before == after:
        return (Span(started_utc, ended_utc, before),)
    changed = _change(started_utc, ended_utc, zone)
    return tuple(
        one for one in (Span(started_utc, changed, before), Span(changed, ended_utc, after)) if one.start < one.end
    )


def _change(start: int, end: int, zone: ZoneInfo | None) -> int:
    """Return the moment in between at which the clock of this zone is changed; the end if it is not."""
    first = _offset(start, zone)
    if first == _offset(end, zone):
        return end
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _offset(middle, zone) == first else (start, middle)
    return end


def _offset(moment: int, zone: ZoneInfo | None) -> timedelta | None:
    return _moment(moment).astimezone(zone).utcoffset()


def clip(one: Span, within: Range) -> Span | None:
    """Return the part of a span that lies in the range, or None."""
    return part(one, within.start - one.shift, within.end - one.shift)


def part(one: Span, start: int, end: int) -> Span | None:
    """Return the part of a span between two moments, or None."""
    if start <= one.start < one.end <= end:
        return one
    start, end = max(start, one.start), min(end, one.end)
    return Span(start, end, one.shift) if start < end else None


def united(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return times that may overlap as the times that they cover, in order."""
    made: list[tuple[int, int]] = []
    for start, end in sorted(times):
        if made and start <= made[-1][1]:
            if end > made[-1][1]:
                made[-1] = (made[-1][0], end)
        else:
            made.append((start, end))
    return made


def within(one: Span, covers: Sequence[tuple[int, int]], first: int = 0) -> Iterator[Span]:
    """Yield the parts of a span that lie in these times, which are in order; those before `first` end before it."""
    for number in range(first, len(covers)):
        start, end = covers[number]
        if start >= one.end:
            return
        if found := part(one, start, end):
            yield found


def split(one: Span, size: int) -> Iterator[tuple[int, int]]:
    """Yield each hour, or each day, of the local clock that a span touches, and for how many seconds."""
    start, end = one.local_start, one.local_end
    while start < end:
        stop = min(end, start - start % size + size)
        yield start - start % size, stop - start
        start = stop
