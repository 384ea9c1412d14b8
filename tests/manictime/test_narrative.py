"""Segments: clipped, named, merged and counted."""

import asyncio
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from butlers.butler import ToolCall
from butlers.modules.manictime import components
from butlers.modules.manictime.fixture import Record, draw_screenshots
from butlers.modules.manictime.forms import APPS, DOCS, OTHER_APPS, TAGS, URLS, USAGE
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.desks import CALLER, TWO, Said, asked, at, recorded

pytestmark = pytest.mark.asyncio


async def narrated(folder: Path, record: Record, **said: Said) -> list[dict[str, Any]]:
    return list((await asked(recorded(folder, record), "get_activity_narrative", **{**TWO, **said}))["segments"])


async def test_only_active_time_of_the_range_counts(tmp_path: Path) -> None:
    record = Record("A")
    record.add(USAGE, 1, at(8), 3600)
    record.add(USAGE, 2, at(9), 1800)
    record.add(USAGE, 1, at(9, 30), 3600)
    record.add(APPS, 1, at(7), 4 * 3600)
    desk = recorded(tmp_path, record)
    for segments in (True, False):
        day = await asked(desk, "get_daily_summary", date="2025-01-15", includeSegments=segments, maxGapMinutes=0)
        assert day["totalActiveMinutes"] == 120
        assert len(day["segments"]) == (2 if segments else 0)
    made = await asked(desk, "get_activity_narrative", startDate="2025-01-15T08:30:00", endDate="2025-01-15T10:00:00")
    assert (made["segments"][0]["start"], made["segments"][-1]["end"]) == ("2025-01-15T08:30:00", "2025-01-15T10:00:00")
    assert made["totalActiveMinutes"] == 60


async def test_gaps_and_short_segments_change_no_total(tmp_path: Path) -> None:
    record = Record("A")
    for minute in range(0, 50, 3):
        record.add(APPS, 1, at(8, minute), 100)
    desk = recorded(tmp_path, record)
    totals = {
        (await asked(desk, "get_activity_narrative", **TWO, **more))["totalActiveMinutes"]
        for more in ({}, {"maxGapMinutes": 0}, {"minDurationMinutes": 30}, {"maxSegments": 1})
    }
    assert totals == {round(17 * 100 / 60, 1)}


async def test_nothing_active_is_nothing_and_no_timeline_clips_nothing(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(8), 3600)
    desk = recorded(tmp_path, record)
    assert (await asked(desk, "get_activity_narrative", **TWO))["totalActiveMinutes"] == 60
    record.add(USAGE, 2, at(8), 3600)
    assert await narrated(tmp_path, record) == []


@pytest.mark.parametrize(("gap", "count"), [(120, 1), (126, 2)])
async def test_a_gap_of_two_minutes_is_closed_and_no_longer_one(tmp_path: Path, gap: int, count: int) -> None:
    record = Record("A")
    end = record.add(APPS, 1, at(8), 600)
    record.add(APPS, 1, end + timedelta(seconds=gap), 600)
    assert len(await narrated(tmp_path, record)) == count


@pytest.mark.parametrize(("seconds", "count"), [(20, 1), (30, 3)])
async def test_a_very_short_interruption_is_absorbed(tmp_path: Path, seconds: int, count: int) -> None:
    record = Record("A")
    end = record.add(APPS, 1, at(8), 600)
    record.add(APPS, 1, record.add(APPS, 3, end, seconds), 600)
    assert len(await narrated(tmp_path, record)) == count


async def test_morning_and_evening_are_not_one_over_a_short_one(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(8), 600)
    record.add(APPS, 3, at(12), 10)
    record.add(APPS, 1, at(18), 600)
    assert len(await narrated(tmp_path, record)) == 3


@pytest.mark.parametrize(("before", "site"), [(4, "github.com"), (5, None), (6, None)])
async def test_a_site_counts_that_ended_a_moment_before(tmp_path: Path, before: int, site: str | None) -> None:
    record = Record("A")
    record.add(DOCS, 3, at(7, 50), 600 - before)
    record.add(APPS, 2, at(8), 600)
    record.add(APPS, 3, at(8, 10, 1), 600)
    made = await narrated(tmp_path, record)
    assert [one.get("website") for one in made] == [site, None]
    assert {one.get("website") for one in await narrated(tmp_path, record, includeWebsites=False)} == {None}


@pytest.mark.parametrize(("minutes", "site"), [(29, "github.com"), (31, None)])
async def test_the_last_site_is_carried_for_half_an_hour(tmp_path: Path, minutes: int, site: str | None) -> None:
    record = Record("A")
    record.add(DOCS, 3, at(8), 600)
    end = record.add(APPS, 2, at(8), 600)
    record.add(APPS, 2, end + timedelta(minutes=minutes), 600)
    assert [one.get("website") for one in await narrated(tmp_path, record)] == ["github.com", site]


async def test_a_document_is_a_file_and_a_site_has_a_name(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 2, at(8), 600)
    record.add(DOCS, 5, at(8), 600)  # a site named by one letter
    record.add(DOCS, 6, at(8), 600)  # a chat
    record.add(APPS, 1, at(9), 600)
    record.add(DOCS, 2, at(9), 100)
    record.add(DOCS, 1, at(9, 2), 400)
    first, second = await narrated(tmp_path, record)
    assert ("document" in first, "website" in first) == (False, False)
    assert second["document"] == "file:///C:/Work/report.docx"  # the one that was open longest
    made = await asked(recorded(tmp_path, record), "get_activity_narrative", **TWO, includeSummary=True)
    assert made["topWebsites"] == []


async def test_a_site_without_a_group_is_the_host_of_its_address(tmp_path: Path) -> None:
    record = Record("B")
    record.add(APPS, 2, at(8), 600)
    record.add(URLS, None, at(8), 600, title="https://docs.example.org:8443/long/way?q=1")
    assert [one.get("website") for one in await narrated(tmp_path, record)] == ["docs.example.org"]


@pytest.mark.parametrize(("minute", "shown"), [(12, True), (13, False)])
async def test_a_screenshot_of_another_time_is_not_that_of_a_segment(tmp_path: Path, minute: int, shown: bool) -> None:  # noqa: FBT001
    record = Record("A")
    record.add(APPS, 1, at(8), 600)
    draw_screenshots(tmp_path / "Screenshots", [at(8, minute)])
    assert ["screenshotRef" in one for one in await narrated(tmp_path, record)] == [shown]


async def test_tags_of_both_kinds_are_told(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(8), 600)
    record.add(TAGS, None, at(8, 5), 600, list_id=2)
    record.add(APPS, 1, at(9), 600)
    made = await narrated(tmp_path, record)
    assert [one.get("tags") for one in made] == [["Client", "Smith, Jones"], None]


async def test_two_computers_at_once_are_one_time(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(8), 3600)
    record.add(OTHER_APPS, 2, at(8, 30), 3600)
    made = await asked(recorded(tmp_path, record), "get_activity_narrative", **TWO)
    assert made["totalActiveMinutes"] == 90
    assert {one["application"] for one in made["segments"]} == {"Visual Studio Code", "Google Chrome"}


async def test_screenshots_are_suggested_from_anywhere_in_the_day(desk: Desk) -> None:
    made = await asked(desk, "get_daily_summary", date="2025-01-21")
    suggested = made["suggestedScreenshots"]
    assert 1 < len(suggested) <= 5
    assert [one["timestamp"] for one in suggested] == sorted(one["timestamp"] for one in suggested)
    assert {one["hint"] for one in suggested} <= {"app transition", "long session"}
    near = [one for one in made["segments"] if "screenshotRef" in one]
    assert near[-1]["start"] > "2025-01-21T15"
    earlier = await asked(desk, "get_daily_summary", date="2025-01-14")
    assert "suggestedScreenshots" not in earlier  # ManicTime kept none
    assert all("screenshotRef" not in one for one in earlier["segments"])


async def test_a_day_has_its_tops_and_a_narrative_only_if_asked(desk: Desk) -> None:
    day = await asked(desk, "get_daily_summary", date="2025-01-14", includeHourlyWebBreakdown=True)
    assert day["topApplications"]
    assert day["topWebsites"]
    assert day["hourlyWebBreakdown"][0]["timeBreakdown"][0]["period"].startswith("2025-01-14T")
    made = await asked(desk, "get_activity_narrative", startDate="2025-01-14", endDate="2025-01-15")
    assert made["topApplications"] == []
    assert "topWebsites" not in made
    assert made["segments"] == day["segments"]


async def test_many_slow_calls_hold_up_nobody_else(tmp_path: Path) -> None:
    """Others of the process find a thread, and no more than two calls hold a picture at the same moment."""
    desk, over, at_once = recorded(tmp_path, Record("A")), threading.Event(), list[int]()
    busy = set[int]()

    def slow(_: Snapshot) -> None:
        busy.add(threading.get_ident())
        at_once.append(len(busy))
        over.wait(60)
        busy.discard(threading.get_ident())

    calls = [asyncio.create_task(desk.source.read(slow)) for _ in range(64)]
    try:
        async with asyncio.timeout(20):
            while len(at_once) < 2:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: "served") == "served"
    finally:
        over.set()
        await asyncio.gather(*calls)
    assert (len(at_once), max(at_once)) == (64, 2)


async def test_the_event_loop_does_nothing_of_it(tmp_path: Path) -> None:
    """While it reads and counts, others are served: its work is done in threads, but for a small part."""
    record = Record("A")
    for number in range(2000):
        record.add(APPS, 1 + number % 3, at(8) + timedelta(seconds=10 * number), 9)
    desk = recorded(tmp_path, record)
    tool = next(one for one in components(desk).tools if one.name == "get_activity_narrative")
    await tool.handler(ToolCall(CALLER, TWO))
    loop, whole = time.thread_time(), time.process_time()
    made = await tool.handler(ToolCall(CALLER, {**TWO, "maxSegments": 2000}))
    loop, whole = time.thread_time() - loop, time.process_time() - whole
    assert made.answer is not None
    assert loop < whole / 5, (loop, whole)
