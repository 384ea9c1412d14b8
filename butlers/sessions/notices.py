"""What a session is shown of its butler's notices, what becomes of that when it ends, and which begin one."""

from collections.abc import Callable
from typing import Final

from butlers.notices import Block, Waiting, block_of
from shared.db.pool import Connection, Record
from shared.storage import notices, sessions
from shared.storage.notices import Pace, Reader
from shared.storage.sessions import MESSAGE, Claimed

BEGINS: Final = (
    "You were not working when the notifications above came. See what follows from them and do it; if nothing does, "
    "say so in a word and tell nobody."
)
PACE: Final = Pace()


async def taken(connection: Connection, butler: str, reader: Reader) -> Block | None:
    """Take what fits of what waits for this reader, as one block; what is taken is noted as shown, in this transaction.

    The owner's words that wait for a session of their own are told here instead: that session ends unbegun, and if it
    has begun meanwhile they are not told here. So they are work once.
    """
    waits = [waiting_of(row) for row in await notices.waiting(connection, butler, reader)]
    told = set[str]()
    while (block := block_of(waits, reader.nonce)) is not None:
        words = {one.id for one in waits if one.id in block.ids and _is_work(one)} - told
        told |= {one for one in words if await sessions.told_instead(connection, butler, one, reader.id)}
        begun = words - told
        if not begun:
            await notices.shown(connection, butler, reader.id, block.ids)
            return block
        await notices.withdraw(connection, butler, sorted(begun))
        waits = [one for one in waits if one.id not in begun]
    return None


def _is_work(notice: Waiting) -> bool:
    """Return whether it is what the owner wrote, for which a session of its own waits."""
    return notice.source == "owner" and notice.kind == MESSAGE and not notice.again


def waiting_of(row: Record) -> Waiting:
    """Return a row as the pure part takes it."""
    return Waiting(**row)


async def opening(connection: Connection, claimed: Claimed) -> str:
    """Return the prompt of a session that begins: what waits, if its runtime reads that, and then what it is asked."""
    if not claimed.hears or claimed.nonce is None:
        return claimed.prompt
    # The owner's words that wait for a session of their own are shown with a result, as those that come later are.
    block = await taken(connection, claimed.butler, Reader(claimed.id, claimed.nonce))
    return f"{block.text}\n\n{claimed.prompt}" if block is not None else claimed.prompt


async def settle(connection: Connection, claimed: Claimed, *, is_read: bool) -> None:
    """Note what a session that ends was shown as read, or put it back."""
    if claimed.nonce is None:
        return
    if is_read:
        await notices.read(connection, claimed.butler, claimed.id)
    else:
        await notices.unread(connection, claimed.butler, claimed.id)


async def begin_one(connection: Connection, butler: str, new_id: Callable[[], str], pace: Pace = PACE) -> None:
    """Put a session in the queue of a butler that is idle, if something waits for which one is begun."""
    if await notices.due(connection, butler, pace):
        await sessions.enqueue(connection, session_id=new_id(), butler=butler, cause=notices.CAUSE, prompt=BEGINS)
