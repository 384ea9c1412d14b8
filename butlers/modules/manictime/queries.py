"""The SQL of the timekeeper, and the views by which every known form of ManicTime's tables looks alike.

Each connection makes the views as temporary ones, so that all other SQL here is one static text for every form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class View:
    """A view over one table: for each of its columns the names it may have there, the first that is there counting."""

    name: str
    table: str
    columns: Mapping[str, Sequence[str]]
    needed: frozenset[str]
    # What the tools can do by it, as the health resource names it; None for a table without which nothing works.
    capability: str | None = None


CORE: Final = (
    View(
        "v_timelines",
        "Ar_Timeline",
        {"report_id": ("ReportId",), "schema_name": ("SchemaName",), "base_name": ("BaseSchemaName",)},
        frozenset({"report_id", "schema_name", "base_name"}),
    ),
    View(
        "v_activities",
        "Ar_Activity",
        {
            "report_id": ("ReportId",),
            "activity_id": ("ActivityId",),
            "started": ("StartLocalTime",),
            "ended": ("EndLocalTime",),
            "started_utc": ("StartUtcTime",),
            "ended_utc": ("EndUtcTime",),
            "title": ("Name",),
            "group_id": ("GroupId",),
            "list_id": ("GroupListId",),
            "common_id": ("CommonGroupId", "CommonId"),
        },
        frozenset({"report_id", "activity_id", "started", "ended", "title", "group_id"}),
    ),
    View(
        "v_groups",
        "Ar_Group",
        {
            "report_id": ("ReportId",),
            "group_id": ("GroupId",),
            "name": ("Name",),
            "color": ("Color",),
            "key": ("Key",),
            "type": ("GroupType",),
            "common_id": ("CommonId", "CommonGroupId"),
        },
        frozenset({"report_id", "group_id", "name"}),
    ),
)
BUCKETS: Final = {
    "common_id": ("CommonId", "CommonGroupId"),
    # Where a table has both, its `Hour` is a number within the day.
    "bucket": ("Day", "Hour"),
    "seconds": ("TotalSeconds",),
}
SUPPLEMENTAL: Final = (
    View(
        "v_commons",
        "Ar_CommonGroup",
        {"common_id": ("CommonId", "CommonGroupId"), "name": ("Name",), "color": ("Color",), "key": ("Key",)},
        frozenset({"common_id", "name"}),
        "CommonGroup",
    ),
    View("v_applications", "Ar_ApplicationByDay", BUCKETS, frozenset(BUCKETS), "PreAggregatedAppUsage"),
    View("v_websites", "Ar_WebSiteByDay", BUCKETS, frozenset(BUCKETS), "PreAggregatedWebUsage"),
    View("v_documents", "Ar_DocumentByDay", BUCKETS, frozenset(BUCKETS), "PreAggregatedDocUsage"),
    View("v_application_days", "Ar_ApplicationByYear", BUCKETS, frozenset(BUCKETS), "PreAggregatedDayOfWeek"),
    View(
        "v_summaries",
        "Ar_TimelineSummary",
        {
            "report_id": ("ReportId",),
            "started": ("StartLocalTime",),
            "ended": ("EndLocalTime",),
            "active_started": ("ActiveStartLocalTime",),
            "active_ended": ("ActiveEndLocalTime",),
        },
        frozenset({"report_id", "started", "ended"}),
        "TimelineSummary",
    ),
    View(
        "v_environments",
        "Ar_Environment",
        {
            "device": ("DeviceName",),
            "os": ("OsVersion", "OSVersion", "OperatingSystem", "Os"),
            "manictime": ("ManicTimeVersion", "AppVersion", "Version"),
            "dotnet": ("RuntimeVersion", "DotNetVersion", "FrameworkVersion", "NetVersion"),
        },
        frozenset({"device"}),
        "Environment",
    ),
    View(
        "v_list_items",
        "Ar_GroupListItem",
        {"report_id": ("ReportId",), "list_id": ("GroupListId",), "group_id": ("GroupId",)},
        frozenset({"report_id", "list_id", "group_id"}),
    ),
    View("v_tags", "Ar_Tag", {"tag_id": ("TagId",), "name": ("Name",)}, frozenset({"tag_id", "name"})),
    View(
        "v_activity_tags",
        "Ar_ActivityTag",
        {"report_id": ("ReportId",), "activity_id": ("ActivityId",), "tag_id": ("TagId",)},
        frozenset({"activity_id", "tag_id"}),
    ),
)
VIEWS: Final = (*CORE, *SUPPLEMENTAL)


def view_over(view: View, there: frozenset[str]) -> str:
    """Return the SQL that makes the view over these columns; over a table that lacks what it needs, an empty one."""
    chosen = {alias: next((one for one in names if one in there), "NULL") for alias, names in view.columns.items()}
    if any(chosen[alias] == "NULL" for alias in view.needed):
        columns = ", ".join(f"NULL AS {alias}" for alias in chosen)
        return f"CREATE TEMP VIEW {view.name} AS SELECT {columns} WHERE 0"
    columns = ", ".join(f"{column} AS {alias}" for alias, column in chosen.items())
    return f"CREATE TEMP VIEW {view.name} AS SELECT {columns} FROM main.{view.table}"


# All columns of all tables, in one look.
COLUMNS: Final = """
SELECT m.name, c.name, c.pk FROM main.sqlite_schema m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view')
"""
SCHEMA_VERSION: Final = "PRAGMA main.schema_version"
QUICK_CHECK: Final = "PRAGMA main.quick_check(1)"
IN_MEMORY: Final = "PRAGMA temp_store = MEMORY"
TIMELINES: Final = "SELECT report_id, schema_name, base_name FROM v_timelines ORDER BY report_id"


class Activity(NamedTuple):
    """One row of a timeline, its times in seconds since 1970 as its own clock and as UTC tell them."""

    report_id: int
    activity_id: int
    started: int
    ended: int
    started_utc: int | None
    ended_utc: int | None
    started_text: str
    ended_text: str
    title: str | None
    group_id: int | None
    list_id: int | None
    group_name: str | None
    group_color: str | None
    group_key: str | None
    group_type: str | None
    common_name: str | None

    @property
    def name(self) -> str:
        """Return what a person calls it: the common group, else the group, else what the row says."""
        return self.common_name or self.group_name or self.title or "(unknown)"


# Groups are numbered anew in each timeline: both columns join.
ACTIVITIES: Final = """
SELECT a.report_id, a.activity_id, CAST(strftime('%s', a.started) AS INTEGER),
    CAST(strftime('%s', a.ended) AS INTEGER), CAST(strftime('%s', a.started_utc) AS INTEGER),
    CAST(strftime('%s', a.ended_utc) AS INTEGER), a.started, a.ended, a.title, a.group_id, a.list_id,
    g.name, coalesce(g.color, c.color), coalesce(g.key, c.key), g.type, c.name
FROM json_each(:reports) r CROSS JOIN v_activities a ON a.report_id = r.value
    LEFT JOIN v_groups g ON g.report_id = a.report_id AND g.group_id = a.group_id
    LEFT JOIN v_commons c ON c.common_id = coalesce(a.common_id, g.common_id)
WHERE a.started < :end AND a.ended > :start
    AND strftime('%s', a.started) IS NOT NULL AND strftime('%s', a.ended) IS NOT NULL
ORDER BY a.started, a.report_id, a.activity_id
LIMIT :limit
"""
# The times alone of all rows, for sums over more rows than anybody wants to see.
TIMES: Final = """
SELECT CAST(strftime('%s', a.started) AS INTEGER), CAST(strftime('%s', a.ended) AS INTEGER),
    CAST(strftime('%s', a.started_utc) AS INTEGER), CAST(strftime('%s', a.ended_utc) AS INTEGER)
FROM json_each(:reports) r CROSS JOIN v_activities a ON a.report_id = r.value
WHERE a.started < :end AND a.ended > :start
ORDER BY coalesce(a.started_utc, a.started)
"""
# Of one timeline: when each row begins, and what it is about, in the order of its index.
FRONTS: Final = """
SELECT CAST(strftime('%s', a.started) AS INTEGER), coalesce(a.group_id, a.title) FROM v_activities a
WHERE a.report_id = :report AND a.started < :end AND a.ended > :start AND strftime('%s', a.started) IS NOT NULL
ORDER BY a.started LIMIT :limit
"""
NAMED: Final = """
    LEFT JOIN v_groups g ON g.report_id = a.report_id AND g.group_id = a.group_id
    LEFT JOIN v_commons c ON c.common_id = coalesce(a.common_id, g.common_id)
"""
OF_KIND: Final = "AND (:types IS NULL OR g.type IN (SELECT value FROM json_each(:types)))"
# Rows within one hour and within the range are summed here; the others come singly, to be split.
WITHIN_HOURS: Final = f"""
SELECT substr(a.hour, 1, :width), coalesce(c.name, g.name, a.title, '(unknown)'), max(coalesce(c.color, g.color)),
    max(coalesce(c.key, g.key)), sum(a.seconds)
FROM (SELECT a.report_id, a.group_id, a.common_id, CASE WHEN a.group_id IS NULL THEN a.title END title,
        replace(substr(a.started, 1, 13), 'T', ' ') hour,
        sum(CAST(strftime('%s', coalesce(a.ended_utc, a.ended)) AS INTEGER)
            - CAST(strftime('%s', coalesce(a.started_utc, a.started)) AS INTEGER)) seconds
    FROM json_each(:reports) r CROSS JOIN v_activities a ON a.report_id = r.value
    WHERE a.started >= :start AND a.started < :end AND a.ended <= :end AND a.ended > :start
        AND substr(a.started, 1, 13) = substr(a.ended, 1, 13)
    GROUP BY 1, 2, 3, 4, 5) a {NAMED}
WHERE a.seconds > 0 {OF_KIND}
GROUP BY 1, 2
"""  # of our own constants
ACROSS_HOURS: Final = f"""
SELECT coalesce(c.name, g.name, a.title, '(unknown)'), coalesce(c.color, g.color), coalesce(c.key, g.key),
    CAST(strftime('%s', a.started) AS INTEGER), CAST(strftime('%s', a.ended) AS INTEGER),
    CAST(strftime('%s', a.started_utc) AS INTEGER), CAST(strftime('%s', a.ended_utc) AS INTEGER)
FROM json_each(:reports) r CROSS JOIN v_activities a ON a.report_id = r.value {NAMED}
WHERE a.started < :end AND a.ended > :start
    AND NOT (a.started >= :start AND a.ended <= :end AND substr(a.started, 1, 13) = substr(a.ended, 1, 13))
    AND strftime('%s', a.started) IS NOT NULL AND strftime('%s', a.ended) IS NOT NULL {OF_KIND}
"""  # of our own constants
AGGREGATED: Final = {
    view: f"""
SELECT substr(replace(u.bucket, 'T', ' '), 1, :width), coalesce(c.name, '(unknown)'), max(c.color), max(c.key),
    sum(u.seconds)
FROM {view} u LEFT JOIN v_commons c ON c.common_id = u.common_id
WHERE u.bucket >= :start AND u.bucket < :end GROUP BY 1, 2
"""  # of our own constants
    for view in ("v_applications", "v_websites", "v_documents", "v_application_days")
}
# Of one timeline: the first row that begins in a day, which its index leads to, and the one of these that ends last.
EARLIEST: Final = f"""
SELECT a.started, coalesce(c.name, g.name, a.title, '(unknown)')
FROM v_activities a {NAMED}
WHERE a.report_id = :report AND a.started >= :start AND a.started < :end AND a.ended > a.started
ORDER BY a.started LIMIT 1
"""  # of our own constants
LATEST: Final = f"""
SELECT a.ended, coalesce(c.name, g.name, a.title, '(unknown)')
FROM (SELECT max(a.ended) ended, a.title, a.report_id, a.group_id, a.common_id FROM v_activities a
    WHERE a.report_id = :report AND a.started >= :start AND a.started < :end AND a.ended <= :until
        AND a.ended > a.started) a {NAMED}
WHERE a.ended IS NOT NULL
"""  # of our own constants
# What begins before the end of a day, or of anything, and lasts beyond it.
LASTING: Final = f"""
SELECT a.started, a.ended, coalesce(c.name, g.name, a.title, '(unknown)')
FROM v_activities a {NAMED}
WHERE a.report_id = :report AND a.started >= :start AND a.started < :end AND a.ended > :end
"""  # of our own constants
LIST_TAGS: Final = """
SELECT DISTINCT i.report_id, i.list_id, g.name FROM json_each(:reports) r
    JOIN v_list_items i ON i.report_id = r.value
    JOIN v_groups g ON g.report_id = i.report_id AND g.group_id = i.group_id
"""
ACTIVITY_TAGS: Final = """
SELECT DISTINCT a.report_id, a.activity_id, t.name FROM json_each(:reports) r
    CROSS JOIN v_activities a ON a.report_id = r.value
    JOIN v_activity_tags x ON x.activity_id = a.activity_id AND coalesce(x.report_id, a.report_id) = a.report_id
    JOIN v_tags t ON t.tag_id = x.tag_id
WHERE a.started < :end AND a.ended > :start
"""
ENVIRONMENTS: Final = "SELECT device, os, manictime, dotnet FROM v_environments ORDER BY 1 LIMIT 100"
SUMMARIES: Final = "SELECT report_id, started, ended, active_started, active_ended FROM v_summaries ORDER BY 1"
BOUNDS: Final = """
SELECT t.report_id, min(a.started), max(a.ended), NULL, NULL
FROM v_timelines t LEFT JOIN v_activities a ON a.report_id = t.report_id GROUP BY 1 ORDER BY 1
"""
