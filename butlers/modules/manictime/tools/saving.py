"""The tool that saves a screenshot: the one thing the timekeeper writes.

INVARIANT: a file is written only below a folder that the client declares or the owner configured, links resolved, and
nothing that is there is written over.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from mcp_types import ListRootsRequest, ListRootsResult

from butlers.butler import Result, ToolCall
from butlers.modules.manictime.answers import TEXT, WHOLE, Given, Param, Told
from butlers.modules.manictime.days import clock_text
from butlers.modules.manictime.pictures import Box, Capture, cut, demand_whole
from butlers.modules.manictime.source import in_thread
from butlers.modules.manictime.tools.screenshots import REF, UNITS, Desk, box_of, full_picture, place
from shared.errors import Forbidden, InvalidInput, Unavailable

SUFFIXES: Final = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}
MOST_SAME_NAMES: Final = 1000


async def save_screenshot(desk: Desk, given: Given, call: ToolCall) -> Result:
    """Write a screenshot, or a part of one, into a folder that the client or the owner opened for it."""
    if "roots" in call.offers and "roots" not in call.inputs:
        return Result(asks={"roots": ListRootsRequest()})
    names = ("cropX", "cropY", "cropWidth", "cropHeight")
    parts = [given.get(name) for name in names]
    if any(part is not None for part in parts) and None in parts:
        raise InvalidInput(
            "A crop needs cropX, cropY, cropWidth and cropHeight.", "Give all four or none.", code="invalid_coordinates"
        )
    box = box_of(given, names) if None not in parts else None
    roots = allowed(call, desk.roots)
    return await in_thread(_saved, desk, given, box, roots)


def would_save(desk: Desk, arguments: Mapping[str, object]) -> str:
    """Return what a call would do, for the owner who is asked for a yes; raise what the call would be refused for.

    Whoever runs it then has no client: of the folders only the configured ones count.
    """
    given = Given(SAVE.params, arguments)
    ref, path = given.text("screenshotRef"), str(given.get("outputPath") or "")
    known = desk.pictures.known(ref)
    if not desk.roots:
        raise _nowhere()
    what = f"of {clock_text(known.local)}" if known else ref
    part = "a part of " if given.get("cropWidth") is not None else ""
    return f"Save {part}the screenshot {what} {f'as {path}' if path.strip() else 'by its time'}."


def allowed(call: ToolCall, configured: Sequence[Path]) -> list[Path]:
    """Return the folders that may be written into: the client's, within the configured ones if there are any."""
    said = call.inputs.get("roots")
    theirs = (
        [path for root in said.roots if (path := _folder_of(str(root.uri)))]
        if isinstance(said, ListRootsResult)
        else []
    )
    ours = [path.expanduser().resolve() for path in configured]
    if "roots" not in call.offers:
        found = ours
    elif not ours:
        found = theirs
    else:
        found = [one for one in theirs if any(one.is_relative_to(our) for our in ours)]
        found += [our for our in ours if any(our.is_relative_to(one) and our != one for one in theirs)]
    if not found:
        raise _nowhere()
    return found


def _nowhere() -> Unavailable:
    return Unavailable(
        "No folder is open for saving.",
        "Declare an MCP root in the client, or name one in `roots` of butler.toml.",
        code="roots_unavailable",
    )


def _folder_of(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path)).resolve()


def _saved(desk: Desk, given: Given, box: Box | None, roots: Sequence[Path]) -> Result:
    one = desk.pictures.find(given.get("screenshotRef"))
    path = aimed(given.get("outputPath"), one, roots)
    raw, picture = full_picture(desk.pictures, one)
    kind = SUFFIXES[path.suffix.lower()]
    if box is not None or kind != "JPEG":
        raw = cut(picture, box, kind)
    else:
        demand_whole(raw)
    return Result(write_beside(path, raw, roots))


def aimed(said: object, one: Capture, roots: Sequence[Path]) -> Path:
    """Return the path that is meant, links resolved; raise if it lies outside of every root."""
    text = str(said or "").strip() or f"screenshot-{clock_text(one.local).replace(' ', '-').replace(':', '')}"
    suffix = Path(text).suffix.lower()
    if suffix and suffix not in SUFFIXES:
        raise InvalidInput(
            "A screenshot is saved as .jpg, .jpeg or .png.", "Choose one of these.", code="extension_not_allowed"
        )
    text = text if suffix else f"{text}.jpg"
    for root in roots:
        try:
            path = (root / text).resolve()
        except (OSError, ValueError, RuntimeError):
            break  # a name that no file can have, or links in a circle
        if path.is_relative_to(root) and path != root:
            return path
    raise Forbidden(
        "Output path lies outside of the folders that are open for saving.",
        f"Use a path relative to {', '.join(map(str, roots))}.",
        code="path_outside_roots",
    )


def write_beside(path: Path, raw: bytes, roots: Sequence[Path]) -> Mapping[str, object]:
    """Write a file at this path, or with a number behind its name; what holds the same bytes is left as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.parent.resolve(strict=True)
        if not any(folder.is_relative_to(root) for root in roots):
            raise Forbidden("Output path lies outside of the folders.", "Try again.", code="path_outside_roots")
        for number in range(MOST_SAME_NAMES):
            target = folder / (f"{path.stem}-{number}{path.suffix}" if number else path.name)
            if _wrote(target, raw) or _holds(target, raw):
                return {"path": str(target), "size": len(raw)}
    except OSError:
        pass
    raise Unavailable(
        "Failed to save screenshot.", "The path may be invalid or inaccessible; try another.", code="save_failed"
    )


def _wrote(target: Path, raw: bytes) -> bool:
    """Write the file whole; return False if there is one already, or a link."""
    try:
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(raw)
    except OSError:
        target.unlink()
        raise
    return True


def _holds(target: Path, raw: bytes) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != len(raw):
        return False
    return hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(raw).digest()


SAVE: Final = Told(
    "save_screenshot",
    "Save a screenshot, or a part of one, as a file in a folder that is open for it. Nothing is overwritten.",
    (
        REF,
        Param("outputPath", "string", "Path within the folder, .jpg or .png; by default named for its time."),
        place("cropX", "Left edge of a part.", required=False),
        place("cropY", "Top edge of a part.", required=False),
        place("cropWidth", "Width of a part.", required=False),
        place("cropHeight", "Height of a part.", required=False),
        UNITS,
    ),
    {"path": TEXT, "size": WHOLE},
    writes=True,
)
