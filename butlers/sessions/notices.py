"""Notices at work: who is shown what with which result, what becomes of that at the end, and which begin a session."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cachetools import FIFOCache

from butlers.butler import ACTING, Context
from butlers.notices import Block, Waiting, block_of
from butlers.tools.notices import in_its_place
from shared.auth.tokens import Caller
from shared.db.pool import Connection, Record, commit_unflushed
from shared.display.quotes import in_marks
from shared.errors import ButlersError
from shared.storage import notices, sessions
from shared.storage.notices import TOPIC, Pace, Reader
from shared.storage.sessions import MESSAGE, Claimed
from shared.telemetry.logs import logger

log = logger("butlers.sessions.notices")
# How long it may take, without a hint, until what waits is found.
LOOK_SECONDS: Final = 2.0
# What ends so long a wait may come before the hint of the notice beside it, so a look is made without one.
WAITED_SECONDS: Final = 0.25
MOST_READERS: Final = 1024
# So much of what is shown no more is named to the owner.
EXCERPT: Final = 80
MOST_NAMED: Final = 3
# The results of these are never extended: they are about notices, or somebody waits in front of them.
EXCEPT: Final = frozenset({"ask_user", "desk_notify", "notices"})
BEGINS: Final = (
    "You were not working when the notifications above came. See what follows from them and do it; if nothing does, "
    "say so in a word and tell nobody."
)
PACE: Final = Pace()


async def taken(connection: Connection, butler: str, reader: Reader, ago: float | None = None) -> Block | None:
    """Take what fits of what waits for this reader, as one block; what is taken is noted as shown, in this transaction.

    With `ago`, what this reader was shown before a call of its that began so many seconds ago is noted as read.

    The owner's words that wait for a session of their own are told here instead: that session ends unbegun, and if it
    has begun meanwhile they are not told here. So they are work once.
    """
    rows = await notices.to_show(connection, butler, reader, ago)
    waits = [replace(waiting_of(row), text=await in_its_place(connection, row)) for row in rows]
    told = set[str]()
    while (block := block_of(waits, reader.nonce)) is not None:
        words = {one.id for one in waits if one.id in block.ids and _is_work(one)} - told
        told |= {one for one in words if await sessions.told_instead(connection, butler, one, reader.id)}
        begun = words - told
        if not begun:
            await notices.shown(connection, butler, reader.id, block.ids)
            break
        await notices.withdraw(connection, butler, sorted(begun))
        waits = [one for one in waits if one.id not in begun]
    # A server that crashes at once may forget what is noted here: then it comes once more, which is work only if it is
    # what the owner said or decided.
    if block is None or not any(one.stands_alone for one in waits if one.id in block.ids):
        commit_unflushed(connection)
    return block


def _is_work(notice: Waiting) -> bool:
    """Return whether it is what the owner wrote, for which a session of its own waits."""
    return notice.source == "owner" and notice.kind == MESSAGE


def waiting_of(row: Record) -> Waiting:
    """Return a row as the pure part takes it."""
    return Waiting(**row)


async def opening(context: Context, claimed: Claimed) -> str:
    """Return what waits as a session begins, as one block; nothing if its runtime does not read that."""
    if not claimed.hears or claimed.nonce is None:
        return ""
    # The owner's words that wait for a session of their own are shown with a result, as those that come later are.
    try:
        async with context.db.work() as connection:
            owners = await notices.is_owners(connection, claimed.butler, claimed.id)
            reader = Reader(claimed.id, claimed.nonce, is_owners=owners)
            block = await taken(connection, claimed.butler, reader)
    except ButlersError as lost:
        log.warning("a session begins without its notices", session=claimed.id, why=lost.message)
        return ""
    return block.text if block is not None else ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the notices of a session that ends, as sentences for the owner, each empty if there is none."""

    # What it read of the owner's while it ran: worth a sentence only where its end is.
    heard: str = ""
    # Whether some of that are words which it answered with no call.
    is_unanswered: bool = False
    # What was shown in vain and comes no more.
    given_up: str = ""


async def settle(connection: Connection, claimed: Claimed, *, is_read: bool) -> Settled:
    """Note what a session that ends was shown as read, or put it back."""
    if claimed.nonce is None:
        return Settled()
    lost = list[str]()
    if is_read:
        await notices.note_read(connection, claimed.butler, claimed.id)
    else:
        rows = await notices.unread(connection, claimed.butler, claimed.id)
        await sessions.told_in_vain(connection, claimed.butler, [row["id"] for row in rows if row["begins"]])
        lost = [row["text"] for row in rows if row["given_up"]]
    heard = await notices.heard(connection, claimed.butler, claimed.id, MOST_NAMED + 1)
    return Settled(
        _named("It was told:", [row["text"] for row in heard]),
        any(row["unanswered"] for row in heard),
        _named("It was shown in vain, and is shown no more:", lost),
    )


def _named(what: str, texts: Sequence[str]) -> str:
    named = ", ".join(in_marks(text, EXCERPT) for text in texts[:MOST_NAMED])
    return f"{what} {named}{' and more' if len(texts) > MOST_NAMED else ''}" if texts else ""


async def begin_one(connection: Connection, butler: str, new_id: Callable[[], str], pace: Pace = PACE) -> None:
    """Put a session in the queue of a butler that is idle, if something waits for which one is begun."""
    if await notices.begins_one(connection, butler, pace):
        await sessions.enqueue(connection, session_id=new_id(), butler=butler, cause=notices.CAUSE, prompt=BEGINS)


class Showing:
    """What one daemon knows of its notices: whether any may wait, and who is to be shown them.

    It is only knowledge about rows: losing it costs a look, and nothing is shown twice by it.
    """

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._looked = float("-inf")
        self._hint = context.wakes[TOPIC].ticket(context.name)
        # Clients that are no readers. Whoever is one is asked for with each look, as it may have ended.
        self._told_nothing: FIFOCache[str, bool] = FIFOCache(MOST_READERS)
        # Who was shown something by a call after which it has made no other.
        self._owing: FIFOCache[str, bool] = FIFOCache(MOST_READERS)
        # Of the calls that end at the same time one looks, and the others go out as they are.
        self._lock = asyncio.Lock()

    async def block_for(self, caller: Caller, tool: str, began: float) -> str | None:
        """Return the block that goes out with this caller's result, noted as shown; None if nothing waits for it.

        `began` says when the call began, by the clock. What cannot be read now is shown with a later result.
        """
        if caller.kind not in ACTING or tool in EXCEPT or self._lock.locked() or not self._may_wait(caller.jti, began):
            return None
        if caller.jti in self._told_nothing:
            return None
        async with self._lock:
            try:
                return await self._look(caller, began)
            except ButlersError as lost:
                log.warning("notices cannot be read now", butler=self._context.name, why=lost.message)
                return None

    def _may_wait(self, who: str, began: float) -> bool:
        if self._hint.is_set() or who in self._owing:
            return True
        now = self._clock()
        return now - self._looked >= LOOK_SECONDS or now - began >= WAITED_SECONDS

    async def _look(self, caller: Caller, began: float) -> str | None:
        context = self._context
        async with context.db.work() as connection:
            reader = await self._reader(connection, caller)
            if reader is None:
                return None
            # Taken before the look, so that nothing between is missed, and used only once the look has counted.
            hint = context.wakes[TOPIC].ticket(context.name)
            ago = max(0.0, self._clock() - began) if self._owing.pop(reader.id, False) else None
            block = await taken(connection, context.name, reader, ago)
        self._hint = hint
        self._looked = float("-inf") if block is not None and block.left else self._clock()
        if block is None:
            return None
        self._owing[reader.id] = True
        return block.text

    async def _reader(self, connection: Connection, caller: Caller) -> Reader | None:
        found = await notices.reader(connection, self._context.name, caller.jti, caller.kind)
        if caller.kind == "client" and found is None:
            self._told_nothing[caller.jti] = True
        return found
