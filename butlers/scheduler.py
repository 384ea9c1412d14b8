"""The scheduler: for each butler of this process a loop that carries out what is due.

INVARIANT: who carries something out has claimed it, by the database's clock, in the unit of work that moved its
schedule on. What a process had in hand when it died is taken over once its lease is over: calling a tool that may be
called twice, and leaving any other call as uncertain.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from butlers.butler import Context, Result, Tool
from butlers.schedules import NO_CLOCK_IS_RIGHT_BEFORE, Turn, due_again, turn
from butlers.sessions.runner import tell_owner
from shared.db.pool import BRIEFLY, Connection
from shared.display.quotes import in_marks
from shared.errors import ButlersError, Unavailable
from shared.loops import apart, either, first_of, pause
from shared.storage import notices, occurrences, schedules, session_list, sessions
from shared.storage.occurrences import Occurrence, Status
from shared.storage.schedules import Schedule
from shared.telemetry.logs import logger

log = logger("butlers.scheduler")
# How much of one butler is claimed at once, and how many of its tools are called at once.
BATCH: Final = 100
AT_ONCE: Final = 8
# What is not heard of in time, such as another process's new schedule, is found within this.
LOOK_SECONDS: Final = 30.0
# What could not be looked at is looked at again after so long.
FAILED_SECONDS: Final = 1.0
# The longest that a tool called by the clock may take.
CALL_SECONDS: Final = 300.0
# A tool of these names may be called again under the same occurrence: what it sends, it sends once.
REPEATABLE: Final = frozenset({"notify"})
WHY_WAITS: Final = "The session of an earlier time still waits to begin."
WHY_UNCERTAIN: Final = "The process that called the tool ended before the tool answered, so it may have happened."
Call = Callable[[str, Mapping[str, object], str], Awaitable[Result]]


@dataclass(slots=True)
class Hand:
    """One butler in the scheduler's care: how its tools are called, and what this process has claimed for it."""

    context: Context
    tools: Mapping[str, Tool]
    call: Call
    # What its butler.toml says; None once the rows follow it.
    file: Sequence[Schedule] | None
    # Whether something thinks for it; else what it is asked is ended here, since nobody runs it.
    thinks: bool = True
    held: set[str] = field(default_factory=set)
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    # Set once it is in other hands, or in none.
    left: asyncio.Event = field(default_factory=asyncio.Event)


class Scheduler:
    """The hands of this process by butler, and the calls it is waiting for."""

    def __init__(self) -> None:
        self.hands: dict[str, Hand] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._taken = asyncio.Event()

    def take(self, hand: Hand) -> None:
        """Take a butler into care, or one whose file has changed."""
        before = self.hands.get(hand.context.name)
        self.hands[hand.context.name] = hand
        if before is not None:
            hand.held = before.held
            before.left.set()
        self._taken.set()

    def drop(self, name: str) -> None:
        """Leave a butler alone; what it has in hand goes on to its end."""
        if (hand := self.hands.pop(name, None)) is not None:
            hand.left.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Carry out what is due until `stopping`, and let what was begun end; no butler waits for another's rows."""
        renewing, tended = asyncio.create_task(self._keep_renewing()), dict[str, asyncio.Task[None]]()
        try:
            while not stopping.is_set():
                self._taken.clear()
                for name in self.hands:
                    if name not in tended or tended[name].done():
                        tended[name] = asyncio.create_task(self._tend(name, stopping))
                await first_of(stopping, self._taken)
        finally:
            await asyncio.gather(*tended.values(), return_exceptions=True)
            await asyncio.gather(*self._running, return_exceptions=True)
            renewing.cancel()

    async def _tend(self, name: str, stopping: asyncio.Event) -> None:
        """Carry out what is due for one butler, as long as it is in care."""
        while not stopping.is_set() and (hand := self.hands.get(name)) is not None:
            ticket, wait = hand.context.wakes["schedules"].ticket(name), FAILED_SECONDS
            with apart(log, "what is due was not looked at", butler=name):
                wait = await self.look(hand)
            await either(wait, stopping, hand.left, ticket)

    async def look(self, hand: Hand) -> float:
        """Claim what is due for this butler and begin it; return in how many seconds to look again."""
        context = hand.context
        if hand.file is not None:
            async with context.db.work() as connection:
                await follow(connection, context.name, hand.file)
            hand.file = None
        room = BATCH - len(hand.held)
        async with context.db.work() as connection:
            claimed = await claim(connection, context, room, hand.held) if room > 0 else []
            wait = await schedules.seconds_until_next(connection, context.name)
            untold = not hand.thinks and await end_unrun(connection, context)
        if untold:
            self._begin(tell_owner(context, context.stopping))
        hand.held.update(one.id for one in claimed)
        for one in claimed:
            self._begin(self._carry_out(hand, one))
        return max(0.0 if room > 0 else 0.5, min(LOOK_SECONDS, LOOK_SECONDS if wait is None else wait))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _carry_out(self, hand: Hand, one: Occurrence) -> None:
        try:
            async with hand.limit:
                with apart(log, "an occurrence is left to whoever takes it over", occurrence=one.id):
                    await carry_out(hand, one)
        finally:
            hand.held.discard(one.id)

    async def _keep_renewing(self) -> None:
        """Keep the leases of what is in hand, as long as this process lives; no butler's wait for another's."""
        never, under_way = asyncio.Event(), dict[str, asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                for name, hand in self.hands.items():
                    if hand.held and (name not in under_way or under_way[name].done()):
                        under_way[name] = group.create_task(renew(hand))
                await pause(never, min((h.context.settings.timings.renew for h in self.hands.values()), default=2.0))


async def renew(hand: Hand) -> None:
    """Keep the leases of what is in hand for this butler; whatever holds one of its rows is not waited for long."""
    with apart(log, "leases were not renewed", butler=hand.context.name):
        async with hand.context.db.work(BRIEFLY) as connection:
            await occurrences.keep_held(
                connection, [*hand.held], hand.context.instance, hand.context.settings.timings.lease
            )


async def follow(connection: Connection, butler: str, wanted: Sequence[Schedule]) -> None:
    """Let the rows be as the butler's file says.

    INVARIANT: what repeats is due no later than at its first time from now, whatever a wrong clock has written.
    """
    now = await schedules.now(connection)
    before = {
        row["name"]: (schedules.schedule_of(row), row["next_due_at"]) for row in await schedules.of(connection, butler)
    }
    for one in wanted:
        was, waits = before.get(one.name, (None, None))
        await schedules.follow(connection, butler, one, waits, due_again(was, waits, one, now))
    await schedules.forget_others(connection, butler, [one.name for one in wanted])
    for row in await schedules.of(connection, butler) if now > NO_CLOCK_IS_RIGHT_BEFORE else ():
        # Without what has passed, it is next due at its first time from now.
        first = turn(schedules.schedule_of(row), now, now).then
        if first is not None and (row["next_due_at"] is None or row["next_due_at"] > first):
            await schedules.move(connection, row["id"], first)


async def end_unrun(connection: Connection, context: Context) -> bool:
    """End the sessions of a butler for which nothing thinks; return whether the owner has to be told of any."""
    butler, timings = context.name, context.settings.timings
    needs = await sessions.needs(connection, butler, timings.said_together, timings.session_lease)
    if needs.waiting or needs.lapsed:
        await sessions.end_unrun(connection, butler, f"Nothing thinks for {butler} any more.", timings.session_lease)
    return needs.waiting or needs.lapsed or needs.untold


async def claim(connection: Connection, context: Context, most: int, held: Collection[str] = ()) -> list[Occurrence]:
    """Claim what is due and what nobody holds any more; return what is to be carried out by this process.

    What is `held` is in this process's hands already, though its lease may be over: it is still being carried out.
    A prompt becomes a session in the same unit of work, so that it is begun exactly once. INVARIANT: of what comes
    again and again one session waits at most, so that no queue grows faster than it is worked off.
    """
    lease, name, holder = context.settings.timings.lease, context.name, context.instance
    claimed: list[Occurrence] = []
    for due in await schedules.due(connection, name, most):
        what: Turn = turn(due.schedule, due.due_at, due.now)
        await schedules.move(connection, due.id, what.then)
        comes_again = due.schedule.prompt is not None and due.schedule.cron is not None
        waits = comes_again and await session_list.waits(connection, name, due.schedule.cause)
        if waits or what.skipped:
            await occurrences.skip(connection, name, due, what.skipped or WHY_WAITS)
            continue
        occurrence = await occurrences.claim_due(connection, name, due, holder, lease)
        if occurrence is not None and due.schedule.prompt is not None:
            await _enqueue(connection, context, occurrence)
        elif occurrence is not None:
            claimed.append(occurrence)
    claimed += await occurrences.take_over(connection, name, holder, lease, most, held)
    return claimed


async def _enqueue(connection: Connection, context: Context, one: Occurrence) -> None:
    session_id = context.new_id()
    await sessions.enqueue(
        connection,
        session_id=session_id,
        butler=context.name,
        cause=one.schedule.cause,
        prompt=one.schedule.prompt or "",
        occurrence_id=one.id,
    )
    await occurrences.write_end(
        connection, one.id, context.instance, "done", f"The session {session_id} has its prompt."
    )


async def carry_out(hand: Hand, one: Occurrence) -> None:
    """Call the occurrence's tool and write how it went, and tell the butler unless it went well.

    Nothing is called that may have been and must not be twice.
    """
    context, name = hand.context, one.schedule.tool or ""
    if (tool := hand.tools.get(name)) is None:
        status: Status = "failed"
        outcome = f"The butler has no tool `{name}`."
    elif one.begun and not _may_repeat(tool):
        status, outcome = "uncertain", WHY_UNCERTAIN
    else:
        async with context.db.work() as connection:
            if not await occurrences.start_call(connection, one.id, context.instance, context.settings.timings.lease):
                return
        status, outcome = await _call(hand, tool, one)
    if status != "done":
        log.warning("a schedule's call did not go well", schedule=one.schedule.name, status=status, why=outcome)
    async with context.db.work() as connection:
        if await occurrences.write_end(connection, one.id, context.instance, status, outcome) and status != "done":
            due = f"What your schedule `{one.schedule.name}` had due has ended as {status}: {in_marks(outcome, 300)}"
            # What fails again and again begins a session until its butler was told so.
            wakes = not await occurrences.failure_is_told(connection, one.id)
            await notices.add(
                connection, context.name, notices.Notice("schedule", status, due, one.schedule.name, wakes=wakes)
            )


def _may_repeat(tool: Tool) -> bool:
    return tool.read_only or tool.name in REPEATABLE


async def _call(hand: Hand, tool: Tool, one: Occurrence) -> tuple[Status, str]:
    """Call the tool as the butler itself; return how it went, in a sentence of ours."""
    arguments = with_lineage(one) if tool.name in REPEATABLE else one.schedule.arguments
    try:
        async with asyncio.timeout(CALL_SECONDS):
            result = await hand.call(tool.name, arguments, one.id)
    except ButlersError as refused:
        if refused.retryable and _may_repeat(tool):
            raise
        return "failed", str(refused)
    except TimeoutError:
        return "uncertain", f"The tool did not answer within {CALL_SECONDS:.0f} seconds."
    except Exception as bug:
        log.exception("a tool called by the clock broke", tool=tool.name)
        return "failed", f"The tool broke ({type(bug).__name__}); the log says where."
    return _how_it_went(result, tool)


def _how_it_went(result: Result, tool: Tool) -> tuple[Status, str]:
    """Read the tool's answer; raise Unavailable where nothing was done and the same call later may do it."""
    answer = result.answer or {}
    error = answer.get("error")
    if not result.is_error and answer.get("status") != "error":
        return "done", str(answer.get("status") or "The tool answered.")
    said = str(error.get("message") if isinstance(error, Mapping) else error or "The tool answered with an error.")
    if _may_repeat(tool) and isinstance(error, Mapping) and error.get("retryable") is True:
        raise Unavailable(said, "It is called again.")
    return "failed", said


def with_lineage(one: Occurrence) -> Mapping[str, object]:
    """Return the arguments of `notify` under the occurrence, so that it goes out once, and the next one again."""
    arguments = one.schedule.arguments
    known = dict(context) if isinstance(context := arguments.get("request_context"), Mapping) else {}
    return {**arguments, "request_context": {**known, "idempotency_key": f"occurrence:{one.id}"}}
