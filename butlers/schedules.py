"""When a schedule is due, and reading one from butler.toml or from a tool's arguments. Pure."""

import difflib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final, get_args
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from shared.config.settings import variable
from shared.errors import InvalidInput
from shared.storage.schedules import CatchUp, Schedule

LOCALTIME: Final = Path("/etc/localtime")
# Where some systems name the zone as a text.
TIMEZONE: Final = Path("/etc/timezone")
# Each key of a schedule and what it says, from which docs/butler-toml.md is written.
KEYS: Final[Mapping[str, str]] = {
    "name": "A small letter, then up to 62 of a-z, 0-9, _ and -.",
    "cron": "Again and again: minute, hour, day, month, day of the week; or `at`.",
    "at": "Once: date and time, with an offset or in the zone; or `cron`.",
    "zone": "An IANA zone; this machine's if it is left out.",
    "prompt": "What its runtime is asked then, in a session; or `tool`.",
    "tool": "The tool of its own that is called then; or `prompt`.",
    "arguments": "The arguments of that tool.",
    "catch_up": "What was missed: made up for `once`, which is the default, or `skip`.",
}
# A clock that shows an earlier time is not set yet, as that of a computer without a battery.
NO_CLOCK_IS_RIGHT_BEFORE: Final = datetime(2026, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
LATE: Final = timedelta(seconds=60)
"""What is due longer ago than this was missed; a process that is busy is late by less."""
WHY_SKIPPED: Final = "It was missed, and its schedule says to skip what is missed."
WHY_UNREADABLE: Final = "Its time or its zone cannot be read. It does not come again; make it anew."
# What comes of an expression or a zone that nobody can read.
UNREADABLE: Final = (CronSimError, AssertionError, LookupError, OSError, ValueError)
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
_FIELDS: Final = 5
_LONGEST: Final = {"prompt": 20_000, "tool": 128, "cron": 200, "arguments": 60_000}
EXAMPLES: Final = {
    "name": 'name = "morning"',
    "cron": 'cron = "30 7 * * *"',
    "at": 'at = "2030-05-01T09:00:00+02:00"',
    "zone": 'zone = "Europe/Berlin"',
    "prompt": 'prompt = "Say how the night was."',
    "tool": 'tool = "notify"',
    "arguments": 'arguments = { channel = "telegram", message = "Drink some water." }',
    "catch_up": 'catch_up = "skip"',
}


@cache
def machine_zone() -> str:
    """Return the IANA name of this machine's zone, or UTC where nothing names one."""
    return zone_of(variable("TZ") or "", LOCALTIME, TIMEZONE)


def zone_of(tz: str, localtime: Path, timezone: Path) -> str:
    """Return the first zone that is named: by TZ, by where the link leads, by the file's text; else UTC."""
    written = timezone.read_text(encoding="utf-8", errors="replace") if timezone.is_file() else ""
    for said in (tz, str(localtime.resolve()), written):
        name = said.strip().removeprefix(":").rpartition("zoneinfo/")[2]
        name = name.removeprefix("posix/").removeprefix("right/")
        if name in available_timezones():
            return name
    return "UTC"


def next_due(cron: str, zone: str, after: datetime) -> datetime | None:
    """Return the first time after `after` at which the cron expression is due in that zone, or None if it never is.

    Where clocks leave out an hour, what is due in it is due at its end. Of an hour that they run through twice only the
    first time counts, unless the expression means every hour.
    """
    if cron.split()[1] == "*":
        ticks = (tick.astimezone(UTC) for tick in CronSim(cron, after.astimezone(ZoneInfo(zone))))
    else:
        wall = after.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        ticks = (_at_wall(tick, ZoneInfo(zone)) for tick in CronSim(cron, wall))
    # In the second run through an hour its times seem to lie ahead, and have been.
    return next((tick for tick in ticks if tick > after), None)


def _at_wall(tick: datetime, zone: ZoneInfo) -> datetime:
    """Return when clocks of the zone show this first, or show a later time than it."""
    while (found := tick.replace(tzinfo=zone).astimezone(UTC)).astimezone(zone).replace(tzinfo=None) != tick:
        tick += timedelta(minutes=1)
    return found


def first_due(schedule: Schedule, now: datetime) -> datetime | None:
    """Return when a schedule that begins now is due first, or None if that is over: it was not missed."""
    if schedule.cron is not None:
        return next_due(schedule.cron, schedule.zone, now)
    assert schedule.at is not None  # noqa: S101  # the row's own CHECK: one of the two
    return schedule.at if schedule.at > now - LATE else None


def due_again(before: Schedule | None, waits: datetime | None, schedule: Schedule, now: datetime) -> datetime | None:
    """Return when a schedule is due next whose row was `before`, if it had one, due next at `waits`.

    What is as it was keeps its time: a restart neither repeats nor loses an occurrence. In another zone, as of a
    computer that travelled, what waits for nine o'clock comes at nine o'clock there, and was missed if that is over;
    but what comes again within a day comes then, since at once, as where a zone is put right, its hour would be wrong.
    """
    if before is None:
        return first_due(schedule, now)
    same = (before.cron, before.at) == (schedule.cron, schedule.at)
    if same and (schedule.cron is None or before.zone == schedule.zone):
        return waits
    with suppress(*UNREADABLE):  # a row's zone may be none
        if same or _have_one_wall_time(before, schedule):
            # What was missed stays so, and what came does not come again.
            if waits is None or waits <= now:
                return waits
            there = _on_the_wall(waits, before.zone).replace(tzinfo=ZoneInfo(schedule.zone)).astimezone(UTC)
            again = next_due(schedule.cron, schedule.zone, now) if schedule.cron is not None and there <= now else None
            return there if again is None or again - now > _DAY else again
    return first_due(schedule, now)


def _have_one_wall_time(before: Schedule, schedule: Schedule) -> bool:
    if before.at is None or schedule.at is None:
        return False
    return _on_the_wall(before.at, before.zone) == _on_the_wall(schedule.at, schedule.zone)


def _on_the_wall(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of a schedule that is due: why it is not carried out now, if it is not, and when it is due next."""

    skipped: str | None
    then: datetime | None


def turn(schedule: Schedule, due_at: datetime, now: datetime) -> Turn:
    """Choose for a schedule that is due: of what was missed, one is made up for, or none.

    What is missed and skipped is not carried out, and the next one is the first that is not missed. What cannot be
    read, as by a later program, or where a zone is no more, is due never again.
    """
    missed = due_at < now - LATE
    skipped = WHY_SKIPPED if missed and schedule.catch_up == "skip" else None
    if schedule.cron is None:
        return Turn(skipped, None)
    try:
        return Turn(skipped, next_due(schedule.cron, schedule.zone, max(due_at, now - LATE if skipped else now)))
    except UNREADABLE:
        return Turn(WHY_UNREADABLE, None)


def read_schedule(raw: Mapping[str, object], zone: str) -> Schedule:
    """Read a schedule, in `zone` unless it names one; raise InvalidInput that names the key and gives an example."""
    for key in raw:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1, 0.5)
            hint = f"Did you mean `{near[0]}`?" if near else f"Choose from: {', '.join(KEYS)}."
            raise InvalidInput(f"A schedule has no key `{key}`.", hint)
    name = _text(raw, "name")
    if name is None or not _NAME.fullmatch(name):
        raise _unfit("name", "needs a small letter, then up to 62 of a-z, 0-9, _ and -")
    at_zone = _zone(_text(raw, "zone") or zone)
    _one_of(raw, "cron", "at", "when")
    _one_of(raw, "prompt", "tool", "what")
    catch_up: CatchUp = "skip" if raw.get("catch_up") == "skip" else "once"
    if raw.get("catch_up", catch_up) != catch_up:
        raise _unfit("catch_up", f"is one of {', '.join(get_args(CatchUp))}")
    return Schedule(
        name=name,
        zone=at_zone,
        cron=_cron(raw, at_zone),
        at=_at(raw.get("at"), at_zone),
        prompt=_text(raw, "prompt"),
        tool=_text(raw, "tool"),
        arguments=_arguments(raw),
        catch_up=catch_up,
    )


def _one_of(raw: Mapping[str, object], one: str, other: str, what: str) -> None:
    if (raw.get(one) is None) == (raw.get(other) is None):
        raise InvalidInput(
            f"A schedule says {what} by `{one}` or by `{other}`, and by one of them only.",
            f"Write for example {EXAMPLES[one]}, or {EXAMPLES[other]}.",
        )


def _text(raw: Mapping[str, object], key: str) -> str | None:
    found = raw.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not found.strip() or "\x00" in found:
        raise _unfit(key, "is a text that is not empty")
    if len(found) > _LONGEST.get(key, 100):
        raise _unfit(key, f"is at most {_LONGEST.get(key, 100)} characters long")
    return found


def _zone(name: str) -> str:
    if name not in available_timezones():
        near = difflib.get_close_matches(name, sorted(available_timezones()), 1, 0.5)
        hint = f"Did you mean `{near[0]}`?" if near else f"Write for example {EXAMPLES['zone']}."
        raise InvalidInput(f"`zone`: there is no time zone `{name}`.", hint)
    return name


def _cron(raw: Mapping[str, object], zone: str) -> str | None:
    cron = _text(raw, "cron")
    if cron is None:
        return None
    fields = cron.split()
    if len(fields) != _FIELDS:
        raise _unfit("cron", f"has {len(fields)} fields instead of 5: minute, hour, day, month, day of the week")
    try:
        due = next_due(cron, zone, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError) as wrong:
        raise _unfit("cron", f"cannot be read: {str(wrong).lower() or 'bad step'}") from None
    if due is None:
        raise _unfit("cron", "names a day that never comes")
    return " ".join(fields)


def _at(found: object, zone: str) -> datetime | None:
    if found is None:
        return None
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found)
        except ValueError:
            raise _unfit("at", "is no date and time") from None
    if not isinstance(found, datetime) or not date(2000, 1, 1) <= found.date() <= date(2200, 1, 1):
        raise _unfit("at", "is no date and time between 2000 and 2200")
    local = found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))
    return local.astimezone(UTC)


def _arguments(raw: Mapping[str, object]) -> Mapping[str, object]:
    found = raw.get("arguments", {})
    if raw.get("tool") is None and "arguments" in raw:
        raise _unfit("arguments", "are for a `tool`, and this schedule has none")
    if not isinstance(found, Mapping):
        raise _unfit("arguments", "is a table")
    try:
        text = json.dumps(found, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError):
        raise _unfit("arguments", "holds something that JSON has no word for") from None
    if len(text) > _LONGEST["arguments"] or "\\u0000" in text:
        raise _unfit("arguments", f"is at most {_LONGEST['arguments']} characters of text")
    return dict(found)


def _unfit(key: str, why: str) -> InvalidInput:
    return InvalidInput(f"`{key}` {why}.", f"Write for example {EXAMPLES[key]}.")
