"""A page of the audit in the words of `butlers audit list`, read by SELECT only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from shared.db.pool import Connection
from shared.display.visible import in_line, said
from shared.storage import changes
from shared.storage.audit_seals import Wanted, latest_lines, subject_of
from shared.storage.history import ALL, DECIDING

ON_A_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Entry:
    """One line as the page shows it; `about` is the whole id of its subject."""

    seq: str
    at: str
    event: str
    by: str
    about: str
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """One page of lines, newest first, with the filter that chose them and the link to older ones."""

    entries: tuple[Entry, ...]
    by: str
    about: str
    older: str


async def page_of(connection: Connection, wanted: Wanted) -> Log:
    """Read one page of the wanted lines."""
    found = await latest_lines(connection, wanted, ON_A_PAGE + 1)
    told = {one.seq: one.text for one in await changes.of_lines(connection, [int(line["seq"] or 0) for line in found])}
    entries = tuple(_entry(line, told.get(int(line["seq"] or 0), "")) for line in reversed(found[-ON_A_PAGE:]))
    older = {"by": wanted.actor, "about": wanted.about, "before": entries[-1].seq} if len(found) > ON_A_PAGE else {}
    link = f"/audit?{urlencode({name: value for name, value in older.items() if value})}" if older else ""
    return Log(entries, in_line(wanted.actor), in_line(wanted.about), link)


def _entry(line: Mapping[str, str | None], change: str) -> Entry:
    """Return a line in words, those of a change where it is one; what a butler writes itself is quoted as its words."""
    actor, reason = line["actor"] or "", change or line["reason"] or ""
    return Entry(
        seq=line["seq"] or "",
        at=f"{(line['at'] or '')[:19].replace('T', ' ')} UTC",
        event=in_line(line["event_type"] or ""),
        by=in_line(actor),
        about=subject_of(line),
        reason=in_line(reason) if actor in DECIDING or not reason else said(reason, ALL),
    )
