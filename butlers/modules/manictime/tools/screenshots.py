"""The tools of screenshots: listing without a picture, showing, cutting and saving."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from zoneinfo import ZoneInfo

from mcp_types import Annotations, ImageContent, ResourceLink

from butlers.butler import Result
from butlers.modules.manictime import queries, usage
from butlers.modules.manictime.answers import (
    BLOCKS,
    FLAG,
    NUMBER,
    TEXT,
    WHOLE,
    Given,
    Param,
    Told,
    diagnostics,
    truncation,
)
from butlers.modules.manictime.days import Range, clock_text, range_of
from butlers.modules.manictime.pictures import (
    Box,
    Capture,
    FileUnavailable,
    Pictures,
    at_changes,
    cut,
    demand_whole,
    spread,
)
from butlers.modules.manictime.source import NoData, Snapshot, Source, in_thread
from shared.errors import InvalidInput
from shared.model import Gate

if TYPE_CHECKING:
    from PIL.Image import Image

JPEG: Final = "image/jpeg"
SCALES: Final = {"percent": 100.0, "normalized": 1.0}
# A larger picture goes as a link, so that no answer takes much memory.
MOST_INLINE: Final = 8 << 20
MOST_CHANGES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Desk:
    """What these tools work with: the pictures, the database, and where they may save."""

    source: Source
    pictures: Pictures
    zone: ZoneInfo | None
    full_image: Literal["inline", "link"]
    roots: Sequence[Path]
    # What saving needs.
    gate: Gate = "free"


def _audience(*who: Literal["user", "assistant"]) -> Annotations:
    return Annotations(audience=list(who))


def image(raw: bytes, *who: Literal["user", "assistant"]) -> ImageContent:
    """Return a JPEG for these eyes."""
    data = base64.b64encode(raw).decode()
    return ImageContent(type="image", mime_type=JPEG, data=data, annotations=_audience(*who))


def link(one: Capture) -> ResourceLink:
    """Return a link by which a client reads the picture when it wants it."""
    name = f"Screenshot {clock_text(one.local)}"
    return ResourceLink(type="resource_link", name=name, uri=one.uri, mime_type=JPEG, annotations=_audience("user"))


def described(one: Capture) -> dict[str, object]:
    """Return what is said of a screenshot beside its picture."""
    return {
        "screenshotRef": one.ref,
        "timestamp": one.timestamp,
        "width": one.width,
        "height": one.height,
        "monitor": one.monitor,
    }


async def list_screenshots(desk: Desk, given: Given) -> Result:
    """List screenshots, without a byte of them."""
    asked = range_of(given.get("startDate"), given.get("endDate"), desk.zone)
    found = await in_thread(desk.pictures.captures, asked)
    sampling, changes, reason = given.text("samplingStrategy"), list[int](), None
    if sampling == "activity_transition" and found:
        try:
            changes = await desk.source.read(lambda snapshot: _changes(snapshot, asked))
        except NoData:
            reason = "NoActivities"
    if not found:
        reason = await in_thread(desk.pictures.why_none, asked)
    return await in_thread(_listed, desk, given.count("maxCount"), asked, found, (sampling, changes, reason))


def _listed(
    desk: Desk, most: int, asked: Range, found: list[Capture], how: tuple[str, list[int], str | None]
) -> Result:
    """Return the captures that stand for all that were found, where the application changed or evenly."""
    sampling, changes, reason = how
    at = at_changes(found, changes)
    chosen = spread(at or found, asked, most)
    if found and not at:
        sampling = "interval"
    listed = [
        {
            **described(one),
            "displayLocalTime": clock_text(one.local),
            "hasThumbnail": one.thumbnail is not None,
            "resourceUri": one.uri,
        }
        for one in chosen
    ]
    desk.pictures.remember(chosen)
    cut_short = len(chosen) < len(at or found)
    block = {**truncation(len(chosen), truncated=cut_short), "totalAvailable": len(found)}
    answer = {"screenshots": listed, "sampling": sampling, "truncation": block, "diagnostics": diagnostics(reason)}
    return Result(answer, [link(one) for one in chosen])


def _changes(snapshot: Snapshot, asked: Range) -> list[int]:
    """Return the local moments at which another application came to the front; another window of it is no change."""
    made = list[int]()
    for number, _, _ in snapshot.timelines(usage.APPLICATIONS):
        given = {"report": number, "limit": MOST_CHANGES, **asked.texts}
        before: object = ()
        for moment, what in snapshot.connection.execute(queries.FRONTS, given):
            if what != before:
                made.append(moment)
            before = what
    return sorted(made)


async def get_screenshot(desk: Desk, given: Given) -> Result:
    """Show a screenshot: the thumbnail for the model, the whole for the person."""
    return await in_thread(_shown, desk, given.get("screenshotRef"))


def _shown(desk: Desk, ref: object) -> Result:
    one = desk.pictures.find(ref)
    thumbnail, full = (_whole(desk.pictures, one, name) for name in (one.thumbnail, one.full))
    if thumbnail is None and full is None:
        raise FileUnavailable("Screenshot file not found or inaccessible.", "Use list_screenshots to find another.")
    said = {**described(one), "isThumbnail": thumbnail is not None}
    if thumbnail is None or full is None:
        return Result(said, [image(thumbnail or full or b"", "user", "assistant")])
    as_link = desk.full_image == "link" or len(full) > MOST_INLINE
    return Result(said, [image(thumbnail, "user", "assistant"), link(one) if as_link else image(full, "user")])


def _whole(pictures: Pictures, one: Capture, name: str | None) -> bytes | None:
    """Return a picture's bytes, if it can be shown to its end."""
    try:
        raw, _ = pictures.opened(one, name)
        demand_whole(raw)
    except FileUnavailable:
        return None
    return raw


def full_picture(pictures: Pictures, one: Capture) -> "tuple[bytes, Image]":
    """Return the full picture, or the thumbnail if that is all there is."""
    return pictures.opened(one, one.full or one.thumbnail)


async def crop_screenshot(desk: Desk, given: Given) -> Result:
    """Show a part of a screenshot in full resolution."""
    box = box_of(given, ("x", "y", "width", "height"))

    def work() -> Result:
        one = desk.pictures.find(given.get("screenshotRef"))
        _, picture = full_picture(desk.pictures, one)
        left, top, right, bottom = box.pixels(picture.width, picture.height)
        crop = {name: given.get(name) for name in ("x", "y", "width", "height")} | {
            "units": given.text("coordinateUnits")
        }
        rect = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        said = {"screenshotRef": one.ref, "crop": crop, "pixelRect": rect}
        return Result(said, [image(cut(picture, box, "JPEG"), "user", "assistant")])

    return await in_thread(work)


def box_of(given: Given, names: Sequence[str]) -> Box:
    """Return the box of these arguments, clamped to the picture; raise InvalidInput if it is none."""
    scale = SCALES[given.text("coordinateUnits")]
    x, y, width, height = (given.number(name) / scale for name in names)
    if not all(map(math.isfinite, (x, y, width, height))) or width <= 0 or height <= 0:
        raise InvalidInput(
            "The box is none: each of its numbers is finite, width and height are above 0.",
            "Use percent from 0 to 100, or fractions from 0 to 1.",
            code="invalid_coordinates",
        )
    return Box(*(min(1.0, max(0.0, one)) for one in (x, y, x + width, y + height)))


REF: Final = Param("screenshotRef", "string", "A screenshotRef of list_screenshots.", required=True)
UNITS: Final = Param(
    "coordinateUnits", "string", "What the numbers are.", default="percent", choices=("percent", "normalized")
)


def place(name: str, says: str, *, required: bool = True) -> Param:
    """Return an argument that is a place or a length in the picture."""
    return Param(name, "number", says, required=required)


_SHOT: Final = {"screenshotRef": TEXT, "timestamp": TEXT, "width": WHOLE, "height": WHOLE, "monitor": WHOLE}
LIST: Final = Told(
    "list_screenshots",
    "List screenshots of a time, without pictures. The first step to any screenshot.",
    (
        Param("startDate", "string", "Date or moment that it begins with (ISO-8601, inclusive).", required=True),
        Param("endDate", "string", "Date or moment before which it ends (ISO-8601, exclusive).", required=True),
        Param("maxCount", "integer", "How many to list.", default=20, most=100),
        Param(
            "samplingStrategy",
            "string",
            "Where the application changed, or evenly.",
            default="activity_transition",
            choices=("activity_transition", "interval"),
        ),
    ),
    {
        "screenshots": [{**_SHOT, "displayLocalTime": TEXT, "hasThumbnail": FLAG, "resourceUri": TEXT}],
        "sampling": TEXT,
        **BLOCKS,
    },
)
GET: Final = Told(
    "get_screenshot",
    "Show a screenshot: a thumbnail for you, the full picture for the user.",
    (REF,),
    {**_SHOT, "isThumbnail": FLAG},
)
CROP: Final = Told(
    "crop_screenshot",
    "Show a part of a screenshot in full resolution; find the part in the thumbnail.",
    (
        REF,
        place("x", "Left edge."),
        place("y", "Top edge."),
        place("width", "Width."),
        place("height", "Height."),
        UNITS,
    ),
    {
        "screenshotRef": TEXT,
        "crop": {"x": NUMBER, "y": NUMBER, "width": NUMBER, "height": NUMBER, "units": TEXT},
        "pixelRect": {"x": WHOLE, "y": WHOLE, "width": WHOLE, "height": WHOLE},
    },
)
