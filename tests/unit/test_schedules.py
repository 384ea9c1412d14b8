"""When a schedule is due, also in nights in which clocks are changed; and what a schedule may say."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butlers.schedules import LATE, WHY_SKIPPED, WHY_UNREADABLE, first_due, next_due, read_schedule, turn, zone_of
from shared.errors import InvalidInput
from shared.storage.schedules import Schedule

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "UTC")
BERLIN = ZoneInfo("Europe/Berlin")
# The nights in which clocks of Berlin are put forward at 2 and back at 3.
FORWARD, BACK = date(2027, 3, 28), date(2026, 10, 25)


def times(cron: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """Every time it is due from `begin`, and not at it, to before `end`."""
    found, at = [], next_due(cron, zone, begin)
    while at is not None and at < end:
        found.append(at)
        at = next_due(cron, zone, at)
    return found


@settings(max_examples=40)
@given(
    zone=st.sampled_from(ZONES),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    begin=st.datetimes(datetime(2024, 1, 1), datetime(2036, 1, 1)),  # noqa: DTZ001  # hypothesis wants them so
)
def test_what_is_daily_is_due_once_on_each_day(zone: str, hour: int, minute: int, begin: datetime) -> None:
    start = begin.replace(tzinfo=UTC)
    found = times(f"{minute} {hour} * * *", zone, start, start + timedelta(days=190))
    days = [at.astimezone(ZoneInfo(zone)).date() for at in found]
    assert days == [days[0] + timedelta(days=n) for n in range(len(days))]
    assert len(days) >= 189


@pytest.mark.parametrize(
    ("cron", "day", "expected"),
    [
        ("30 2 * * *", BACK, ["02:30+0200"]),
        ("*/20 2 * * *", BACK, ["02:00+0200", "02:20+0200", "02:40+0200"]),
        ("0 */2 * * *", BACK, ["02:00+0200"]),
        ("30 2 * * *", FORWARD, ["03:00+0200"]),
        ("*/20 2 * * *", FORWARD, ["03:00+0200"]),
        ("30 2,3 * * *", FORWARD, ["03:00+0200", "03:30+0200"]),
        ("30 * * * *", BACK, ["01:30+0200", "02:30+0200", "02:30+0100", "03:30+0100"]),
        ("30 * * * *", FORWARD, ["01:30+0100", "03:30+0200"]),
    ],
)
def test_both_nights_in_which_clocks_are_changed(cron: str, day: date, expected: list[str]) -> None:
    one, four = (datetime(day.year, day.month, day.day, hour, tzinfo=BERLIN) for hour in (1, 4))
    found = [f"{at.astimezone(BERLIN):%H:%M%z}" for at in times(cron, "Europe/Berlin", one, four)]
    assert found == expected


def test_a_day_that_never_comes_is_never_due() -> None:
    assert next_due("0 0 29 2 *", "UTC", datetime(2025, 1, 1, tzinfo=UTC)) == datetime(2028, 2, 29, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="`cron` "):
        read_schedule({"name": "a", "cron": "0 0 30 2 *", "tool": "notify"}, "UTC")


@pytest.mark.parametrize(
    ("tz", "link", "text", "zone"),
    [
        ("", "/usr/share/zoneinfo/Asia/Tokyo", "Africa/Cairo\n", "Asia/Tokyo"),
        (":Europe/Berlin", "/usr/share/zoneinfo/Asia/Tokyo", "Africa/Cairo\n", "Europe/Berlin"),
        ("", "/usr/share/zoneinfo/posix/Asia/Tokyo", None, "Asia/Tokyo"),
        ("CET-1CEST", None, "Africa/Cairo\n", "Africa/Cairo"),
        ("", None, None, "UTC"),
    ],
)
def test_the_zone_of_a_machine_is_whatever_names_one(
    tmp_path: Path, tz: str, link: str | None, text: str | None, zone: str
) -> None:
    localtime, timezone = tmp_path / "localtime", tmp_path / "timezone"
    localtime.symlink_to(link) if link else localtime.write_bytes(b"TZif2")
    if text is not None:
        timezone.write_text(text)
    assert zone_of(tz, localtime, timezone) == zone


NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
DAILY = Schedule(name="a", zone="UTC", cron="0 9 * * *", tool="notify")
SKIPPED = Schedule(name="a", zone="UTC", cron="0 9 * * *", tool="notify", catch_up="skip")
EVERY_MINUTE = Schedule(name="a", zone="UTC", cron="* * * * *", tool="notify", catch_up="skip")


def test_of_what_was_missed_one_is_made_up_for_or_none() -> None:
    three_days_ago, tomorrow = datetime(2029, 12, 29, 9, tzinfo=UTC), datetime(2030, 1, 2, 9, tzinfo=UTC)
    made_up, skipped = (turn(one, three_days_ago, NOW) for one in (DAILY, SKIPPED))
    assert (made_up.skipped, made_up.then) == (None, tomorrow)
    assert (skipped.skipped, skipped.then) == (WHY_SKIPPED, tomorrow)
    # What is late, and not missed, is never skipped; nor what comes after what is.
    assert turn(SKIPPED, NOW - LATE / 2, NOW).skipped is None
    assert turn(EVERY_MINUTE, three_days_ago, NOW).then == datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone"),
    [("now and then", "UTC"), ("", "UTC"), ("*/0 9 * * *", "UTC"), ("0 9 * * *", "Mars/Base"), ("0 9 * * *", "../x")],
)
def test_what_cannot_be_read_comes_never_again(cron: str, zone: str) -> None:
    found = turn(replace(DAILY, cron=cron, zone=zone), NOW, NOW)
    assert (found.skipped, found.then) == (WHY_UNREADABLE, None)


def test_what_is_once_is_over_after_it() -> None:
    once = Schedule(name="a", zone="UTC", at=NOW, tool="notify")
    assert turn(once, NOW, NOW).then is None
    assert first_due(once, NOW + LATE / 2) == NOW
    assert first_due(once, NOW + timedelta(days=3)) is None


GOOD: Mapping[str, object] = {"name": "a", "cron": "30 7 * * *", "tool": "notify"}


def test_a_schedule_is_read() -> None:
    assert read_schedule({**GOOD, "arguments": {"message": "Up!"}, "catch_up": "skip"}, "Europe/Berlin") == Schedule(
        name="a", zone="Europe/Berlin", cron="30 7 * * *", tool="notify", arguments={"message": "Up!"}, catch_up="skip"
    )
    at = {"name": "a", "at": "2030-05-01T09:00", "zone": "Europe/Berlin", "prompt": "Well?"}
    assert read_schedule(at, "UTC").at == datetime(2030, 5, 1, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "A b"}, "`name` needs a small letter"),
        ({"crom": "x"}, "no key `crom`. Did you mean `cron`?"),
        ({"cron": "30 7 * *"}, "has 4 fields instead of 5"),
        ({"cron": "0 30 7 * * *"}, "has 6 fields instead of 5"),
        ({"cron": "99 7 * * *"}, "cannot be read: bad minute. Write for example cron = "),
        ({"cron": "L/2 7 * * *"}, "`cron` cannot be read"),
        ({"cron": None}, "by `cron` or by `at`, and by one of them only"),
        ({"at": "2030-05-01T09:00:00Z"}, "by `cron` or by `at`, and by one of them only"),
        ({"cron": None, "at": "tomorrow"}, "`at` is no date and time"),
        ({"cron": None, "at": "9999-12-31T23:59:59-12:00"}, "`at` is no date and time between"),
        ({"zone": "Europe/Berln"}, "no time zone `Europe/Berln`. Did you mean `Europe/Berlin`?"),
        ({"prompt": "Well?"}, "by `prompt` or by `tool`"),
        ({"tool": None, "prompt": "Well?", "arguments": {}}, "`arguments` are for a `tool`"),
        ({"arguments": {"a": float("nan")}}, "JSON has no word for"),
        ({"arguments": {"a": "\ud800"}}, "JSON has no word for"),
        ({"arguments": {"a": "x" * 60_001}}, "is at most 60000 characters"),
        ({"catch_up": "twice"}, "`catch_up` is one of once, skip"),
        ({"prompt": None, "tool": " "}, "`tool` is a text that is not empty"),
    ],
)
def test_what_does_not_fit_is_said_with_its_key(change: Mapping[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_schedule({**GOOD, **change}, "UTC")
    assert said in str(refused.value)
    assert refused.value.remedy
