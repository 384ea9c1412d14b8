"""Popups: one window at a time, each in a process of its own, and what became of it."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from butlers.desk import theme
from shared.display.visible import in_line, visible

Theme = Literal["auto", "light", "dark"]
# `busy`: a question stands, and a message that waits for no answer does not cover it. `broken`: its process died.
How = Literal[
    "shown", "busy", "submitted", "empty", "cancelled", "dismissed", "timeout", "superseded", "headless", "broken"
]
WINDOW: Final = Path(__file__).with_name("window.py")
# How long a window may take to stand, and to go once it is told to, in seconds.
STANDS_WITHIN: Final = 10.0
_GOES_WITHIN: Final = 1.0
_LONGEST_LINE: Final = 1 << 24
# What Python, Tk and Xlib write where there is no display, or none any more.
_NO_DISPLAY: Final = ("tkinter", "XIO:", "X connection", "X server", "display")


@dataclass(frozen=True, slots=True)
class Popup:
    """What a window shows; `history` has the last exchanges, each what was said and what the person replied."""

    message: str
    title: str = "Butlers"
    waits: bool = True
    timeout: float | None = None
    history: Sequence[tuple[str, str]] = ()
    chime: bool = False
    theme: Theme = "auto"
    # A question of a butler's, which no message covers.
    question: bool = False
    # How many characters are taken as an answer; with more than that the window stays.
    longest: int | None = None
    # What is typed is hidden on the screen, and shown in no history.
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class PopupEnd:
    """How a popup ended, and what was typed; a popup that waits for no answer ends for us once it is `shown`."""

    how: How
    text: str = field(default="", repr=False)


class Child:
    """The process of one window."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self.shown: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[PopupEnd] = loop.create_future()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Take what the window says until it has gone; what is no line of its own says why it died."""
        said, out = list[str](), self._process.stdout
        with suppress(ValueError):  # a line without end is as good as none
            while out is not None and (line := await out.readline()):
                try:
                    event = json.loads(line)
                    how = event.get("how", event["event"])
                except (ValueError, KeyError, TypeError, AttributeError):
                    said = [*said[-20:], line.decode(errors="replace")]
                    continue
                if how == "shown":
                    self._settle(None)
                else:
                    self._settle(PopupEnd(how, str(event.get("text", ""))))
        why = "".join(said)
        self._settle(PopupEnd("headless" if any(word in why for word in _NO_DISPLAY) else "broken"))
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GOES_WITHIN)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _settle(self, ended: PopupEnd | None) -> None:
        if not self.shown.done():
            self.shown.set_result(None)
        if ended is not None and not self.ended.done():
            self.ended.set_result(ended)

    async def close(self, how: How) -> None:
        """Have the window go, and end as `how`; kill it if it does not."""
        if not self.ended.done() and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(json.dumps({"close": how}).encode() + b"\n")
                await self._process.stdin.drain()
        _, staying = await asyncio.wait([self._reading], timeout=_GOES_WITHIN)
        if staying:
            self._settle(PopupEnd(how))
            with suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait([self._reading], timeout=_GOES_WITHIN)


async def start(popup: Popup) -> Child:
    """Start the window of a popup, which is not there yet."""
    looks = await asyncio.to_thread(_looks, popup.theme)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(WINDOW),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LONGEST_LINE,
    )
    if process.stdin is not None:
        process.stdin.write(json.dumps({**looks, **asdict(_as_seen(popup))}).encode() + b"\n")
    return Child(process)


def _as_seen(popup: Popup) -> Popup:
    """Return the popup with nothing hidden in its words."""
    history = [(visible(said), visible(answered)) for said, answered in popup.history]
    return replace(popup, message=visible(popup.message), title=in_line(popup.title), history=history)


def _looks(name: Theme) -> Mapping[str, object]:
    on = [one._asdict() for one in theme.monitors()]
    return {"colours": theme.palette(name, sys.platform)._asdict(), "monitors": on}


class Popups:
    """The popups of this process: a newer one takes the place of the one that stands."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._standing: Child | None = None
        self._playing = set[asyncio.Task[bool]]()

    async def show(self, popup: Popup) -> PopupEnd:
        """Show it, and return how it ended; at once if it waits for no answer. Where we are cancelled, it goes."""
        async with self._turn:
            await self.close("superseded")
            child = self._standing = await start(popup)
        if popup.chime:
            child.shown.add_done_callback(lambda _: self._chime("start", unless=child.ended))
        try:
            ended = await self._outcome(child, popup)
            if popup.chime and ended.how == "submitted":
                self._chime("end")
            return ended
        finally:
            if popup.waits:
                await asyncio.shield(child.close("superseded"))

    def _chime(self, name: str, unless: "asyncio.Future[PopupEnd] | None" = None) -> None:
        if unless is not None and unless.done():
            return
        playing = asyncio.create_task(asyncio.to_thread(theme.play, name))
        self._playing.add(playing)
        playing.add_done_callback(self._playing.discard)

    async def close(self, how: How) -> None:
        """Close the popup that stands, if one does."""
        if self._standing is not None:
            await self._standing.close(how)

    @staticmethod
    async def _outcome(child: Child, popup: Popup) -> PopupEnd:
        if not popup.waits:
            try:
                await asyncio.wait_for(asyncio.shield(child.shown), STANDS_WITHIN)
            except TimeoutError:
                await child.close("superseded")
                return PopupEnd("broken")
            return child.ended.result() if child.ended.done() else PopupEnd("shown")
        # The window keeps the time; this one is for a window that hangs.
        latest = None if popup.timeout is None else popup.timeout + _GOES_WITHIN
        try:
            return await asyncio.wait_for(asyncio.shield(child.ended), latest)
        except TimeoutError:
            return PopupEnd("timeout")
