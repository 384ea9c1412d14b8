"""Showing notices: what waits for a butler goes out with the next result of a call by its session."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from cachetools import FIFOCache

from butlers.butler import Context
from butlers.sessions.notices import taken
from shared.auth.tokens import Caller
from shared.db.pool import Connection
from shared.errors import ButlersError
from shared.storage import notices
from shared.storage.notices import TOPIC, Reader
from shared.telemetry.logs import logger

log = logger("butlers.daemon.notices")
# How long it may take, without a hint, until what waits is found.
LOOK_SECONDS: Final = 2.0
MOST_READERS: Final = 1024
# The results of these are never extended: they are about notices, or somebody waits in front of them.
EXCEPT: Final = frozenset({"ask_user", "desk_notify", "notices"})


class Showing:
    """What one daemon knows of its notices: whether any may wait, and who is to be shown them.

    It is only knowledge about rows: losing it costs a look, and nothing is shown twice by it.
    """

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._looked = float("-inf")
        self._hint = context.wakes[TOPIC].ticket(context.name)
        self._readers: FIFOCache[str, Reader | None] = FIFOCache(MOST_READERS)
        # Who was shown something by a call after which it has made no other.
        self._owing: FIFOCache[str, bool] = FIFOCache(MOST_READERS)
        # Of the calls that end at the same time one looks, and the others go out as they are.
        self._lock = asyncio.Lock()

    async def block_for(self, caller: Caller, tool: str, began: float) -> str | None:
        """Return the block that goes out with this caller's result, noted as shown; None if nothing waits for it.

        `began` says when the call began, by the clock. What cannot be read now is shown with a later result.
        """
        if caller.kind == "hop" or tool in EXCEPT or self._lock.locked() or not self._may_wait(caller.jti):
            return None
        if caller.jti in self._readers and self._readers[caller.jti] is None:
            return None
        async with self._lock:
            try:
                return await self._look(caller, began)
            except ButlersError as lost:
                log.warning("notices cannot be read now", butler=self._context.name, why=lost.message)
                return None

    def _may_wait(self, who: str) -> bool:
        return self._hint.is_set() or who in self._owing or self._clock() - self._looked >= LOOK_SECONDS

    async def _look(self, caller: Caller, began: float) -> str | None:
        context = self._context
        async with context.db.work() as connection:
            reader = await self._reader(connection, caller)
            if reader is None:
                return None
            hint, self._hint = self._hint, context.wakes[TOPIC].ticket(context.name)
            try:
                if self._owing.pop(reader.id, False):
                    await notices.read(connection, context.name, reader.id, max(0.0, self._clock() - began))
                block = await taken(connection, context.name, reader)
            except BaseException:
                self._hint = hint
                raise
        self._looked = float("-inf") if block is not None and block.left else self._clock()
        if block is None:
            return None
        self._owing[reader.id] = True
        return block.text

    async def _reader(self, connection: Connection, caller: Caller) -> Reader | None:
        if caller.jti not in self._readers:
            found = await notices.reader(connection, self._context.name, caller.jti, caller.kind)
            self._readers[caller.jti] = found
        return self._readers[caller.jti]
