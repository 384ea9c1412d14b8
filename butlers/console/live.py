"""Live updates: looking whether anything shown has changed, and telling the open pages so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from butlers.console.queries import start_page
from shared.db.pool import Database
from shared.errors import Unavailable
from shared.loops import pause

T = TypeVar("T")

LONGEST_STREAM: Final = 600.0
_STILL_HERE: Final = 15.0


class Watch:
    """The start page's version, read at most once per `pace` seconds, however many pages are open."""

    def __init__(self, db: Database, sandbox_url: str, clock: Callable[[], float], pace: float) -> None:
        self._db = db
        self._sandbox_url = sandbox_url
        self._clock = clock
        self._lock = asyncio.Lock()
        self._looked_at = float("-inf")
        self._version = ""
        self.pace = pace

    async def look(self) -> start_page.Start:
        """Read the start page as of now."""
        async with self._db.work() as connection:
            return await start_page.start(connection, sandbox_url=self._sandbox_url)

    async def version(self) -> str:
        """Return the version that the page had within the last `pace` seconds."""
        async with self._lock:
            if self._clock() - self._looked_at >= self.pace:
                self._version = (await self.look()).version
                self._looked_at = self._clock()
            return self._version


async def changes(
    watch: Watch,
    seen: str,
    still_in: Callable[[], Awaitable[bool]],
    stopping: asyncio.Event,
    clock: Callable[[], float],
) -> AsyncIterator[str]:
    """Yield server-sent events (WHATWG HTML 9.2): `changed` with the new version whenever it differs from `seen`.

    Ends when the session does, when the console stops or the database is lost, and after ten minutes; the
    browser then asks again by itself.
    """
    yield f"retry: {int(max(watch.pace, 1) * 1000)}\n\n"
    begun = told = clock()
    try:
        while clock() - begun < LONGEST_STREAM and await to_its_end(still_in()):
            version = await to_its_end(watch.version())
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
