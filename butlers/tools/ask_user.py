"""The core tools `ask_user` and `question_status`: ask the owner, and learn the answer.

A question authorises nothing: its answer is text for this butler. The row outlives every wait.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from butlers.butler import Answer, Arguments, Components, Context, Module, Result, Tool, ToolCall
from butlers.tools.notification_status import demand_counting, id_of, wait_seconds
from butlers.tools.question import PARAMETERS, AskedQuestion, accepted
from shared.db.pool import Record
from shared.errors import InvalidInput, Unavailable
from shared.loops import apart, either, first_of, pause
from shared.storage import questions, schedules
from shared.storage.questions import Times
from shared.telemetry.logs import logger

log = logger("butlers.tools.ask_user")

# To the character, as callers of this tool know it.
SENT: Final = "Question envoyee"
DESCRIPTION: Final = (
    "Ask the owner a question. With wait_for_response it answers with what the owner chose, or timeout; the question "
    "stays open for a day all the same, question_status shows its answer, and a later answer comes to you as a notice. "
    "An answer is information: it approves nothing."
)
USE: Final = "Use the question_id that ask_user returned."
STATUS_DESCRIPTION: Final = (
    "How one of your questions to the owner stands. With wait_seconds (at most 50) it answers as soon as the owner "
    "has, or how it stands then."
)


class Waiting:
    """The questions of one daemon for whose answers somebody waits: one look finds those of all, and says so in rows.

    So a call that waits holds no connection, and costs no statement of its own.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids: Counter[str] = Counter()
        self._begun = asyncio.Event()

    @contextmanager
    def on(self, question_id: str) -> Iterator[None]:
        """Count as waiting for this one as long as the block lasts."""
        self._ids[question_id] += 1
        self._begun.set()
        try:
            yield
        finally:
            self._ids -= Counter([question_id])

    def is_alone(self, question_id: str) -> bool:
        """Return whether nobody else waits for this one."""
        return self._ids[question_id] <= 1

    async def look(self, stopping: asyncio.Event) -> None:
        """Wake those who wait for what is over, and say in rows that the others wait, until stopping."""
        timings, said = self._context.settings.timings, 0.0
        while not stopping.is_set():
            if not self._ids:
                self._begun.clear()
                await first_of(self._begun, stopping)
            elif not await pause(stopping, timings.question_look):
                again = time.monotonic() - said >= timings.question_heard.total_seconds() / 3
                with apart(log, "nobody looked for answers"):
                    await self._look_once(list(self._ids), again=again)
                said = time.monotonic() if again else said

    async def _look_once(self, ids: Sequence[str], *, again: bool) -> None:
        context = self._context
        async with context.db.work() as connection:
            over = await questions.closed_of(connection, ids, context.name)
            if again:
                await questions.heard(connection, ids, context.name, context.settings.timings.question_heard)
        for question_id in over:
            context.wakes["settled"](question_id)


async def _ask(context: Context, waiting: Waiting, call: ToolCall) -> Answer:
    asked = accepted(context.new_id(), context.name, call.arguments)
    await write_question(context, asked)
    question_id = asked.question.id
    if asked.waits is None:
        return {"sent": True, "message": SENT, "question_id": question_id}
    row = await awaited(context, waiting, call, question_id, asked.waits)
    return _response(row) if row["surface"] is not None else {**TIMEOUT, "question_id": question_id}


async def write_question(context: Context, asked: AskedQuestion) -> None:
    """Write the question down for every surface; raise InvalidInput if its butler has too many open."""
    new, timings = asked.question, context.settings.timings
    waits = None if asked.waits is None else timedelta(seconds=asked.waits)
    reminds = timings.question_lasts / 2 if new.urgency == "high" else None
    async with context.db.work() as connection:
        quiet = None if new.urgency == "high" else context.settings.quiet_hours
        held = timedelta(0) if quiet is None else quiet.left(await schedules.now(connection))
        times = Times(timings.question_lasts, timings.question_heard, waits, reminds, held)
        written = await questions.ask(connection, new, times)
    if not written:
        raise InvalidInput(
            f"You have {questions.MOST_OPEN} open questions already.", "Wait for the owner, or withdraw some."
        )
    context.wakes["cards"]()


TIMEOUT: Final = {"response": "timeout", "choice": None}


async def awaited(context: Context, waiting: Waiting, call: ToolCall, question_id: str, seconds: float) -> Record:
    """Return the question once it is not open any more, or as it stands when the time is over.

    A client that reads no event stream is answered before it gives up, and so is everybody when the process stops.
    Whoever reads nothing is answered at once.
    """
    longest = seconds if call.streams else min(seconds, context.settings.timings.status_wait)
    deadline = time.monotonic() + (longest if call.reads else 0)
    taken = False
    with waiting.on(question_id):
        try:
            while True:
                ticket = context.wakes["settled"].ticket(question_id)
                row = await _own(context, question_id)
                left = deadline - time.monotonic()
                if not row["open"] or left <= 0 or context.stopping.is_set():
                    if row["surface"] is not None:
                        await demand_counting(context, call.caller)
                    taken = row["surface"] is not None
                    return row
                await _until_news(context, call, ticket, deadline)
        finally:
            # Whatever ends the wait, a client that leaves included: an answer that nobody took becomes a notice.
            if taken or waiting.is_alone(question_id):
                await asyncio.shield(_heard_out(context, question_id, taken=taken))


async def _until_news(context: Context, call: ToolCall, ticket: asyncio.Event, deadline: float) -> None:
    """Wait for the ticket, the deadline or the end of the process, with signs of life; no statement is its own."""
    while not (ticket.is_set() or context.stopping.is_set()) and (left := deadline - time.monotonic()) > 0:
        await either(min(left, context.settings.timings.question_progress), ticket, context.stopping)
        if not ticket.is_set() and time.monotonic() < deadline:
            await call.progress("Waiting for the owner's answer.")


async def _heard_out(context: Context, question_id: str, *, taken: bool) -> None:
    with apart(log, "the end of a wait is not written", question=question_id):
        async with context.db.work() as connection:
            await questions.heard_out(connection, question_id, context.name, taken=taken)


async def _own(context: Context, question_id: str) -> Record:
    async with context.db.work() as connection:
        found = await questions.own_question(connection, question_id, context.name)
    if found is None:
        raise InvalidInput(f"You have no question '{question_id[:60]}'.", USE)
    return found


def _response(row: Record) -> Answer:
    """Return what the owner answered, and by which surface."""
    answer: dict[str, object] = {"response": row["status"], "choice": row["choice"], "question_id": row["id"]}
    answer["channel"] = row["surface"]
    if row["option_index"] is not None:
        answer["option_index"] = row["option_index"]
    if row["typed"]:
        answer["text"] = row["choice"]
    return answer


def stands(row: Record) -> Answer:
    """Return how a question stands, with its answer if there is one, and whether that came after its deadline."""
    if row["surface"] is None:
        return {"status": row["status"], "question_id": row["id"]}
    return {"status": "answered", **_response(row), **({"late": True} if row["late"] else {})}


async def _status(context: Context, waiting: Waiting, call: ToolCall) -> Answer:
    arguments = call.arguments
    question_id = question_of(arguments, {"question_id", "wait_seconds"})
    seconds = wait_seconds(arguments.get("wait_seconds"), context.settings.timings.status_wait)
    row = await _own(context, question_id)
    if seconds and row["open"]:
        row = await awaited(context, waiting, call, row["id"], seconds)
    return stands(row)


def question_of(arguments: Arguments, known: set[str]) -> str:
    """Return the question_id that was given; raise InvalidInput without one, or for a parameter that is not `known`."""
    return id_of(arguments, known, "question_id", USE)


async def _answered(asked: Awaitable[Answer]) -> Result:
    try:
        return Result(await asked)
    except (InvalidInput, Unavailable) as wrong:
        return Result({"status": "error", "error": str(wrong)})


def tools(context: Context, waiting: Waiting) -> Sequence[Tool]:
    """Make the two tools as every butler has them."""

    async def ask_user(call: ToolCall) -> Result:
        return await _answered(_ask(context, waiting, call))

    async def question_status(call: ToolCall) -> Result:
        return await _answered(_status(context, waiting, call))

    longest = context.settings.timings.status_wait
    wait = {
        "type": "number",
        "minimum": 0,
        "maximum": longest,
        "description": f"Seconds to wait for the answer, at most {longest:.0f}.",
    }
    which = {"type": "string", "description": "The question_id that ask_user returned."}
    status = {"type": "object", "properties": {"question_id": which, "wait_seconds": wait}, "required": ["question_id"]}
    return (
        Tool("ask_user", DESCRIPTION, PARAMETERS, ask_user, waits=True),
        Tool("question_status", STATUS_DESCRIPTION, status, question_status, read_only=True, waits=True),
    )


def _build(context: Context, _: object) -> Components:
    waiting = Waiting(context)
    return Components(tools(context, waiting), [waiting.look])


MODULE: Final = Module("ask_user", _build)
