"""The check for a backup that was put back: a beat in the database, and a file outside it that follows the beat.

INVARIANT: whatever may have left for a third party, the file's beat is at least that of its marker. The marker moves
the beat; after its commit, and before the last byte, the file says so on its disk. So rows without that marker are
behind the file.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from butlers.butler import Context
from messenger.delivery import restored
from shared.db import witness
from shared.db.pool import Connection, Record
from shared.db.witness import Seen
from shared.errors import Away, ButlersError, Unavailable
from shared.loops import pause
from shared.storage import brakes
from shared.storage.restored import FITS, LEAP_AHEAD, witnessed
from shared.telemetry.logs import logger

log = logger("messenger.delivery.witness")
# A thread of its own: no message waits before its last byte for what other parts of the process do in theirs.
WRITER: Final = ThreadPoolExecutor(1, "witness")
SEEN: Final = """
beat, (SELECT system_identifier::text FROM pg_control_system()) AS system, clock_timestamp()::text AS at,
    coalesce((SELECT n FROM shared.audit_seals ORDER BY n DESC LIMIT 1), 0) AS seal,
    coalesce((SELECT encode(hash, 'hex') FROM shared.audit_seals ORDER BY n DESC LIMIT 1), '') AS seal_hash
"""
MOVE: Final = f"UPDATE messenger.witness SET beat = beat + 1 WHERE {FITS} RETURNING {SEEN}"
AS_OF_NOW: Final = f"SELECT {SEEN}, {FITS} AS fits FROM messenger.witness"
HELD: Final = f"{AS_OF_NOW} FOR UPDATE"
LEAPT: Final = f"{LEAP_AHEAD} RETURNING {SEEN}"


class Behind(ButlersError):
    """The rows are older than their witness knows, or another database's: nothing of this transaction is kept."""


@dataclass(slots=True)
class Witness:
    """One Messenger's witness; `paths` are where its files lie, which others of the same home write too."""

    paths: tuple[Path, ...]
    # Why its file cannot be written, as a sentence; while there is a reason nothing leaves for others.
    trouble: str = ""
    # The furthest that this process knows to be committed, and how far it knows the files to be.
    _newest: Seen | None = None
    _kept: tuple[int, int] = (-1, 0)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self, context: Context) -> None:
        """Look once before this process takes anything, and carry out what the owner said meanwhile.

        A file that cannot be written keeps nothing from the owner.
        """
        if self._newest is not None or self.trouble:
            return
        await restored.look(context)
        try:
            await self.look(context)
        except Away:
            raise
        except Unavailable as unwritten:
            log.warning("nothing leaves for others", why=unwritten.message)

    async def look(self, context: Context) -> None:
        """Move the beat without a marker; where the rows do not fit the witness, treat the house as restored."""
        if self._known() is None:
            await self._begin(context)
        try:
            async with context.db.work() as connection:
                moved = await self.move(connection)
        except Behind:
            async with context.db.work() as connection:
                await brakes.hold_markers(connection)
                moved = Seen(**await _restored(connection, context, self._known()))
        await self.keep(moved)

    async def ready(self, context: Context) -> None:
        """Look, if that is needed, before a third party's marker.

        Raises Unavailable where no file can be written, so that no marker is in vain.
        """
        if self._newest is None or self.trouble:
            await self.look(context)

    async def move(self, connection: Connection) -> Seen:
        """Move the beat as a third party's marker's last statement: others wait for this row during the commit only.

        Raises Behind where the rows do not fit.
        """
        row = await connection.fetchrow(MOVE, *witnessed(self._known()))
        if row is None:
            raise Behind("The database is behind its witness.", "Nothing of this is kept.")
        return Seen(**row)

    async def keep(self, moved: Seen) -> None:
        """Write the beat to the files after the marker's commit and before its byte; raise Unavailable if that fails.

        Of those who wait at the same moment the first writes for all.
        """
        if self._newest is None or self._newest.order < moved.order:
            self._newest = moved
        async with self._one_at_a_time:
            if self._kept < moved.order:
                await self._write(self._newest)

    async def follow(self, context: Context, stopping: asyncio.Event) -> None:
        """Note how far others have moved the beat, and what was sealed, so that no file is older than a second."""
        while not stopping.is_set():
            await pause(stopping, context.settings.timings.witness)
            try:
                if self.trouble:
                    await self.look(context)
                elif self._newest is not None:
                    await self._note(context)
            except ButlersError as lost:
                log.warning("the witness does not follow", why=lost.message)

    async def _note(self, context: Context) -> None:
        async with context.db.work() as connection:
            row = dict(await connection.fetchrow(AS_OF_NOW, *witnessed(self._known())) or {})
        if row.pop("fits"):
            await self.keep(Seen(**row))

    async def _begin(self, context: Context) -> None:
        """Write a home's first witness before the beat moves, so that a home without one is a home that lost it."""
        async with context.db.work() as connection:
            row = dict(await connection.fetchrow(AS_OF_NOW, *witnessed(None)) or {})
        if row.pop("fits"):
            await self._write(Seen(**row))

    def _known(self) -> Seen | None:
        """Return the further of what the files say and of what was committed here.

        What the files say may be another process's word.
        """
        try:
            said = witness.furthest(self.paths)
        except Unavailable as unreadable:
            self.trouble = str(unreadable)
            raise
        return max((one for one in (said, self._newest) if one), key=lambda one: one.order, default=None)

    async def _write(self, seen: Seen) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(WRITER, witness.write, self.paths, seen)
        except Unavailable as unwritten:
            self.trouble = str(unwritten)
            raise
        self._kept, self.trouble = seen.order, ""


async def _restored(connection: Connection, context: Context, seen: Seen | None) -> Record:
    """Treat the house as restored, unless another Messenger did first, and return the beat as it is then.

    The rows are behind the witness, or another database's.
    """
    found = await connection.fetchrow(HELD, *witnessed(seen))
    assert found is not None  # noqa: S101  # the one row is never deleted
    if found["fits"]:
        moved = await connection.fetchrow(MOVE, *witnessed(seen))
    else:
        log.warning("the database is behind its witness", beat=found["beat"], witnessed=seen.beat if seen else None)
        before = {"beat": seen.beat, "seal": seen.seal, "system": seen.system, "at": seen.at} if seen else None
        now = {"beat": found["beat"], "seal": found["seal"], "system": found["system"]}
        await restored.put_brake_on(connection, context, witness=before, database=now)
        moved = await connection.fetchrow(LEAPT, before["beat"] if before else None)
    assert moved is not None  # noqa: S101  # it is held
    return moved
