"""The method getUpdates: confirming, long polling, and one poller per bot (core.telegram.org/bots/api#getupdates)."""

import asyncio

from messenger.sandbox.botapi import checks
from messenger.sandbox.botapi.checks import Params, Refused
from messenger.sandbox.sandbox import Sandbox
from messenger.sandbox.world import Polling, Update

# Sent only to a bot that names them.
ON_REQUEST = frozenset({"message_reaction", "message_reaction_count", "chat_member"})
LONGEST_POLL = 50
CONFLICT = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"


class Pollers:
    """The current poller of each bot; a new poll ends the older one of the same bot with 409."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._current: dict[str, asyncio.Future[None]] = {}

    async def get_updates(self, token_id: str, params: Params) -> object:
        """Return the updates the bot has not confirmed: at once, as soon as there are any, or none after `timeout`."""
        polling = self._confirm(token_id, params)
        limit = min(max(checks.number(params, "limit", 100), 1), 100)
        wait = min(max(checks.number(params, "timeout", 0), 0), LONGEST_POLL)
        mine = self._take_over(token_id)
        try:
            found = await self._wait(token_id, polling, mine, wait)
        finally:
            if self._current.get(token_id) is mine:
                del self._current[token_id]
        return [update.body for update in found[:limit]]

    def _take_over(self, token_id: str) -> asyncio.Future[None]:
        older = self._current.get(token_id)
        if older is not None and not older.done():
            older.set_result(None)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._current[token_id] = mine
        return mine

    def _confirm(self, token_id: str, params: Params) -> Polling:
        world = self._sandbox.world
        before = world.pollings.get(token_id, Polling())
        allowed = checks.kinds(params)
        offset = checks.number(params, "offset", 0)
        if offset < 0:
            offset = max(world.next_update_id + offset, world.first_update_id)
        # What is still to come nobody can confirm.
        offset = min(offset, world.next_update_id)
        after = Polling(max(before.offset, offset), before.allowed if allowed is None else allowed)
        self._sandbox.confirm(token_id, after)
        return after

    async def _wait(self, token_id: str, polling: Polling, mine: asyncio.Future[None], wait: int) -> list[Update]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            ring = self._sandbox.bell.next_ring()
            found = self._wanted(token_id, polling)
            left = deadline - loop.time()
            if mine.done():
                raise Refused(409, CONFLICT)
            if found or left <= 0 or self._sandbox.stopping.is_set():
                return found
            await asyncio.wait({ring, mine}, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _wanted(self, token_id: str, polling: Polling) -> list[Update]:
        return [update for update in self._sandbox.world.pending(token_id) if _allowed(update.kind, polling)]


def _allowed(kind: str, polling: Polling) -> bool:
    return kind in polling.allowed if polling.allowed else kind not in ON_REQUEST
