"""Minutes: from ManicTime's sums or from single rows, over midnight, on the nights when clocks are changed."""

import itertools
import sqlite3
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from butlers.modules.manictime.days import DAY, HOUR, Range, range_of
from butlers.modules.manictime.fixture import ZONE, Record, record_of
from butlers.modules.manictime.forms import APPS, DOCS, OTHER_APPS, TAGS, USAGE
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.screenshots import Desk
from butlers.modules.manictime.usage import KINDS, Used, from_rows, used
from tests.manictime.desks import TWO, asked, at, recorded, refused

pytestmark = pytest.mark.asyncio
SPRING, AUTUMN = date(2025, 3, 30), date(2025, 10, 26)


def odd(record: Record) -> Record:
    """What no working day has: a night through, three days on end, two computers, both nights of the clocks."""
    record.add(APPS, 1, at(23, 30, day=date(2025, 1, 18)), 3600)
    record.add(APPS, 3, at(12, day=date(2025, 2, 1)), 3 * 86400 + 1800)
    record.add(OTHER_APPS, 2, at(8, 45, day=date(2025, 1, 18)), 1800)
    for night in (SPRING, AUTUMN):
        record.add(APPS, 4, at(1, 45, day=night), 2 * 3600 + 17)
    record.add(DOCS, 1, at(23, 59, day=date(2025, 1, 18)), 120)
    return record


@pytest.mark.parametrize("form", ["A", "B"])
async def test_sums_of_ninety_days_are_those_of_their_rows(tmp_path: Path, form: str) -> None:
    desk = recorded(tmp_path, odd(record_of(form, 90)))
    ranges = [("2025-01-13", "2025-04-13"), ("2025-01-13", "2025-01-20"), ("2025-10-20", "2025-11-01")]
    for asked_for in (range_of(start, end, desk.zone) for start, end in ranges):
        for kind, size in itertools.product(KINDS, (DAY, HOUR)):
            summed, single = await desk.source.read(partial(both_ways, kind=kind, asked_for=asked_for, size=size))
            assert [one[:2] + one[4:] for one in summed] == [one[:2] + one[4:] for one in single], (kind, size)
            assert len(summed) > 5 or asked_for.texts["start"] > "2025-10"


def both_ways(snapshot: Snapshot, *, kind: str, asked_for: Range, size: int) -> tuple[list[Used], list[Used]]:
    """What is told, by ManicTime's own sums where they fit; and the sums of the rows."""
    made, _ = used(snapshot, kind, asked_for, size, ZONE)
    return sorted(made), from_rows(snapshot, kind, asked_for, size, ZONE)


@pytest.mark.parametrize(("night", "hours"), [(SPRING, 2), (AUTUMN, 4)])
async def test_both_nights_of_the_clocks_are_right_to_the_minute(tmp_path: Path, night: date, hours: int) -> None:
    record = Record("A")
    start, end = at(1, 0, day=night), at(4, 0, day=night)
    assert (end - start).total_seconds() == hours * 3600
    for report in (APPS, USAGE):
        record.add(report, 1, start, (end - start).total_seconds())
    whole = {"startDate": str(night), "endDate": str(night + timedelta(days=1))}
    for without in ((), ("Ar_CommonGroup", "Ar_ApplicationByDay")):
        desk = recorded(tmp_path, record, without)
        made = await asked(desk, "get_activity_narrative", **whole, includeSummary=True)
        assert made["totalActiveMinutes"] == hours * 60
        assert made["topApplications"][0]["totalMinutes"] == hours * 60
        assert sum(one["durationMinutes"] for one in made["segments"]) == hours * 60
        assert made["segments"][0]["start"].endswith("01:00:00")
        assert made["segments"][-1]["end"].endswith("04:00:00")


async def test_an_hour_that_comes_twice_counts_twice(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(2, 10, day=AUTUMN), 3600)  # from 02:10 to 02:10
    desk = recorded(tmp_path, record)
    made = await asked(desk, "get_activity_narrative", startDate="2025-10-26", endDate="2025-10-27")
    assert made["totalActiveMinutes"] == 60


async def test_several_midnights_divide_one_activity(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(12), 3 * 86400)
    desk = recorded(tmp_path, record, ["Ar_CommonGroup"])
    made = await asked(desk, "get_application_usage", startDate="2025-01-15", endDate="2025-01-19")
    assert [one["totalMinutes"] for one in made["usage"]] == [720, 1440, 1440, 720]
    assert made["diagnostics"]["reasonCode"] == "FallbackComputation"
    summary = await asked(desk, "get_period_summary", startDate="2025-01-16", endDate="2025-01-17")
    assert summary["days"][0]["firstActivityTime"] == "2025-01-16T00:00:00"
    assert summary["days"][0]["lastActivityTime"] == "2025-01-17T00:00:00"
    whole = await asked(desk, "get_period_summary", startDate="2025-01-15", endDate="2025-01-19")
    assert [one["firstActivityTime"][8:13] for one in whole["days"]] == ["15T12", "16T00", "17T00", "18T00"]
    assert [one["lastActivityTime"][8:13] for one in whole["days"]] == ["16T00", "17T00", "18T00", "18T12"]
    part = await asked(desk, "get_period_summary", startDate="2025-01-15T13:00", endDate="2025-01-15T14:00")
    assert part["days"][0]["firstActivityTime"] == "2025-01-15T13:00:00"
    assert part["days"][0]["lastActivityTime"] == "2025-01-15T14:00:00"


async def test_totals_are_of_all_rows_however_few_are_shown(tmp_path: Path) -> None:
    record = Record("C")
    start = at(6)
    for number in range(5001):
        record.add(APPS, number % 4 + 1, start + timedelta(seconds=10 * number), 10)
    desk = recorded(tmp_path, record)
    made = await asked(desk, "get_activity_narrative", **TWO, includeSummary=True, maxGapMinutes=0)
    assert made["totalActiveMinutes"] == round(50010 / 60, 1)
    assert sum(one["totalMinutes"] for one in made["topApplications"]) == pytest.approx(50010 / 60, abs=0.3)
    assert made["truncation"] == {"truncated": True, "returnedCount": 200}
    rows = await asked(desk, "get_activities", timelineId=APPS, **TWO, limit=99999)
    assert rows["count"] == 5000
    assert rows["truncation"]["truncated"]


@pytest.mark.parametrize("limit", [4, 5])
async def test_exactly_the_limit_is_not_truncated(tmp_path: Path, limit: int) -> None:
    record = Record("A")
    for number in range(5):
        record.add(APPS, 1, at(8 + number), 60)
    made = await asked(recorded(tmp_path, record), "get_activities", timelineId=APPS, **TWO, limit=limit)
    assert made["truncation"]["truncated"] == (limit < 5)
    assert made["count"] == limit


async def test_a_group_of_another_timeline_doubles_no_row(desk: Desk) -> None:
    made = await asked(desk, "get_activities", timelineId=APPS, startDate="2025-01-13", endDate="2025-01-14")
    ids = [one["activityId"] for one in made["activities"]]
    assert len(ids) == len(set(ids)) > 10
    names = {"Visual Studio Code", "Google Chrome", "Windows Terminal", "Outlook"}
    assert {one["groupName"] for one in made["activities"]} <= names
    assert {one["groupColor"][0] for one in made["activities"]} == {"#"}


async def test_no_application_is_called_a_website(desk: Desk) -> None:
    for end in ("2025-01-20", "2025-01-25"):
        made = await asked(desk, "get_website_usage", startDate="2025-01-13", endDate=end, minMinutes=0)
        sites = {"github.com", "docs.example.org"}, {"github.com", "news.example"}
        assert {one["name"] for one in made["websites"]} in sites
        periods = {len(part["period"]) for one in made["websites"] for part in one["timeBreakdown"]}
        assert (made["breakdownGranularity"], periods) == (("hour", {16}) if end == "2025-01-20" else ("day", {10}))


async def test_few_minutes_are_left_out_before_the_limit(tmp_path: Path) -> None:
    record = Record("A")
    record.add(DOCS, 3, at(8), 20)
    record.add(DOCS, 4, at(9), 60)
    desk = recorded(tmp_path, record)
    made = await asked(desk, "get_website_usage", **TWO, limit=1)
    assert [one["name"] for one in made["websites"]] == ["docs.example.org"]
    assert not made["truncation"]["truncated"]
    made = await asked(desk, "get_website_usage", **TWO, limit=1, minMinutes=0)
    assert made["truncation"] == {"truncated": True, "returnedCount": 1, "totalAvailable": 2}


async def test_documents_are_files_alone(tmp_path: Path) -> None:
    for without in ((), ("Ar_DocumentByDay",)):
        record = Record("A")
        for group in (1, 3, 4, 6):
            record.add(DOCS, group, at(8 + group), 600)
        made = await asked(recorded(tmp_path, record, without), "get_document_usage", **TWO)
        assert [one["name"] for one in made["usage"]] == ["report.docx"]


async def test_a_period_tells_its_days(desk: Desk) -> None:
    made = await asked(desk, "get_period_summary", startDate="2025-01-13", endDate="2025-01-20")
    days = {one["date"]: one["totalActiveMinutes"] for one in made["days"]}
    assert list(days) == [f"2025-01-{number}" for number in range(13, 18)]  # the weekend has no data
    aggregate = made["aggregate"]
    assert aggregate["busiestDay"] == max(days, key=lambda day: days[day])
    assert aggregate["quietestDay"] == min(days, key=lambda day: days[day])
    assert aggregate["avgDailyMinutes"] == pytest.approx(sum(days.values()) / 5, abs=0.1)
    week = {one["dayOfWeek"]: one["totalMinutes"] for one in made["patterns"]["dayOfWeekDistribution"]}
    assert week == dict(zip(range(1, 6), days.values(), strict=True))
    assert made["days"][0]["firstActivityTime"] == "2025-01-13T08:10:00"


async def test_tags_keep_their_commas(tmp_path: Path) -> None:
    record = Record("A")
    record.add(TAGS, None, at(8), 3600, title="Client, Smith, Jones", list_id=2)
    record.add(TAGS, None, at(10), 3600, title="Client, Project")
    made = await asked(recorded(tmp_path, record), "get_tags", **TWO)
    assert [one["tags"] for one in made["activities"]] == [["Client", "Smith, Jones"], ["Client", "Project"]]


async def test_the_computers_state_is_known_by_its_key(desk: Desk) -> None:
    made = await asked(desk, "get_computer_usage", startDate="2025-01-13", endDate="2025-01-18")
    states = {(one["name"], one["state"]) for one in made["activities"]}
    assert states == {("Aktiv", "active"), ("Abwesend", "away"), ("Sitzung gesperrt", "locked")}


async def test_a_tag_of_an_activity_is_not_given_to_another_of_its_number(tmp_path: Path) -> None:
    record = Record("B")
    record.add(APPS, 1, at(8), 600, tags=("coding",))
    record.add(APPS, 3, at(9), 600)
    desk = recorded(tmp_path, record)
    made = await asked(desk, "get_activities", timelineId=APPS, **TWO)
    assert [one.get("tags") for one in made["activities"]] == [["coding"], None]
    with sqlite3.connect(desk.source.place.database) as sql:  # as in a database that numbers each timeline anew
        sql.execute("CREATE TABLE Other AS SELECT * FROM Ar_Activity")
        sql.execute("DROP TABLE Ar_Activity")
        sql.execute("ALTER TABLE Other RENAME TO Ar_Activity")
    sql.close()
    made = await asked(desk, "get_activities", timelineId=APPS, **TWO)
    assert [one.get("tags") for one in made["activities"]] == [None, None]
    assert made["diagnostics"]["reasonCode"] == "NoTags"


@pytest.mark.parametrize("limit", [0, -1, -(2**70)])
@pytest.mark.parametrize("tool", ["get_computer_usage", "get_application_usage", "get_website_usage"])
async def test_no_limit_lifts_the_cap(desk: Desk, tool: str, limit: int) -> None:
    assert await refused(desk, tool, **TWO, limit=limit) == "limit_out_of_range"
    assert await asked(desk, tool, **TWO, limit=2**70)
