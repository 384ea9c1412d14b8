"""The runner: one loop per process that sees to the sessions of its butlers: claims, runs, gives up, and tells."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from itertools import count
from typing import Final

from butlers.butler import Context
from butlers.sessions.course import Place, folder_of, lose, play, remove_folder
from butlers.sessions.notices import begin_one
from butlers.tools.notify import tell
from shared.errors import Unavailable
from shared.loops import apart, either, pause
from shared.storage import contacts, notices, sessions
from shared.storage.session_list import REMOVED
from shared.storage.sessions import Claimed, Terms
from shared.telemetry.logs import logger

log = logger("butlers.sessions")
MOST: Final = 4
"""How many sessions one process runs at once, whoever began them."""
KEPT: Final = 2
"""How many more it runs of what the owner wrote or asked: nobody else's keep that waiting."""
# The longest that one butler is looked at. What it claimed and did not begin is put back once its lease is over.
LOOK_SECONDS: Final = 5.0
FALLEN_SILENT: Final = "Whoever ran it fell silent."


class Runner:
    """The butlers whose sessions this process runs, and those that it runs now."""

    def __init__(self, most: int = MOST, *, hears: bool = False) -> None:
        self._most = most + KEPT
        # Whether this process is told of each session that is asked; then it looks only for what nobody tells.
        self._hears = hears
        self._places: dict[str, Place] = {}
        # By butler: set when its sessions are to end with it.
        self._endings: dict[str, asyncio.Event] = {}
        self._running: set[asyncio.Task[None]] = set()
        # Of the places those that were free when this round of looks began: one that becomes free meanwhile is for
        # whoever comes first in the next round, and not for whoever is looked at next.
        self._free = self._most
        # By butler: the number of its latest session among all that began here.
        self._latest: dict[str, int] = {}
        self._numbers = count(1)
        self._telling: dict[str, asyncio.Task[None]] = {}
        # The butlers that are looked at again as soon as the oldest words for them have been heard out.
        self._heard_out: set[str] = set()
        self._woken = asyncio.Event()
        self._named: set[str] = set()

    def add(self, place: Place) -> None:
        """Run this butler's sessions too; one that is known goes on, and what begins from now on begins there."""
        name = place.context.name
        self._places[name] = place
        self._endings.setdefault(name, asyncio.Event())
        self.wake(name)

    def remove(self, name: str) -> None:
        """Begin no more sessions of this butler, and end those that run, as where its daemon stops."""
        self._places.pop(name, None)
        if name in self._endings:
            self._endings.pop(name).set()

    async def end_removed(self, context: Context) -> None:
        """End what waits for a butler whose folder was removed, since nobody runs it any more, and tell the owner."""
        name = context.name
        await asyncio.gather(*(one for one in self._running if one.get_name() == name), return_exceptions=True)
        with apart(log, "what waits for a butler that was removed stays", butler=name):
            async with context.db.work() as connection:
                await sessions.end_unrun(connection, name, REMOVED, context.settings.timings.session_lease)
            await tell_owner(context, context.stopping)

    def wake(self, name: str = "") -> None:
        """Look at the sessions of this butler now, or of all."""
        self._named |= {name} & self._places.keys() if name else self._places.keys()
        self._woken.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """See to the sessions of all butlers again and again, and of those that are named at once, until stopping.

        Butlers take turns: whose latest session began first comes first. Then every session that runs is ended, and its
        child with it.
        """
        self.wake()
        while not stopping.is_set():
            self._woken.clear()
            self._free = self._most - len(self._running)
            named, self._named = sorted(self._named, key=lambda name: (self._latest.get(name, 0), name)), set()
            for name in named:
                place = self._places.get(name)
                if place is not None:
                    with apart(log, "sessions are not seen to", butler=name):
                        await self._look_at(place)
            await self._until_woken(stopping)
        for name in list(self._places):
            self.remove(name)
        await asyncio.gather(*self._running, *self._telling.values(), return_exceptions=True)

    async def _until_woken(self, stopping: asyncio.Event) -> None:
        """Wait for a hint, or until the next look at everybody, which is the rarer the more there are to look at."""
        timings = [place.context.settings.timings for place in self._places.values()]
        looks = [one.session_heard if self._hears else one.session_look for one in timings]
        pace = max(looks, default=1.0) * max(1.0, len(looks) / 5)
        await either(pace, self._woken, stopping)
        if not (self._woken.is_set() or stopping.is_set()):
            self.wake()

    async def _look_at(self, place: Place) -> None:
        """See to one butler; one that holds rows of its own keeps the others waiting, and not for long."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._see_to(place)
        except TimeoutError:
            raise Unavailable("What is looked at is held too long.") from None

    async def _see_to(self, place: Place) -> None:
        context, ending = place.context, self._endings[place.context.name]
        timings = context.settings.timings
        async with context.db.work() as connection:
            needs = await sessions.needs(connection, context.name, timings.said_together, timings.session_lease)
            if needs.noticed and place.setup.runtime.hears:
                await begin_one(connection, context.name, context.new_id)
        if needs.soon is not None and context.name not in self._heard_out:
            self._heard_out.add(context.name)
            asyncio.get_running_loop().call_later(needs.soon, self._is_heard_out, context.name)
        if needs.lapsed:
            await give_up(place)
        if (needs.untold or needs.lapsed) and context.name not in self._telling:
            self._telling[context.name] = task = asyncio.create_task(tell_owner(context, ending))
            task.add_done_callback(lambda _: self._telling.pop(context.name))
        while (needs.waiting or needs.lapsed) and self._free > 0 and not ending.is_set():
            async with context.db.work() as connection:
                terms = _terms(place, owners_only=self._free <= KEPT)
                claimed = await sessions.claim_waiting(connection, context.name, terms)
                if claimed is not None and claimed.cause == sessions.MESSAGE:
                    await notices.withdraw(connection, context.name, [claimed.id])
            if claimed is None:
                return
            self._begin(place, claimed, ending)

    def _begin(self, place: Place, claimed: Claimed, ending: asyncio.Event) -> None:
        self._free -= 1
        self._latest[claimed.butler] = next(self._numbers)
        task = asyncio.create_task(_contained(place, claimed, ending), name=claimed.butler)
        self._running.add(task)
        task.add_done_callback(self._is_over)

    def _is_heard_out(self, name: str) -> None:
        self._heard_out.discard(name)
        self.wake(name)

    def _is_over(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self.wake()


async def _contained(place: Place, claimed: Claimed, stopping: asyncio.Event) -> None:
    with apart(log, "a session broke", session=claimed.id, butler=claimed.butler):
        await play(place, claimed, stopping)


def _terms(place: Place, *, owners_only: bool) -> Terms:
    setup, context = place.setup, place.context
    return Terms(
        runtime=setup.runtime.name,
        holder=context.instance,
        at_once=setup.at_once,
        lease=context.settings.timings.session_lease,
        limits=asdict(setup.limits),
        dollars_per_day=setup.dollars_per_day,
        nonce=context.new_id().replace("-", "")[:16],
        hears=setup.runtime.hears,
        is_told=setup.runtime.is_told,
        owners_only=owners_only,
        together=context.settings.timings.said_together,
    )


async def give_up(place: Place) -> None:
    """End as lost, or put back into the queue, some sessions of this butler whose holder's lease ran out."""
    name, lease = place.context.name, place.context.settings.timings.session_lease
    async with place.context.db.work() as connection:
        for claimed in await sessions.lapsed(connection, name, lease):
            log.warning("a session is lost", session=claimed.id, butler=name)
            await remove_folder(folder_of(place.context.home, claimed.id))
            await lose(connection, claimed, FALLEN_SILENT, await sessions.course(connection, claimed))


async def tell_owner(context: Context, stopping: asyncio.Event) -> None:
    """Tell the owner what the rows say is untold, by the ordinary way of a message, each sentence once."""
    with apart(log, "the owner is not told of a session yet", butler=context.name):
        async with context.db.work() as connection:
            rows = await sessions.untold(connection, context.name)
            channel = await contacts.owners_channel(connection)
        if rows and channel is None:
            log.warning("the owner is not told of a session yet", butler=context.name, why="the owner has no address")
            await pause(stopping, context.settings.timings.session_told_again)
            return
        for row in rows:
            # It keeps a sentence that is told again, after a crash, from being another message.
            # INVARIANT: no session can take it first, as it could a key.
            lineage = f"told:{row['id']}:{row['attempt']}:{row['status']}"
            answer = await tell(context, {"channel": channel, "message": row["untold"]}, lineage=lineage)
            # What was admitted is the Messenger's, however it ended, and keeps nothing else untold.
            if answer.get("status") == "error" and "notification_id" not in answer:
                error = answer.get("error")
                log.warning("the owner is not told of a session", butler=context.name, why=str(error))
                # What will be refused again, such as words that are none, is taken as told.
                if isinstance(error, Mapping) and error.get("retryable"):
                    await pause(stopping, context.settings.timings.session_told_again)
                    return
            async with context.db.work() as connection:
                await sessions.note_told(connection, context.name, row["id"], row["untold"])
