"""Heartbeats: those that come in the same breath, as all of one process do, are noted in one unit of work."""

import asyncio
from dataclasses import dataclass
from typing import Final

from shared.db.pool import Connection, Database
from shared.errors import ButlersError
from switchboard.storage import registry

# Far less than anybody waits for the answer, and long enough for a process to say all it serves.
BREATH: Final = 0.05


@dataclass(frozen=True, slots=True, order=True)
class Beat:
    """What an instance says of itself; the name and the kind are proved."""

    name: str
    url: str
    kind: str
    tools: tuple[str, ...]
    status: str


class Heartbeats:
    """The heartbeats that wait for the end of a breath, and the task that notes them then."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._beats: set[Beat] = set()
        self._noting: asyncio.Task[frozenset[Beat]] | None = None

    async def note(self, beat: Beat) -> None:
        """Note this heartbeat together with others; one that cannot be noted spoils none but itself."""
        self._beats.add(beat)
        if self._noting is None:
            self._noting = asyncio.create_task(self._together())
        if beat not in await asyncio.shield(self._noting):
            async with self._db.work() as connection:
                await _note(connection, beat)

    async def _together(self) -> frozenset[Beat]:
        """Return the heartbeats of this breath, all noted, or none if one of them could not be."""
        await asyncio.sleep(BREATH)
        beats, self._beats, self._noting = frozenset(self._beats), set(), None
        try:
            async with self._db.work() as connection:
                for beat in sorted(beats):  # the same order in every process, so that none waits in a circle
                    await _note(connection, beat)
        except ButlersError:
            return frozenset()
        return beats


async def _note(connection: Connection, beat: Beat) -> None:
    await registry.seen(connection, beat.name, beat.url, beat.kind, beat.tools, beat.status)
