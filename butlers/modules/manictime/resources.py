"""What a client may read of the timekeeper: configuration, health, guide, and the pictures themselves."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from butlers.butler import Resource, ToolCall
from butlers.modules.manictime import queries
from butlers.modules.manictime.answers import HINTS, as_json, diagnostics, error_json
from butlers.modules.manictime.source import Location, Schema, Snapshot, capability_views, in_thread
from butlers.modules.manictime.tools.screenshots import Desk, described
from butlers.modules.manictime.tools.timelines import timelines_of
from shared.errors import ButlersError

JSON: Final = "application/json"
TESTED_VERSION: Final = "2025.3.5.0"
GUIDE: Final = Path(__file__).parent / "guide.md"
CHECK_SECONDS: Final = 2.0
# What the health resource says of each issue: how grave, what is wrong, what to do.
ISSUES: Final = {
    "DataDirectoryUnresolved": (
        "fatal",
        "The folder of ManicTime's data is not known.",
        "Set `data` or MANICTIME_DATA_DIR.",
    ),
    "DatabaseNotFound": ("fatal", "There is no ManicTimeReports.db.", "Start ManicTime, or correct `data`."),
    "SchemaValidationFailed": (
        "fatal",
        "The database has none of the known forms.",
        "Wait for ManicTime, or update it.",
    ),
    "DatabaseUnreadable": ("fatal", "The database cannot be read now.", "Try again; then check who may read the file."),
    "DatabaseIntegrityCheckFailed": ("warning", "SQLite finds the database damaged.", "Repair it in ManicTime."),
    "ManicTimeProcessNotRunning": ("warning", "ManicTime does not run here.", "Start it, unless the data is a copy."),
    "ScreenshotDirectoryAbsent": ("warning", "There is no folder of screenshots.", HINTS["ScreenshotsCaptureDisabled"]),
    "ScreenshotDirectoryEmpty": ("warning", "The folder of screenshots is empty.", HINTS["ScreenshotsRetention"]),
    "SupplementalTableMissing": ("warning", "A table is missing: {}.", "Answers are computed without it."),
    "SupplementalColumnMissing": ("warning", "A table has other columns: {}.", "Answers are computed without it."),
    "ManicTimeVersionUntested": ("warning", "This version of ManicTime was not tested.", "Compare a few answers."),
}
OF_ERROR: Final = {
    "directory_unresolved": "DataDirectoryUnresolved",
    "database_missing": "DatabaseNotFound",
    "schema_incompatible": "SchemaValidationFailed",
}
SHOTS: Final = {
    "ScreenshotDirectoryAbsent": {"status": "unavailable", "reason": "capture_disabled"},
    "ScreenshotDirectoryEmpty": {"status": "unavailable", "reason": "retention"},
    None: {"status": "available", "reason": "none"},
}


def issue(code: str, about: str = "") -> dict[str, object]:
    """Return an issue as the health resource tells it."""
    severity, message, remedy = ISSUES[code]
    return {"code": code, "severity": severity, "message": message.format(about), "remediation": remedy}


def environments(snapshot: Snapshot) -> list[dict[str, object]]:
    """Return the computers, and what runs on them."""
    names = ("deviceName", "osVersion", "manicTimeVersion", "dotNetVersion")
    return [dict(zip(names, row, strict=True)) for row in snapshot.rows(queries.ENVIRONMENTS)]


def computers(snapshot: Snapshot) -> dict[str, object]:
    """Return the computers, or that there is no table of them."""
    reason = None if snapshot.schema.has("v_environments") else "NoEnvironment"
    return {"environments": environments(snapshot), "diagnostics": diagnostics(reason)}


def data_range(snapshot: Snapshot) -> dict[str, object]:
    """Return from when to when there is data, by timeline."""
    names = ("reportId", "startLocalTime", "endLocalTime", "activeStartLocalTime", "activeEndLocalTime")
    sql = queries.SUMMARIES if snapshot.schema.has("v_summaries") else queries.BOUNDS
    return {"timelineSummaries": [dict(zip(names, row, strict=True)) for row in snapshot.rows(sql)]}


def capabilities(schema: Schema) -> list[dict[str, object]]:
    """Return what the database can tell by its own sums and names, and what is computed in their place."""
    found = {str(view.capability): schema.has(view.name) for view in capability_views()}
    found["HourlyUsage"] = "v_websites" in schema.hourly and schema.has("v_commons")
    found["Tags"] = schema.has_tags
    return [{"name": name, "available": there, "fallbackActive": not there} for name, there in found.items()]


def _looked(snapshot: Snapshot) -> tuple[Schema, list[dict[str, object]]]:
    return snapshot.schema, environments(snapshot)


def _is_sound(snapshot: Snapshot) -> bool:
    return next(snapshot.rows(queries.QUICK_CHECK))[0] == "ok"


def process_number(where: Path = Path("/proc")) -> tuple[bool, int | None]:
    """Return whether it can be told if ManicTime runs here, and its process if it does."""
    if not where.is_dir() or sys.platform == "win32":
        return False, None
    for one in where.iterdir():
        try:
            if one.name.isdigit() and (one / "comm").read_text().lower().startswith("manictime"):
                return True, int(one.name)
        except OSError:
            continue  # it has ended meanwhile
    return True, None


def health(desk: Desk) -> dict[str, object]:
    """Return how everything is that the tools stand on."""
    place, issues = desk.source.place, list[dict[str, object]]()
    schema, versions, status = None, list[dict[str, object]](), "notChecked"
    try:
        schema, versions = desk.source.read_here(_looked)
        lacking = _lacking(schema)
        status = "validWithWarnings" if lacking else "valid"
        issues += [issue(code, table) for code, table in lacking]
        if not desk.source.read_here(_is_sound, CHECK_SECONDS):
            issues.append(issue("DatabaseIntegrityCheckFailed"))
    except ButlersError as failed:
        if schema is None:
            issues.append(issue(OF_ERROR.get(failed.code, "DatabaseUnreadable")))
            status = "invalid" if failed.code == "schema_incompatible" else "notChecked"
    known, process = process_number()
    if known and process is None:
        issues.append(issue("ManicTimeProcessNotRunning"))
    runs = next((str(one["manicTimeVersion"]) for one in versions if one["manicTimeVersion"]), None)
    if runs is not None and runs != TESTED_VERSION:
        issues.append(issue("ManicTimeVersionUntested"))
    lacks = _screenshots(desk)
    issues += [issue(lacks)] if lacks else []
    fatal = any(one["severity"] == "fatal" for one in issues)
    return {
        "status": "unhealthy" if fatal else "degraded" if issues else "healthy",
        "dataDirectory": str(place.data) if place.data else None,
        "directorySource": place.found_by,
        **_file(place),
        "schemaStatus": status,
        "manicTimeProcessRunning": process is not None if known else None,
        "manicTimeProcessId": process,
        "manicTimeVersion": runs,
        "testedManicTimeVersion": TESTED_VERSION,
        "screenshots": SHOTS[lacks] | {"remediationHint": ISSUES[lacks][2] if lacks else None},
        "mcpServerVersion": version("butlers"),
        "capabilities": capabilities(schema) if schema is not None else [],
        "issues": issues,
    }


def _file(place: Location) -> dict[str, object]:
    """Return whether there is a database, and how large it is."""
    there = place.data is not None and place.database.is_file()
    return {"databaseExists": there, "databaseSizeBytes": place.database.stat().st_size if there else None}


def _lacking(schema: Schema) -> list[tuple[str, str]]:
    """Return each table that is missing; those of one form of tags are not missed where the other form is there."""
    tags = {"v_tags", "v_activity_tags", "v_list_items"} if schema.has_tags else set()
    return [why for view, why in schema.missing.items() if view not in tags]


def _screenshots(desk: Desk) -> str | None:
    """Return the issue of the screenshots, or None."""
    folder = desk.pictures.folder
    if folder is None or not folder.is_dir():
        return "ScreenshotDirectoryAbsent"
    return None if desk.pictures.captures() else "ScreenshotDirectoryEmpty"


def config(desk: Desk) -> dict[str, object]:
    """Return where the data is looked for, and how that is known."""
    place = desk.source.place
    return {
        "dataDirectory": str(place.data) if place.data else None,
        "directorySource": place.found_by,
        "screenshotDirectory": str(place.screenshots) if place.screenshots else None,
        "timezone": desk.zone.key if desk.zone else "of this computer",
    }


def resources_of(desk: Desk) -> list[Resource]:
    """Return the seven resources."""

    def fixed(name: str, says: str, work: Callable[[], str], mime: str = JSON) -> Resource:
        async def read(_: ToolCall) -> Sequence[tuple[str, str | bytes]]:
            try:
                return [(mime, await in_thread(work))]
            except ButlersError as refused:
                return [(JSON, error_json(refused))]

        return Resource(f"manictime://{name}", name, says, mime, read)

    def of_data(work: Callable[[Snapshot], object]) -> Callable[[], str]:
        return lambda: as_json(desk.source.read_here(work))

    return [
        fixed("config", "Where the data is looked for.", lambda: as_json(config(desk))),
        fixed("timelines", "The timelines.", of_data(timelines_of)),
        fixed("health", "Whether everything works, what is missing, and what to do.", lambda: as_json(health(desk))),
        fixed("guide", "How to answer with these tools. Read it first.", GUIDE.read_text, "text/markdown"),
        fixed("environment", "The computers, and the versions of what runs on them.", of_data(computers)),
        fixed("data-range", "From when to when there is data.", of_data(data_range)),
        picture(desk),
    ]


def picture(desk: Desk) -> Resource:
    """Return the template by which a screenshot is read: the thumbnail, if there is one."""

    def work(ref: object) -> Sequence[tuple[str, str | bytes]]:
        try:
            one = desk.pictures.find(ref)
            raw, _ = desk.pictures.opened(one, one.thumbnail or one.full)
        except ButlersError as refused:
            return [(JSON, error_json(refused))]
        return [("image/jpeg", raw), (JSON, as_json({**described(one), "isThumbnail": one.thumbnail is not None}))]

    async def read(call: ToolCall) -> Sequence[tuple[str, str | bytes]]:
        return await in_thread(work, call.arguments.get("screenshotRef"))

    uri, says = "manictime://screenshot/{screenshotRef}", "One screenshot of list_screenshots."
    return Resource(uri, "screenshot", says, "image/jpeg", read, audience=("user",))
