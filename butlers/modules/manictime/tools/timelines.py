"""The tools that list: timelines, activities, when the computer was in use, tags."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from butlers.modules.manictime import narrative, queries, usage
from butlers.modules.manictime.answers import (
    BLOCKS,
    TEXT,
    WHOLE,
    Given,
    Param,
    Told,
    diagnostics,
    truncation,
)
from butlers.modules.manictime.days import Range, range_of
from butlers.modules.manictime.pictures import Pictures
from butlers.modules.manictime.queries import Activity
from butlers.modules.manictime.source import Snapshot, no_timeline

MOST_TIMELINES: Final = 200


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: the database, the arguments, the time zone of the recorded clock, and the screenshots."""

    snapshot: Snapshot
    given: Given
    zone: ZoneInfo | None
    pictures: Pictures

    def range(self, most_days: int | None = None) -> Range:
        """Return the range that is asked for."""
        return range_of(self.given.get("startDate"), self.given.get("endDate"), self.zone, most_days)

    def used(self, kind: str, asked: Range, size: int) -> tuple[list[usage.Used], bool]:
        """Return what was used in the range, and whether it had to be computed from single rows."""
        return usage.used(self.snapshot, kind, asked, size, self.zone)


def as_given(given: Given) -> dict[str, object]:
    """Return both bounds as they were asked for."""
    return {"startDate": given.get("startDate"), "endDate": given.get("endDate")}


def timelines_of(snapshot: Snapshot) -> list[dict[str, object]]:
    """Return the timelines as they are told."""
    found = snapshot.timelines()[:MOST_TIMELINES]
    return [{"reportId": number, "schemaName": name, "baseSchemaName": base} for number, name, base in found]


def get_timelines(ask: Ask) -> dict[str, object]:
    """List the timelines."""
    listed = timelines_of(ask.snapshot)
    return {
        "count": len(listed),
        "timelines": listed,
        "truncation": truncation(len(listed), len(ask.snapshot.timelines())),
        "diagnostics": diagnostics(),
    }


def get_activities(ask: Ask) -> dict[str, object]:
    """List the rows of one timeline."""
    number, asked = ask.given.count("timelineId"), ask.range()
    if number not in {one[0] for one in ask.snapshot.timelines()}:
        raise no_timeline(number)
    schema = ask.snapshot.schema
    reason = None if schema.has("v_commons") else "NoCommonGroup"
    listed = _rows(ask, json.dumps([number]), asked, grouped=ask.given.flag("includeGroupDetails"))
    if reason is None and not schema.has_tags:
        reason = "NoTags"
    return {"timelineId": number, **as_given(ask.given), **listed, "diagnostics": diagnostics(reason)}


def _rows(ask: Ask, reports: str, asked: Range, *, grouped: bool) -> dict[str, object]:
    """Return rows as they are answered, one more than the limit being looked for."""
    limit = ask.given.count("limit")
    rows = ask.snapshot.activities(reports, asked, limit=limit + 1)
    tags = tags_by_row(ask.snapshot, reports, asked, rows)
    listed = [_row(row, tags[row.report_id, row.activity_id], grouped=grouped) for row in rows[:limit]]
    total = len(rows) if len(rows) <= limit else None
    block = truncation(len(listed), total, truncated=len(rows) > limit)
    return {"count": len(listed), "activities": listed, "truncation": block}


def _row(row: Activity, tags: frozenset[str], *, grouped: bool) -> dict[str, object]:
    made: dict[str, object] = {
        "activityId": row.activity_id,
        "reportId": row.report_id,
        "startLocalTime": row.started_text,
        "endLocalTime": row.ended_text,
        "name": row.title,
        "groupId": row.group_id,
        "tags": sorted(tags) or None,
    }
    if grouped:
        made |= {
            "groupName": row.group_name,
            "groupColor": usage.color_of(row.group_color),
            "groupKey": row.group_key,
            "commonGroupName": row.common_name,
        }
    return made


def tags_by_row(
    snapshot: Snapshot, reports: str, asked: Range, rows: Sequence[Activity]
) -> dict[tuple[int, int], frozenset[str]]:
    """Return the tags that ManicTime gave to these rows, by timeline and number; of each, perhaps none."""
    named: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    if snapshot.schema.tags_by_activity and rows:
        for report, number, name in snapshot.rows(queries.ACTIVITY_TAGS, reports=reports, **asked.texts):
            named[int(str(report)), int(str(number))].add(str(name))
    if any(row.list_id is not None for row in rows):
        lists: defaultdict[tuple[object, object], set[str]] = defaultdict(set)
        for report, number, name in snapshot.rows(queries.LIST_TAGS, reports=reports):
            lists[report, number].add(str(name))
        for row in rows:
            named[row.report_id, row.activity_id] |= lists[row.report_id, row.list_id]
    return defaultdict(frozenset, {key: frozenset(some) for key, some in named.items()})


def tag_rows(snapshot: Snapshot, asked: Range, limit: int) -> list[tuple[Activity, frozenset[str]]]:
    """Return the rows of the timeline of tags: tags of their list, else their name's parts between commas."""
    reports = snapshot.reports(usage.TAGS)
    rows = snapshot.activities(reports, asked, limit=limit)
    listed = tags_by_row(snapshot, reports, asked, rows)
    return [(row, listed[row.report_id, row.activity_id] or _parts(row.title)) for row in rows]


def _parts(title: str | None) -> frozenset[str]:
    return frozenset(part.strip() for part in (title or "").split(",") if part.strip())


def _timeline(ask: Ask, schema: str) -> tuple[dict[str, object], list[Activity], list[dict[str, object]]]:
    asked, limit = ask.range(), ask.given.count("limit")
    reports = ask.snapshot.reports(schema)
    rows = ask.snapshot.activities(reports, asked, limit=limit + 1)
    listed = [_row(row, frozenset(), grouped=False) for row in rows[:limit]]
    block = truncation(len(listed), len(rows) if len(rows) <= limit else None, truncated=len(rows) > limit)
    reason = "NoTimeline" if reports == "[]" else None
    head = {"schemaName": schema, **as_given(ask.given), "count": len(listed)}
    return head | {"truncation": block, "diagnostics": diagnostics(reason)}, rows[:limit], listed


def get_computer_usage(ask: Ask) -> dict[str, object]:
    """List when the computer was in use, locked or off."""
    head, rows, listed = _timeline(ask, usage.COMPUTER_USAGE)
    for row, made in zip(rows, listed, strict=True):
        made["state"] = narrative.state_of(row)
    return {**head, "activities": listed}


def get_tags(ask: Ask) -> dict[str, object]:
    """List the tags, each with its names."""
    head, rows, listed = _timeline(ask, usage.TAGS)
    tagged = tag_rows(ask.snapshot, ask.range(), len(rows))
    named = {(row.report_id, row.activity_id): tags for row, tags in tagged}
    for row, made in zip(rows, listed, strict=True):
        made["tags"] = sorted(named[row.report_id, row.activity_id]) or None
    return {**head, "activities": listed}


START: Final = Param(
    "startDate", "string", "Date, or moment, that it begins with (ISO-8601, inclusive).", required=True
)
END: Final = Param("endDate", "string", "Date, or moment, before which it ends (ISO-8601, exclusive).", required=True)


def limit_of(default: int, most: int) -> Param:
    """Return the argument by which a list is bounded."""
    return Param("limit", "integer", "How many to list.", default=default, most=most)


_BARE: Final = {
    "activityId": WHOLE,
    "reportId": WHOLE,
    "startLocalTime": TEXT,
    "endLocalTime": TEXT,
    "name?": TEXT,
    "groupId?": WHOLE,
    "tags?": [TEXT],
}
RANGE: Final = {"startDate": TEXT, "endDate": TEXT, "count": WHOLE}
Answering: TypeAlias = tuple[Told, Callable[[Ask], dict[str, object]]]
LISTS: Final[Sequence[Answering]] = (
    (
        Told(
            "get_timelines",
            "List ManicTime's timelines.",
            (),
            {"count": WHOLE, "timelines": [{"reportId": WHOLE, "schemaName": TEXT, "baseSchemaName": TEXT}], **BLOCKS},
        ),
        get_timelines,
    ),
    (
        Told(
            "get_activities",
            "List single activities of one timeline; for what was done, get_activity_narrative says more in less.",
            (
                Param("timelineId", "integer", "The reportId of a timeline of get_timelines.", required=True),
                START,
                END,
                limit_of(1000, 5000),
                Param("includeGroupDetails", "boolean", "Add names, colors and keys of groups.", default=True),
            ),
            {
                "timelineId": WHOLE,
                **RANGE,
                "activities": [
                    {**_BARE, "groupName?": TEXT, "groupColor?": TEXT, "groupKey?": TEXT, "commonGroupName?": TEXT},
                ],
                **BLOCKS,
            },
        ),
        get_activities,
    ),
    (
        Told(
            "get_computer_usage",
            "List when the computer was active, away, locked or off.",
            (START, END, limit_of(1000, 5000)),
            {"schemaName": TEXT, **RANGE, "activities": [{**_BARE, "state?": TEXT}], **BLOCKS},
        ),
        get_computer_usage,
    ),
    (
        Told(
            "get_tags",
            "List the tags that the owner gave to their time.",
            (START, END, limit_of(1000, 5000)),
            {"schemaName": TEXT, **RANGE, "activities": [_BARE], **BLOCKS},
        ),
        get_tags,
    ),
)
