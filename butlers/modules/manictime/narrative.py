"""What was done, told as segments: clipped to the time of activity, named, merged and counted. Pure."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from butlers.modules.manictime.days import Range, Span, clip, iso_text, minutes, spans, united, within
from butlers.modules.manictime.queries import Activity

WEB: Final = "ManicTime/WebSites"
CHAT: Final = "ManicTime/Chat"
BROWSERS: Final = frozenset(
    (
        *("google chrome", "chrome", "mozilla firefox", "firefox", "microsoft edge", "edge", "brave browser", "brave"),
        *("opera", "safari", "vivaldi", "arc"),
    )
)
BROWSER_FILES: Final = frozenset(
    {"chrome.exe", "firefox.exe", "msedge.exe", "brave.exe", "opera.exe", "vivaldi.exe", "arc.exe", "safari"}
)
# A site is still that of a browser's segment if it ended up to so long before.
TOLERANCE_SECONDS: Final = 5
CARRIED_SECONDS: Final = 30 * 60
# What is shorter and lies between two segments of one application is part of them.
SHORT_SECONDS: Final = 30
THREE: Final = 3
NEAR_SECONDS: Final = 120
APART_SECONDS: Final = 300
MOST_SUGGESTED: Final = 5
STATES: Final = {"active": "active", "away": "away", "sessionlocked": "locked", "poweroff": "off", "off": "off"}
NAMES_OF_STATES: Final = {"active": "active", "away": "away", "session lock": "locked", "power off": "off"}
NO_TAGS: Final = frozenset[str]()
DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")


class Segment(NamedTuple):
    """A time with one application."""

    application: str
    span: Span
    is_browser: bool = False
    document: str | None = None
    website: str | None = None
    tags: frozenset[str] = frozenset()
    screenshot: str | None = None
    # Local time at its end, which is not that at its start on the night on which clocks are changed.
    local_end: int = 0

    @property
    def seconds(self) -> int:
        """Return how long it lasted, with the gaps that merging closed."""
        return self.span.end - self.span.start


class Shot(Protocol):
    """A screenshot: when it was made by the local clock, and by which reference a client asks for it."""

    @property
    def local(self) -> int:
        """Return when it was made."""

    @property
    def ref(self) -> str:
        """Return its reference."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What else is known of the time: rows of other timelines, and screenshots by their local moment."""

    documents: Sequence[Activity] = ()
    sites: Sequence[Activity] = ()
    tags: Sequence[tuple[Activity, frozenset[str]]] = ()
    # By timeline and number of an activity, where tags are of activities.
    tags_of: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    # In the order of their time.
    screenshots: Sequence["Shot"] = ()


def state_of(row: Activity) -> str | None:
    """Return what the computer was, by the group's key, which is no language's; else by its name."""
    key = (row.group_key or "").rpartition("/")[2].lower()
    return STATES.get(key) or NAMES_OF_STATES.get((row.group_name or row.title or "").lower())


def active_times(rows: Sequence[Activity], zone: ZoneInfo | None) -> list[tuple[int, int]] | None:
    """Return when the computer was in use; None if nothing is known of it."""
    if not rows:
        return None
    return united((one.start, one.end) for row in rows if state_of(row) == "active" for one in spans_of(row, zone))


def spans_of(row: Activity, zone: ZoneInfo | None) -> tuple[Span, ...]:
    """Return the spans of a row."""
    return spans(row.started, row.ended, row.started_utc, row.ended_utc, zone)


def clipped(found: Iterable[Span], asked: Range, active: Sequence[tuple[int, int]] | None) -> Iterator[Span]:
    """Yield what lies in the range and in the time of activity; the spans come in the order of their start."""
    first = 0
    for one in found:
        part = clip(one, asked)
        if part is None:
            continue
        if active is None:
            yield part
            continue
        first = max(0, bisect_left(active, (part.start, part.start)) - 1)
        if active and active[first][0] <= part.start and part.end <= active[first][1]:
            yield part  # as nearly all are
        else:
            yield from within(part, active, first)


def total_seconds(parts: Iterable[Span]) -> int:
    """Return how much time these cover together, each moment once; they come in the order of their start."""
    covered, reached = 0, -(2**62)
    for one in parts:
        start = max(one.start, reached)
        if one.end > start:
            covered, reached = covered + one.end - start, one.end
    return covered


def seconds_of_all(found: Sequence[tuple[Segment, Activity]]) -> int:
    """Return how much time all segments cover together."""
    return total_seconds(one.span for one, _ in found)


def segments(
    rows: Sequence[Activity], asked: Range, active: Sequence[tuple[int, int]] | None, zone: ZoneInfo | None
) -> list[tuple[Segment, Activity]]:
    """Return what each row adds to the range, in order."""
    made = [
        (Segment(row.name, part, is_browser(row), local_end=part.local_end), row)
        for row in rows
        for part in clipped(spans_of(row, zone), asked, active)
    ]
    return sorted(made, key=lambda one: (one[0].span.start, one[0].span.end))


def is_browser(row: Activity) -> bool:
    """Return whether the application shows websites."""
    return _is_browser(row.name, row.group_key or "")


@lru_cache(maxsize=1024)
def _is_browser(name: str, key: str) -> bool:
    return name.lower() in BROWSERS or not BROWSER_FILES.isdisjoint(key.lower().split(";"))


def described(
    found: Sequence[tuple[Segment, Activity]], beside: Beside, zone: ZoneInfo | None, *, with_websites: bool
) -> list[Segment]:
    """Return the segments with document, website, tags and screenshot."""
    documents = Nearby(beside.documents, zone)
    sites, tags = Nearby([row for row in beside.sites if site_of(row)], zone), Nearby([r for r, _ in beside.tags], zone)
    names = {id(row): said for row, said in beside.tags}
    carried, until = None, 0
    made = []
    for one, row in found:
        document = documents.longest(one.span)
        near = NO_TAGS.union(*[names[id(tag)] for tag in tags.touching(one.span)]) if names else NO_TAGS
        site = None
        if with_websites:
            seen = sites.longest(one.span, TOLERANCE_SECONDS if one.is_browser else 0)
            site = site_of(seen) if seen else None
            if one.is_browser:
                site = site or (carried if one.span.start - until <= CARRIED_SECONDS else None)
                carried, until = site, one.span.end
        shot = nearest(beside.screenshots, one.span.local_start, one.span.local_end)
        made.append(
            Segment(
                one.application,
                one.span,
                one.is_browser,
                path_of(document.title) if document else None,
                site,
                near | beside.tags_of.get((row.report_id, row.activity_id), NO_TAGS),
                shot.ref if shot else None,
                one.local_end,
            )
        )
    return made


class Nearby:
    """Rows of another timeline, asked for by spans whose starts only grow."""

    def __init__(self, rows: Sequence[Activity], zone: ZoneInfo | None) -> None:
        self._rest = sorted(((one.start, one.end, n) for n, row in enumerate(rows) for one in spans_of(row, zone)))
        self._rows = rows
        self._next = 0
        self._open: list[tuple[int, int, int]] = []

    def touching(self, span: Span) -> list[Activity]:
        """Return the rows that overlap the span."""
        return [self._rows[number] for _, _, number in self._touching(span, 0)]

    def _touching(self, span: Span, before: int) -> list[tuple[int, int, int]]:
        start, end = span.start, span.end
        while self._next < len(self._rest) and self._rest[self._next][0] < end:
            self._open.append(self._rest[self._next])
            self._next += 1
        if not self._open:
            return self._open
        self._open = [one for one in self._open if one[1] + TOLERANCE_SECONDS > start]
        return [one for one in self._open if one[0] < end and one[1] + before > start]

    def longest(self, span: Span, before: int = 0) -> Activity | None:
        """Return the row that overlaps the span the longest; one that merely ended before it counts least."""
        near = self._touching(span, before)
        if len(near) > 1:
            near = [max(near, key=lambda one: (min(one[1], span.end) - max(one[0], span.start), *one[1:]))]
        return self._rows[near[0][2]] if near else None


def site_of(row: Activity) -> str | None:
    """Return the website of a row: its group's name, else the host of its address; None for what is no name."""
    name = row.common_name or row.group_name or urlsplit_host(row.title or "")
    return name if len(name) > 1 else None


def urlsplit_host(text: str) -> str:
    """Return the host of an address; the text itself if it is none."""
    try:
        return urlsplit(text).hostname or text
    except ValueError:
        return text


def path_of(title: str | None) -> str | None:
    """Return where a document is: a path of a drive as a URL, anything else as it is."""
    if title and DRIVE.match(title):
        return "file:///" + title.replace("\\", "/")
    return title or None


def nearest(shots: Sequence["Shot"], start: int, end: int) -> "Shot | None":
    """Return the screenshot nearest to the middle of a local time, of those within it and two minutes around."""
    if not shots:
        return None
    middle = (start + end) / 2
    at = bisect_left(shots, middle, key=lambda shot: shot.local)
    near = [one for one in shots[max(0, at - 1) : at + 1] if start - NEAR_SECONDS <= one.local <= end + NEAR_SECONDS]
    return min(near, key=lambda shot: abs(shot.local - middle), default=None)


def merged(found: Iterable[Segment], most_gap_minutes: float) -> list[Segment]:
    """Return the segments with those of one application joined over small gaps and over what is very short."""
    gap, made = most_gap_minutes * 60, list[Segment]()
    for one in found:
        made.append(one)
        while _fold(made, gap):
            pass
    return made


def _fold(made: list[Segment], gap: float) -> bool:
    """Join the last two, or the last three over a short one in the middle; return whether there was anything to do."""
    if len(made) > 1 and _joins(made[-2], made[-1], gap):
        made[-2:] = [_joined(made[-2], made[-1])]
        return True
    if len(made) >= THREE and made[-2].seconds < SHORT_SECONDS and made[-3].application == made[-1].application:
        first, middle, last = made[-3:]
        if middle.span.start - first.span.end <= gap and last.span.start - middle.span.end <= gap:
            made[-3:] = [_joined(first, last)]
            return True
    return False


def _joins(one: Segment, other: Segment, gap: float) -> bool:
    return one.application == other.application and other.span.start - one.span.end <= gap


def _joined(one: Segment, other: Segment) -> Segment:
    last = other if other.span.end >= one.span.end else one
    return one._replace(
        span=Span(one.span.start, last.span.end, one.span.shift),
        local_end=last.local_end,
        document=one.document or other.document,
        website=one.website or other.website,
        tags=one.tags | other.tags,
        screenshot=one.screenshot or other.screenshot,
    )


def as_answer(one: Segment) -> dict[str, object]:
    """Return a segment as it is answered."""
    return {
        "start": iso_text(one.span.local_start),
        "end": iso_text(one.local_end),
        "durationMinutes": minutes(one.seconds),
        "application": one.application,
        "document": one.document,
        "website": one.website,
        "tags": sorted(one.tags) or None,
        "screenshotRef": one.screenshot,
    }


def suggested(found: Sequence[Segment], moment: Callable[[str], str]) -> list[dict[str, object]] | None:
    """Return up to five screenshots worth a look: where the application changes, and of the longest segments."""
    longest = sorted(found, key=lambda one: -one.seconds)[:MOST_SUGGESTED]
    chosen = dict[str, tuple[Segment, str]]()
    before = [None, *(one.application for one in found)]
    changes = [one for one, last in zip(found, before, strict=False) if one.application != last]
    for hint, some in (("long session", longest), ("app transition", changes)):
        for one in some:
            near = any(abs(one.span.start - other.span.start) < APART_SECONDS for other, _ in chosen.values())
            if one.screenshot and one.screenshot not in chosen and not near and len(chosen) < MOST_SUGGESTED:
                chosen[one.screenshot] = (one, hint)
    made = sorted((moment(ref), ref, one.application, hint) for ref, (one, hint) in chosen.items())
    names = ("timestamp", "screenshotRef", "application", "hint")
    return [dict(zip(names, one, strict=True)) for one in made] or None
