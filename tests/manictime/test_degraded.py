"""A database that is missing, locked, foreign or of another form degrades the answers, never the process."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.modules.manictime import components
from butlers.modules.manictime.fixture import Record, record_of
from butlers.modules.manictime.forms import APPS
from butlers.modules.manictime.resources import health
from butlers.modules.manictime.source import DATABASE, NoData, Source, locate
from tests.manictime.desks import TWO, asked, at, desk_over, recorded, refused

pytestmark = pytest.mark.asyncio
SUPPLEMENTAL = ("CommonGroup", "ApplicationByDay", "WebSiteByDay", "DocumentByDay", "ApplicationByYear")


def names_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 99)


Breaks = Callable[[Path], object]
BROKEN: dict[str, tuple[Breaks, str]] = {
    "missing": (lambda _: None, "database_missing"),
    "a folder": (Path.mkdir, "database_error"),
    "no database": (garbage, "database_error"),
    "empty": (Path.touch, "schema_incompatible"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_database_is_a_coded_error(tmp_path: Path, name: str) -> None:
    breaks, code = BROKEN[name]
    breaks(tmp_path / DATABASE)
    before = names_in(tmp_path)
    desk = desk_over(tmp_path)
    parts = components(desk)
    assert parts.start is not None
    await parts.start()  # stops nobody
    assert parts.remarks()[0].startswith("The timekeeper: ")
    assert await refused(desk, "get_daily_summary", date="2025-01-15") == code
    assert health(desk)["status"] == "unhealthy"
    made = await asked(desk, "list_screenshots", **TWO)
    assert made["diagnostics"]["reasonCode"] == "ScreenshotsCaptureDisabled"
    assert names_in(tmp_path) == before
    if name != "a folder":
        recorded(tmp_path, Record("A"))
        assert (await asked(desk, "get_timelines"))["count"] == 4  # seen without a restart
        assert parts.remarks() == []


async def test_nowhere_to_look_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoData) as unresolved:
        Source(locate(None, None)).read_here(lambda _: None)
    assert unresolved.value.code == "directory_unresolved"


async def test_a_writer_in_the_way_is_waited_for_and_then_told(tmp_path: Path) -> None:
    desk = recorded(tmp_path, Record("A"))
    writer = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("BEGIN EXCLUSIVE")
    assert await refused(desk, "get_timelines") == "database_busy"
    writer.close()
    assert (await asked(desk, "get_timelines"))["count"] == 4


async def test_a_live_database_is_read_beside_its_writer(tmp_path: Path) -> None:
    record = Record("A")
    record.add(APPS, 1, at(8), 600)
    desk = recorded(tmp_path, record)
    writer = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("DELETE FROM Ar_Activity")
    assert (await asked(desk, "get_activities", timelineId=APPS, **TWO))["count"] == 1
    writer.execute("COMMIT")
    assert (await asked(desk, "get_activities", timelineId=APPS, **TWO))["count"] == 0  # still in the WAL alone
    writer.close()


async def test_nothing_can_be_written(tmp_path: Path) -> None:
    desk = recorded(tmp_path, Record("A"))
    with pytest.raises(NoData, match="readonly"):
        desk.source.read_here(lambda snapshot: snapshot.connection.execute("DELETE FROM main.Ar_Activity"))


async def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    desk = recorded(tmp_path, Record("A"))
    ticks = iter(range(0, 10_000, 6))
    source = Source(desk.source.place, clock=lambda: next(ticks))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with pytest.raises(NoData, match="within 10 seconds"):
        source.read_here(lambda snapshot: list(snapshot.rows(endless)))


@pytest.mark.parametrize("table", SUPPLEMENTAL)
@pytest.mark.parametrize("lost", ["table", "column"])
async def test_without_a_summary_table_numbers_stay_and_it_is_said(tmp_path: Path, table: str, lost: str) -> None:
    days = {"startDate": "2025-01-13", "endDate": "2025-01-18"}
    tools = ("get_application_usage", "get_document_usage", "get_website_usage", "get_period_summary")
    desk = recorded(tmp_path / "whole", record_of("A", 5))
    whole = {tool: dict(await asked(desk, tool, **days)) for tool in tools}
    desk = recorded(tmp_path / "less", record_of("A", 5), [f"Ar_{table}"] if lost == "table" else ())
    if lost == "column":
        with sqlite3.connect(desk.source.place.database) as sql:
            column = "Name" if table == "CommonGroup" else "TotalSeconds"
            sql.execute(f"ALTER TABLE Ar_{table} RENAME COLUMN {column} TO Strange")
        sql.close()
    less = {tool: dict(await asked(desk, tool, **days)) for tool in tools}
    degraded = {tool for tool in tools if less[tool].pop("diagnostics")["degraded"]}
    assert not any(whole[tool].pop("diagnostics")["degraded"] for tool in tools)
    assert {tool: less[tool] for tool in tools} == whole
    touched = {
        "CommonGroup": set(tools),
        "ApplicationByDay": {"get_application_usage", "get_period_summary"},
        "WebSiteByDay": {"get_website_usage", "get_period_summary"},
        "DocumentByDay": {"get_document_usage"},
        "ApplicationByYear": set[str](),
    }
    assert degraded == touched[table]
    found = health(desk)
    code = "SupplementalTableMissing" if lost == "table" else "SupplementalColumnMissing"
    assert code in {one["code"] for one in found["issues"]}  # type: ignore[attr-defined]  # a list of issues
    assert found["schemaStatus"] == "validWithWarnings"


@pytest.mark.parametrize(
    "lost", ["Ar_Timeline", "Ar_Group", "Ar_Activity", "Ar_Activity.StartLocalTime", "Ar_Group.Name"]
)
async def test_without_the_core_it_is_no_database_of_manictimes(tmp_path: Path, lost: str) -> None:
    table, _, column = lost.partition(".")
    desk = recorded(tmp_path, Record("A"), () if column else [table])
    if column:
        with sqlite3.connect(desk.source.place.database) as sql:
            sql.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO Strange")
        sql.close()
    assert await refused(desk, "get_timelines") == "schema_incompatible"
    assert health(desk)["schemaStatus"] == "invalid"


async def test_the_three_core_tables_are_enough(tmp_path: Path) -> None:
    desk = recorded(tmp_path, record_of("C", 5))
    made = await asked(desk, "get_activities", timelineId=APPS, startDate="2025-01-13", endDate="2025-01-14")
    assert made["diagnostics"]["reasonCode"] == "NoCommonGroup"  # in the first call, before anybody asked for health
    assert {one["name"] for one in health(desk)["capabilities"] if one["available"]} == set()  # type: ignore[attr-defined]


async def test_another_form_in_its_place_is_seen(tmp_path: Path) -> None:
    desk = recorded(tmp_path, record_of("C", 1))
    assert (await asked(desk, "get_application_usage", **TWO))["diagnostics"]["degraded"]
    recorded(tmp_path, record_of("A", 1))
    assert not (await asked(desk, "get_application_usage", **TWO))["diagnostics"]["degraded"]


async def test_an_empty_record_is_no_error(tmp_path: Path) -> None:
    desk = recorded(tmp_path, Record("A"))
    for tool in ("get_activity_narrative", "get_period_summary", "get_website_usage", "get_tags"):
        assert not (await asked(desk, tool, **TWO))["truncation"]["truncated"]
    assert (await asked(desk, "get_period_summary", **TWO))["days"] == []


async def test_a_timeline_that_is_not_there_is_told(tmp_path: Path) -> None:
    desk = recorded(tmp_path, Record("A"))
    with sqlite3.connect(desk.source.place.database) as sql:
        sql.execute("DELETE FROM Ar_Timeline")
    sql.close()
    for tool in ("get_computer_usage", "get_tags", "get_application_usage", "get_activity_narrative"):
        assert (await asked(desk, tool, **TWO))["diagnostics"]["reasonCode"] == "NoTimeline"
