"""Quiet hours: how long they still last at a moment, past midnight and over a change of clocks."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.config.quiet_hours import quiet_hours

BERLIN = "22:00-07:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "now", "left"),
    [
        (BERLIN, datetime(2030, 1, 15, 20, 59, tzinfo=UTC), timedelta(0)),
        (BERLIN, datetime(2030, 1, 15, 21, 0, tzinfo=UTC), timedelta(hours=9)),
        (BERLIN, datetime(2030, 1, 16, 5, 59, tzinfo=UTC), timedelta(minutes=1)),
        (BERLIN, datetime(2030, 1, 16, 6, 0, tzinfo=UTC), timedelta(0)),
        (BERLIN, datetime(2030, 3, 30, 21, 0, tzinfo=UTC), timedelta(hours=8)),
        ("12:00-14:00", datetime(2030, 1, 15, 13, 0, tzinfo=UTC), timedelta(hours=1)),
        ("12:00-14:00", datetime(2030, 1, 15, 14, 0, tzinfo=UTC), timedelta(0)),
    ],
)
def test_what_is_left_of_them(text: str, now: datetime, left: timedelta) -> None:
    assert quiet_hours(text).left(now) == left


@pytest.mark.parametrize("text", ["22:00", "22-7", "24:00-07:00", "22:00-22:00", "22:00-07:00 Nowhere/At_all", "x"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone"):
        quiet_hours(text)


def test_they_are_shown_as_they_are_set() -> None:
    assert str(quiet_hours(BERLIN)) == BERLIN
