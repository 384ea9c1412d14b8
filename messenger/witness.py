"""Whether the rows are those that this house had: a beat in the database, and a file outside that follows it.

INVARIANT: before a third party's marker the beat has moved, and the file says so on its disk, within a second. So of
two states of the database with such a marker between them the file knows which is the older one.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from butlers.butler import Ground
from messenger import restoring
from shared import witness
from shared.db import Connection, Record, pause
from shared.errors import Away, ButlersError, Unavailable
from shared.telemetry import logger
from shared.witness import Seen

log = logger("messenger.witness")
COVERS_SECONDS: Final = 1.0
# So far the beat leaps where the rows were behind, that no other Messenger's file is ahead of it afterwards.
LEAP: Final = 1_000_000_000
# A home without a witness fits only rows that nobody has sent from. What another Messenger found needs no second look.
FITS: Final = f"""
CASE WHEN $1::bigint IS NULL THEN beat = 0 ELSE beat >= $1 AND (beat - $1 >= {LEAP} OR $2::bigint = 0
    OR EXISTS (SELECT FROM shared.audit_seals WHERE n = $2 AND encode(hash, 'hex') = $3)) END
"""
SEEN: Final = """
beat, (SELECT system_identifier::text FROM pg_control_system()) AS system, clock_timestamp()::text AS at,
    coalesce((SELECT n FROM shared.audit_seals ORDER BY n DESC LIMIT 1), 0) AS seal,
    coalesce((SELECT encode(hash, 'hex') FROM shared.audit_seals ORDER BY n DESC LIMIT 1), '') AS seal_hash
"""
MOVE: Final = f"UPDATE messenger.witness SET beat = beat + 1 WHERE {FITS} RETURNING {SEEN}"
AS_OF_NOW: Final = f"SELECT {SEEN}, {FITS} AS fits FROM messenger.witness"
HELD: Final = f"{AS_OF_NOW} FOR UPDATE"
LEAPT: Final = f"""
UPDATE messenger.witness SET beat = greatest(beat, coalesce($1::bigint, 0)) + {LEAP} RETURNING {SEEN}
"""


@dataclass(slots=True)
class Witness:
    """One Messenger's; `paths` are where its files lie, `by` tells it from others of the same home."""

    paths: tuple[Path, ...]
    by: str
    # Why its file cannot be written, as a sentence; while there is a reason nothing leaves for others.
    trouble: str = ""
    _until: float = 0.0
    _used: bool = False
    # Markers that were covered and whose end is not known yet.
    _open: int = 0
    _opened: bool = False
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self, ground: Ground) -> None:
        """Before this process takes anything: look once, and carry out what the owner said meanwhile.

        A file that cannot be written keeps nothing from the owner.
        """
        if self._opened:
            return
        await restoring.look(ground)
        async with self._one_at_a_time:
            try:
                await self._move(ground)
            except Away:
                raise
            except Unavailable as unwritten:
                log.warning("nothing leaves for others", why=unwritten.message)
        self._opened = True

    @asynccontextmanager
    async def cover(self, ground: Ground) -> AsyncIterator[None]:
        """Around the transaction of a third party's marker; raises Unavailable where it could not be known of later.

        However long that waits for a lock, the beat moves once more after its end.
        """
        async with self._one_at_a_time:
            if time.monotonic() >= self._until:
                await self._move(ground)
            self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._used = True

    async def follow(self, ground: Ground, stopping: asyncio.Event) -> None:
        """After the last marker of a second move once more, so that no state in the midst of it passes for the end.

        While others send, note how far the rows have come, so that the file of an idle Messenger is no older.
        """
        while not stopping.is_set():
            await pause(stopping, COVERS_SECONDS)
            async with self._one_at_a_time:
                try:
                    if self._used or self._open:
                        await self._move(ground)
                    else:
                        await self._note(ground)
                except ButlersError as lost:
                    log.warning("the witness does not follow", why=lost.message)

    async def _move(self, ground: Ground) -> None:
        since, seen = time.monotonic(), self._read()
        if seen is None:
            seen = await self._begun(ground)
        async with ground.db.work() as connection:
            row = await connection.fetchrow(MOVE, *_known(seen))
        if row is None:
            async with ground.db.work() as connection:
                row = await _restored(connection, ground, seen)
        await self._write(Seen(**row))
        self._until, self._used = since + COVERS_SECONDS, False

    async def _note(self, ground: Ground) -> None:
        seen = self._read()
        async with ground.db.work() as connection:
            row = dict(await connection.fetchrow(AS_OF_NOW, *_known(seen)) or {})
        if seen is not None and row.pop("fits") and row["beat"] > seen.beat:
            await self._write(Seen(**row))

    async def _begun(self, ground: Ground) -> Seen | None:
        """A home's first witness is there before the beat moves, so that a home without one is a home that lost it."""
        async with ground.db.work() as connection:
            row = dict(await connection.fetchrow(HELD, None, 0, "") or {})
        if not row.pop("fits"):
            return None
        await self._write(Seen(**row))
        return Seen(**row)

    def _read(self) -> Seen | None:
        try:
            return witness.read(self.paths)
        except Unavailable as unreadable:
            self.trouble = str(unreadable)
            raise

    async def _write(self, seen: Seen) -> None:
        try:
            await asyncio.to_thread(witness.write, self.paths, seen, self.by)
        except Unavailable as unwritten:
            self.trouble = str(unwritten)
            raise
        self.trouble = ""


def _known(seen: Seen | None) -> tuple[int | None, int, str]:
    return (None, 0, "") if seen is None else (seen.beat, seen.seal, seen.seal_hash)


async def _restored(connection: Connection, ground: Ground, seen: Seen | None) -> Record:
    """The rows are behind, or another database's: the house is restored, unless another Messenger found it first."""
    found = await connection.fetchrow(HELD, *_known(seen))
    assert found is not None  # noqa: S101  # the one row is never deleted
    if found["fits"]:
        moved = await connection.fetchrow(MOVE, *_known(seen))
    else:
        log.warning("the database is behind its witness", beat=found["beat"], witnessed=seen.beat if seen else None)
        before = {"beat": seen.beat, "seal": seen.seal, "system": seen.system, "at": seen.at} if seen else None
        now = {"beat": found["beat"], "seal": found["seal"], "system": found["system"]}
        await restoring.begin(connection, ground, witness=before, database=now)
        moved = await connection.fetchrow(LEAPT, before["beat"] if before else None)
    assert moved is not None  # noqa: S101  # it is held
    return moved
