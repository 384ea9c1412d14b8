"""ManicTime's screenshots: their names, which files are one capture, reading and cutting them.

INVARIANT: only files that lie in the folder of screenshots are read, through no link. Pillow is imported once a picture
is opened; whoever asks for numbers alone never pays for it.
"""

import base64
import hashlib
import io
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from butlers.modules.manictime.days import DAY, Range, clock_text, iso_text, seconds_of
from shared.errors import ButlersError, InvalidInput, Misconfigured

if TYPE_CHECKING:
    from PIL.Image import Image

# A positive offset has no sign in what ManicTime writes.
NAME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)_(\d\d-\d\d-\d\d)_([+-]?)(\d\d-\d\d)_(\d{1,5})_(\d{1,5})_(\d{1,18})_(\d{1,4})(\.thumbnail)?\.jpe?g",
    re.ASCII | re.IGNORECASE,
)
DAY_FOLDER: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
REF: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
MOST_BYTES: Final = 32 << 20
MOST_PIXELS: Final = 80_000_000
QUALITY: Final = 85
NEAR_SECONDS: Final = 120
DEPTH: Final = 4


class FileUnavailable(ButlersError):
    """A picture is not there, or cannot be read."""

    code = "file_unavailable"


class Capture(NamedTuple):
    """One screenshot: the full picture, its thumbnail, or both."""

    local: int
    identity: str
    offset: str
    width: int
    height: int
    monitor: int
    folder: str
    full: str | None
    thumbnail: str | None

    @property
    def ref(self) -> str:
        """Return what a client asks for it by: the same as long as the file is there."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.identity.encode()).digest()[:16]).decode().rstrip("=")

    @property
    def timestamp(self) -> str:
        """Return when it was made, with its offset."""
        return iso_text(self.local) + self.offset

    @property
    def uri(self) -> str:
        """Return the resource that it is."""
        return f"manictime://screenshot/{self.ref}"


def capture_of(folder: str, name: str) -> Capture | None:
    """Return what a file's name says; None if it is none of ManicTime's, or of a moment that never was."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    day, time, sign, offset, width, height, number, monitor, is_thumbnail = match.groups()
    try:
        local = seconds_of(datetime.fromisoformat(f"{day}T{time.replace('-', ':')}"))
    except ValueError:
        return None
    shift = (sign or "+") + offset.replace("-", ":")
    identity = f"{day}_{time}_{shift}_{width}_{height}_{number}_{monitor}"
    full, thumbnail = (None, name) if is_thumbnail else (name, None)
    return Capture(local, identity, shift, int(width), int(height), int(monitor), folder, full, thumbnail)


class Pictures:
    """The screenshots of one folder, known by what was read of each folder in it since that last changed."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._read: dict[str, tuple[int, list[Capture], list[str]]] = {}
        self._by_ref: dict[str, Capture] = {}

    def captures(self, asked: Range | None = None) -> list[Capture]:
        """Return the captures in the range, or all, by their time."""
        found = [
            one
            for some in self._folders(asked)
            for one in some
            if asked is None or asked.start <= one.local < asked.end
        ]
        return sorted({one.identity: one for one in found}.values())

    def moments(self, asked: Range) -> list[Capture]:
        """Return the captures in the range and two minutes around."""
        return self.captures(Range(asked.start - NEAR_SECONDS, asked.end + NEAR_SECONDS))

    def why_none(self, asked: Range) -> str:
        """Return why there is no capture in the range, as a reason of the diagnostics."""
        if self.folder is None or not self.folder.is_dir():
            return "ScreenshotsCaptureDisabled"
        every = self.captures()
        return "ScreenshotsRetention" if not every or asked.end <= every[0].local else "ScreenshotsUnknown"

    def moment_of(self, ref: str) -> str:
        """Return when a capture was made."""
        return self.find(ref).timestamp

    def remember(self, some: Iterable[Capture]) -> None:
        """Let these be found at once, since they were listed and will be asked for."""
        self._by_ref |= {one.ref: one for one in some}

    def known(self, ref: str) -> Capture | None:
        """Return the capture of this reference if it was listed, without a look at the folders."""
        return self._by_ref.get(ref)

    def find(self, ref: object) -> Capture:
        """Return the capture of this reference, looking through all folders if need be; raise InvalidInput."""
        if isinstance(ref, str) and REF.fullmatch(ref):
            if ref not in self._by_ref or not self._is_there(self._by_ref[ref]):
                self._by_ref = {one.ref: one for one in self.captures()}
            if ref in self._by_ref:
                return self._by_ref[ref]
        raise InvalidInput(
            "Unknown screenshotRef.", "Use list_screenshots to find those there are.", code="unknown_screenshot_ref"
        )

    def _is_there(self, one: Capture) -> bool:
        return any((Path(one.folder) / name).is_file() for name in (one.full, one.thumbnail) if name)

    def _folders(self, asked: Range | None) -> Iterator[list[Capture]]:
        """Yield the captures of each folder; of those named for a day that is far from the range, nothing is read."""
        waiting = [(str(self.folder.resolve()), 0)] if self.folder is not None else []
        days = (clock_text(asked.start - DAY)[:10], clock_text(asked.end + DAY)[:10]) if asked else ("0", "9")
        while waiting:
            path, depth = waiting.pop()
            name = Path(path).name
            if depth and DAY_FOLDER.fullmatch(name) and not days[0] <= name <= days[1]:
                continue
            _, found, below = self._folder(path)
            yield found
            if depth < DEPTH:
                waiting += [(one, depth + 1) for one in below]

    def _folder(self, path: str) -> tuple[int, list[Capture], list[str]]:
        try:
            changed = Path(path).stat().st_mtime_ns
            known = self._read.get(path)
            if known is None or known[0] != changed:
                self._read[path] = known = (changed, *_scanned(path))
        except OSError:
            return 0, [], []
        return known

    def opened(self, capture: Capture, name: str | None) -> tuple[bytes, "Image"]:
        """Return a file's bytes and the picture in it, not yet decoded; raise FileUnavailable."""
        if name is None:
            raise FileUnavailable("The screenshot has no such picture.")
        raw = self._bytes(Path(capture.folder) / name)
        return raw, picture_of(raw)

    def _bytes(self, path: Path) -> bytes:
        """Return what a file holds, if it lies in the folder, is no link and not too large."""
        try:
            root = (self.folder or path).resolve(strict=True)
            if not path.parent.resolve(strict=True).is_relative_to(root):
                raise _unavailable("lies outside of the folder of screenshots")
            opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(opened, "rb") as file:
                found = os.fstat(opened)
                if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                    raise _unavailable("is no picture that can be shown")
                return file.read(MOST_BYTES)
        except OSError:
            raise _unavailable("is not there, or may not be read") from None


def _scanned(path: str) -> tuple[list[Capture], list[str]]:
    """Return the captures in a folder, full picture and thumbnail folded into one, and the folders in it."""
    captures, below = dict[str, Capture](), list[str]()
    with os.scandir(path) as entries:
        for entry in entries:
            one = capture_of(path, entry.name)
            if one is None:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
            elif not entry.is_symlink():
                other = captures.get(one.identity, one)
                full, thumbnail = one.full or other.full, one.thumbnail or other.thumbnail
                captures[one.identity] = one._replace(full=full, thumbnail=thumbnail)
    return list(captures.values()), sorted(below)


def _unavailable(why: str) -> FileUnavailable:
    return FileUnavailable(f"Screenshot file error: it {why}.", "Use list_screenshots to find another.")


def picture_of(raw: bytes) -> "Image":
    """Return the JPEG in these bytes, looked at but not decoded; raise FileUnavailable, and never use much memory."""
    try:
        from PIL import Image  # noqa: PLC0415  # 20 MB that only pictures need
    except ImportError:
        raise Misconfigured(
            "Pictures need Pillow, which is not installed.", "Install butlers[manictime].", code="pillow_missing"
        ) from None
    try:
        picture = Image.open(io.BytesIO(raw), formats=("JPEG",))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _unavailable("is no JPEG that can be read") from None
    if picture.width * picture.height > MOST_PIXELS:
        raise _unavailable("has too many pixels")
    return picture


def demand_whole(raw: bytes) -> None:
    """Raise FileUnavailable if the picture ends before its end. It is decoded at an eighth of its size."""
    picture = picture_of(raw)
    picture.draft("L", (max(1, picture.width // 8), max(1, picture.height // 8)))
    _decode(picture)


def _decode(picture: "Image") -> None:
    try:
        picture.load()
    except (OSError, ValueError, SyntaxError):
        raise _unavailable("is broken") from None


class Box(NamedTuple):
    """A part of a picture, as fractions of its width and height."""

    left: float
    top: float
    right: float
    bottom: float

    def pixels(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return it in pixels: left, top, right and bottom; raise InvalidInput if it is empty."""
        left, right = (min(width, max(0, round(one * width))) for one in (self.left, self.right))
        top, bottom = (min(height, max(0, round(one * height))) for one in (self.top, self.bottom))
        if left >= right or top >= bottom:
            raise InvalidInput(
                "Crop failed. The box holds no pixel of the picture.", "Use a larger box.", code="crop_failed"
            )
        return left, top, right, bottom


def cut(picture: "Image", box: Box | None, kind: str) -> bytes:
    """Return the part of the picture, encoded anew as JPEG or PNG."""
    pixels = box.pixels(picture.width, picture.height) if box is not None else None
    _decode(picture)
    part = picture.crop(pixels) if pixels is not None else picture
    made = io.BytesIO()
    part.convert("RGB").save(made, kind, **({"quality": QUALITY} if kind == "JPEG" else {}))
    return made.getvalue()


def spread(found: list[Capture], asked: Range, most: int) -> list[Capture]:
    """Return so many at most: the first, and each that is a share of the range later than the one before."""
    if len(found) <= most:
        return found
    apart, chosen = (asked.end - asked.start) / most, found[:1]
    for one in found:
        if one.local - chosen[-1].local >= apart:
            chosen.append(one)
    return chosen[:most]


def at_changes(found: list[Capture], changes: list[int]) -> list[Capture]:
    """Return the capture nearest to each of these local moments, if one is within two minutes."""
    chosen, moments = dict[str, Capture](), [one.local for one in found]
    for moment in changes:
        at = bisect_left(moments, moment)
        near = [one for one in found[max(0, at - 1) : at + 1] if abs(one.local - moment) <= NEAR_SECONDS]
        if near:
            one = min(near, key=lambda one: abs(one.local - moment))
            chosen[one.identity] = one
    return sorted(chosen.values())
