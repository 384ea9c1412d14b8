"""Live updates: looking whether a page that is open would show something else by now, and telling it so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from shared.errors import Unavailable
from shared.loops import pause

T = TypeVar("T")
# Reads one page and returns its version; empty for what is no live page, or is none any more.
Look: TypeAlias = Callable[[], Awaitable[str]]

LONGEST_STREAM: Final = 600.0
_STILL_HERE: Final = 15.0


class Watch:
    """The versions of the open pages, each read at most once per `pace` seconds, however often the page is open."""

    def __init__(self, clock: Callable[[], float], pace: float) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        # By page: when it was looked at, and its version then.
        self._known: dict[str, tuple[float, str]] = {}
        self.pace = pace

    async def version(self, page: str, look: Look) -> str:
        """Return the version that the page had within the last `pace` seconds."""
        async with self._lock:
            fresh = {at: seen for at, seen in self._known.items() if self._clock() - seen[0] < self.pace}
            if page not in fresh:
                version = await look()
                fresh[page] = (self._clock(), version)
            self._known = fresh
            return fresh[page][1]


@dataclass(frozen=True, slots=True)
class Viewer:
    """One open page: its address, how to look at it anew, and whether its session is still signed in."""

    page: str
    look: Look
    still_in: Callable[[], Awaitable[bool]]


async def changes(
    watch: Watch, viewer: Viewer, seen: str, stopping: asyncio.Event, clock: Callable[[], float]
) -> AsyncIterator[str]:
    """Yield server-sent events (WHATWG HTML 9.2): `changed` with the new version whenever it differs from `seen`.

    Ends when the session or the page does, when the console stops or the database is lost, and after ten minutes; the
    browser then asks again by itself.
    """
    yield f"retry: {int(max(watch.pace, 1) * 1000)}\n\n"
    begun = told = clock()
    try:
        while clock() - begun < LONGEST_STREAM and await to_its_end(viewer.still_in()):
            version = await to_its_end(watch.version(viewer.page, viewer.look))
            if not version:
                return
            if version != seen:
                seen, told = version, clock()
                yield f"id: {version}\nevent: changed\ndata: {version}\n\n"
            elif clock() - told >= _STILL_HERE:
                told = clock()
                yield ": still here\n\n"
            if await pause(stopping, watch.pace):
                return
    except Unavailable:
        return


async def to_its_end(work: Awaitable[T]) -> T:
    """Await the work; if we are cancelled, let it finish alone.

    A browser that leaves cancels its stream at any moment, and a unit of work cut off in the middle costs a connection.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
