"""Whatever is asked: a coded error in two sentences, and no traceback."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from butlers.modules.manictime import ManicTime, components
from butlers.modules.manictime.fixture import Record
from butlers.modules.manictime.forms import APPS
from butlers.modules.manictime.source import DATABASE
from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.desks import TWO, Said, asked, at, recorded, refused, result

pytestmark = pytest.mark.asyncio
RANGED: Final = (
    "get_computer_usage",
    "get_tags",
    "get_application_usage",
    "get_document_usage",
    "get_activity_narrative",
    "get_period_summary",
    "get_website_usage",
    "list_screenshots",
)
DATES: Final = ("", "yesterday", "15.01.2025", "2025-1-5", "2025-02-30", "2025-01-15T25:00", "20250115", "2025-W03-1")


@pytest.mark.parametrize("tool", RANGED)
async def test_ranges_are_checked(desk: Desk, tool: str) -> None:
    for date in (
        *DATES,
        "\uff12\uff10\uff12\uff15-01-15",
        "2025-01-15'; DROP TABLE Ar_Activity--",
        "0001-01-01T00:00+14:00",
    ):
        assert await refused(desk, tool, startDate=date, endDate="2025-01-16") == "invalid_date", date
    assert await refused(desk, tool, startDate="2025-01-16", endDate="2025-01-15") == "invalid_range"
    assert await refused(desk, tool, startDate="2025-01-16") == "validation_error"
    assert await refused(desk, tool, **TWO, surprise=1) == "validation_error"
    assert await refused(desk, tool, startDate=20250115, endDate="2025-01-16") == "validation_error"
    empty = await asked(desk, tool, startDate="2025-01-15", endDate="2025-01-15")
    assert empty["truncation"]["returnedCount"] == 0


@pytest.mark.parametrize("tool", ["get_activity_narrative", "get_period_summary", "get_website_usage"])
async def test_31_days_are_taken_and_32_are_not(desk: Desk, tool: str) -> None:
    assert await asked(desk, tool, startDate="2025-01-01", endDate="2025-02-01")
    assert await refused(desk, tool, startDate="2025-01-01", endDate="2025-02-02") == "range_too_long"


async def test_a_moment_with_an_offset_is_one_of_the_local_clock(desk: Desk) -> None:
    there = {"startDate": "2025-01-15T08:00:00Z", "endDate": "2025-01-15T13:00:00+02:00"}
    here = {"startDate": "2025-01-15T09:00:00", "endDate": "2025-01-15T12:00:00"}
    one, other = [await asked(desk, "get_activity_narrative", **said) for said in (there, here)]
    assert one["segments"] == other["segments"] != []
    assert (one["startDate"], other["endDate"]) == (there["startDate"], here["endDate"])


async def test_a_date_is_a_date_and_a_timeline_one_there_is(desk: Desk) -> None:
    assert await refused(desk, "get_daily_summary", date="2025-01-15T10:00:00") == "invalid_date"
    assert await refused(desk, "get_activities", timelineId=99, **TWO) == "unknown_timeline"
    assert await refused(desk, "get_activities", timelineId=True, **TWO) == "validation_error"
    assert await refused(desk, "get_activities", timelineId=2**80, **TWO) == "unknown_timeline"
    for minutes in (-1, float("nan"), float("inf")):
        assert (
            await refused(desk, "get_daily_summary", date="2025-01-15", maxGapMinutes=minutes) == "limit_out_of_range"
        )


@pytest.mark.parametrize("zone", ["Nowhere/Town", "../../etc/passwd", "a\0b", ""])
async def test_a_time_zone_is_one_there_is(zone: str) -> None:
    with pytest.raises(ValidationError, match="no time zone"):
        ManicTime(timezone=zone)


VALUES: Final[tuple[Said, ...]] = (
    *(None, True, False, 0, -1, 1, 2, 5000, 5001, 2**63, -(2**63), 10**400, 0.5, 1e308, -1e308),
    *(float("nan"), float("inf"), "", "x", "\ud800", "\0", "percent", "normalized", "interval", [], {}, [1], {"a": 1}),
    *("2025-01-15", "2025-01-16", "2025-01-13T09:00", "9999-12-31", "0001-01-01", "2025-12-31T23:59:59.999999Z"),
)


async def fuzz(desk: Desk, calls: int, seed: int) -> int:
    """How many of so many calls were answered."""
    draw, answered = random.Random(seed), 0
    tools = components(desk).tools
    ref = (await asked(desk, "list_screenshots", startDate="2025-01-20", endDate="2025-01-23"))["screenshots"][0]
    for _ in range(calls):
        tool = draw.choice(tools)
        names: Any = [*tool.parameters["properties"], "strange"][: draw.randrange(1, 9)]  # type: ignore[misc]
        said = {name: draw.choice((*VALUES, ref["screenshotRef"], "2025-01-20", "2025-01-21")) for name in names}
        if draw.random() < 0.7:
            said = {name: one for name, one in said.items() if name != "strange"}
            said |= {name: one for name, one in (TWO | {"date": "2025-01-20"}).items() if name in said}
        made = await result(desk, tool.name, **said)
        if made.is_error:
            assert await refused(desk, tool.name, **said)
        answered += not made.is_error
    return answered


async def test_hundreds_of_strange_calls(desk: Desk) -> None:
    """They are 250 over either form; `make long` makes ten thousand."""
    assert await fuzz(desk, 250, 1) > 10


async def test_bytes_that_are_no_text_are_told_and_spoil_no_row(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, None, at(9), 3600, title="Good")
    record.add(APPS, None, at(10), 3600, title="Spoilt")
    desk = recorded(tmp_path, record)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as written, written:
        written.execute("UPDATE Ar_Activity SET Name = CAST(x'42ff' AS TEXT) WHERE Name = 'Spoilt'")
    told = await asked(desk, "get_activity_narrative", **TWO)
    assert [one["application"] for one in told["segments"]] == ["Good", "B\ufffd"]
