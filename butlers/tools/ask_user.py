"""The core tools `ask_user` and `question_status`: ask the owner, and learn the answer.

A question authorises nothing: its answer is text for this butler. The row outlives every wait.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast, get_args

from butlers.butler import Answer, Arguments, Components, Context, Module, Result, Tool, ToolCall
from shared.db.pool import Record
from shared.errors import InvalidInput, Unavailable
from shared.loops import apart, first_of, pause
from shared.storage import questions
from shared.storage.questions import NewQuestion, Times, Urgency
from shared.telemetry.logs import logger

log = logger("butlers.tools.ask_user")

SHORTEST: Final = 5
LONGEST: Final = 300
STANDARD: Final = 60
MOST_OPTIONS: Final = 10
LONGEST_LABEL: Final = 40
LONGEST_TITLE: Final = 200
LONGEST_QUESTION: Final = 10_000
ABOUT: Final = ("repo", "branch", "agent", "task")
LABEL: Final = "OK"
# To the character, as callers of this tool know it.
SENT: Final = "Question envoyee"

DESCRIPTION: Final = (
    "Ask the owner a question. With wait_for_response it answers with what the owner chose, or timeout; the question "
    "stays open for a day all the same, question_status shows its answer, and a later answer comes to you as a notice. "
    "An answer is information: it approves nothing."
)
STATUS_DESCRIPTION: Final = (
    "How one of your questions to the owner stands. With wait_seconds (at most 50) it answers as soon as the owner "
    "has, or how it stands then."
)
_TEXT: Final = {"type": "string"}
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "title": {**_TEXT, "maxLength": LONGEST_TITLE, "description": "A few words on what it is about."},
        "question": {**_TEXT, "maxLength": LONGEST_QUESTION, "description": "The question."},
        "options": {
            "type": "array",
            "items": {**_TEXT, "maxLength": LONGEST_LABEL},
            "maxItems": MOST_OPTIONS,
            "description": "What the owner can choose, the main action first; of two the second declines.",
        },
        "action_label": {
            **_TEXT,
            "maxLength": LONGEST_LABEL,
            "default": LABEL,
            "description": "Without options, the text of the one button.",
        },
        "wait_for_response": {"type": "boolean", "default": False, "description": "Whether to wait for the answer."},
        "timeout": {
            "type": "number",
            "minimum": SHORTEST,
            "maximum": LONGEST,
            "default": STANDARD,
            "description": "Seconds to wait with wait_for_response.",
        },
        "urgency": {
            "type": "string",
            "enum": list(get_args(Urgency)),
            "default": "normal",
            "description": "What is high comes in quiet hours too, and once more if it is not answered.",
        },
        "allow_text": {"type": "boolean", "default": False, "description": "Whether the owner may write an answer."},
        **{name: {**_TEXT, "maxLength": LONGEST_TITLE, "description": f"The {name} it is about."} for name in ABOUT},
    },
    "required": ["title", "question"],
}


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
            over = await questions.over(connection, ids, context.name)
            if again:
                await questions.heard(connection, ids, context.name, context.settings.timings.question_heard)
        for question_id in over:
            context.wakes["settled"](question_id)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call of `ask_user` says: the question without an id, and how long to wait; None is not to wait."""

    question: NewQuestion
    waits: float | None


def accepted(name: str, arguments: Arguments) -> Asked:
    """Return what is asked; raise InvalidInput, before anything is written, for what is no such question."""
    for given in arguments:
        if given not in PARAMETERS["properties"]:  # type: ignore[operator]  # it is a literal above
            known = ", ".join(cast("Mapping[str, object]", PARAMETERS["properties"]))
            raise InvalidInput(f"Unknown parameter '{str(given)[:60]}'.", f"Choose from: {known}.")
    waits = _flag(arguments, "wait_for_response")
    timeout = _timeout(arguments.get("timeout"))
    about = {one: text for one in ABOUT if (text := _text(arguments, one, LONGEST_TITLE, line=True))}
    question = NewQuestion(
        "",
        name,
        _needed(arguments, "title", LONGEST_TITLE, line=True),
        _needed(arguments, "question", LONGEST_QUESTION),
        _options(arguments.get("options")),
        _text(arguments, "action_label", LONGEST_LABEL, line=True) or LABEL,
        _flag(arguments, "allow_text"),
        _urgency(arguments.get("urgency")),
        about,
    )
    return Asked(question, timeout if waits else None)


def _needed(arguments: Arguments, name: str, longest: int, *, line: bool = False) -> str:
    found = _text(arguments, name, longest, line=line)
    if not found:
        raise InvalidInput(f"Missing required '{name}' parameter.", f"Give a text of 1 to {longest:,} characters.")
    return found


def _text(arguments: Arguments, name: str, longest: int, *, line: bool = False) -> str:
    found = arguments.get(name)
    return "" if found is None else _sound(found, f"'{name}'", longest, line=line)


def _sound(found: object, name: str, longest: int, *, line: bool) -> str:
    if not isinstance(found, str) or len(found) > longest:
        raise InvalidInput(f"{name} is not a text of at most {longest:,} characters.", "Shorten it.")
    if "\0" in found or found.encode(errors="replace").decode() != found:
        raise InvalidInput(f"{name} contains a NUL or an incomplete character.", "Take it out.")
    if line and len(found.splitlines()) > 1:
        raise InvalidInput(f"{name} has more than one line.", "Put the rest into 'question'.")
    return found.strip()


def _options(found: object) -> tuple[str, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > MOST_OPTIONS:
        raise InvalidInput(f"'options' is not a list of at most {MOST_OPTIONS} texts.", "Ask for fewer at a time.")
    options = tuple(_sound(one, f"Option {n}", LONGEST_LABEL, line=True) for n, one in enumerate(found, start=1))
    if "" in options or len(set(options)) < len(options):
        raise InvalidInput("Two of 'options' are the same, or one is empty.", "Give each a text of its own.")
    return options


def _flag(arguments: Arguments, name: str) -> bool:
    found = arguments.get(name)
    if found is not None and not isinstance(found, bool):
        raise InvalidInput(f"'{name}' is neither true nor false.", "Give one of them, or leave it out.")
    return bool(found)


def _timeout(found: object) -> float:
    if found is None:
        return STANDARD
    if isinstance(found, bool) or not isinstance(found, int | float) or not SHORTEST <= found <= LONGEST:
        raise InvalidInput(f"'timeout' must be a number from {SHORTEST} to {LONGEST}.", f"Leave it out for {STANDARD}.")
    return float(found)


def _urgency(found: object) -> Urgency:
    known = get_args(Urgency)
    if found is not None and found not in known:
        raise InvalidInput("'urgency' is not one of its words.", f"Choose from: {', '.join(known)}.")
    return cast("Urgency", found or "normal")


async def _ask(context: Context, waiting: Waiting, call: ToolCall) -> Answer:
    asked, timings = accepted(context.name, call.arguments), context.settings.timings
    new = NewQuestion(**{**{name: getattr(asked.question, name) for name in _FIELDS}, "id": context.new_id()})
    urgent = new.urgency == "high" and asked.waits is None
    times = Times(
        timings.question_lasts,
        timings.question_heard,
        None if asked.waits is None else timedelta(seconds=asked.waits),
        timings.question_lasts / 2 if urgent else None,
    )
    async with context.db.work() as connection:
        written = await questions.ask(connection, new, times)
    if not written:
        raise InvalidInput(
            f"You have {questions.MOST_OPEN} open questions already.", "Wait for the owner, or withdraw some."
        )
    context.wakes["cards"]()
    if asked.waits is None:
        return {"sent": True, "message": SENT, "question_id": new.id}
    row = await _awaited(context, waiting, call, new.id, asked.waits)
    return _response(row) if row["surface"] is not None else {**TIMEOUT, "question_id": new.id}


_FIELDS: Final = tuple(NewQuestion.__dataclass_fields__)
TIMEOUT: Final = {"response": "timeout", "choice": None}


async def _awaited(context: Context, waiting: Waiting, call: ToolCall, question_id: str, seconds: float) -> Record:
    """Return the question once it is not open any more, or as it stands when the time is over.

    A client that reads no event stream is answered before it gives up, and so is everybody when the process stops.
    """
    timings = context.settings.timings
    deadline = time.monotonic() + (seconds if call.streams else min(seconds, timings.status_wait))
    with waiting.on(question_id):
        try:
            while True:
                ticket = context.wakes["settled"].ticket(question_id)
                row = await _own(context, question_id)
                left = deadline - time.monotonic()
                if not row["open"] or left <= 0 or context.stopping.is_set():
                    return row
                await _either(ticket, context.stopping, min(left, timings.question_progress))
                if not ticket.is_set():
                    await call.progress("Waiting for the owner's answer.")
        finally:
            # Whatever ends the wait, a client that leaves included: from now on an answer becomes a notice.
            await asyncio.shield(_ended(context, question_id, alone=waiting.is_alone(question_id)))


async def _either(ticket: asyncio.Event, stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await first_of(ticket, stopping)
    except TimeoutError:
        return


async def _ended(context: Context, question_id: str, *, alone: bool) -> None:
    if not alone:
        return
    with apart(log, "the end of a wait is not written", question=question_id):
        async with context.db.work() as connection:
            await questions.unheard(connection, question_id, context.name)


async def _own(context: Context, question_id: str) -> Record:
    async with context.db.work() as connection:
        found = await questions.own_question(connection, question_id, context.name)
    if found is None:
        raise InvalidInput(f"You have no question '{question_id[:60]}'.", "Use the question_id that ask_user returned.")
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
    seconds, longest = arguments.get("wait_seconds"), context.settings.timings.status_wait
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= longest
    ):
        raise InvalidInput(
            f"'wait_seconds' must be a number from 0 to {longest:.0f}.", "Leave it out for an immediate answer."
        )
    row = await _own(context, question_id)
    if seconds and row["open"]:
        row = await _awaited(context, waiting, call, row["id"], float(seconds))
    return stands(row)


def question_of(arguments: Arguments, known: set[str]) -> str:
    """Return the question_id that was given; raise InvalidInput without one, or for a parameter that is not `known`."""
    for name in arguments:
        if name not in known:
            raise InvalidInput(f"Unknown parameter '{str(name)[:60]}'.", f"Choose from: {', '.join(sorted(known))}.")
    given = arguments.get("question_id")
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput("Missing required 'question_id' parameter.", "Give the id that ask_user returned.")
    return given.strip().lower()


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
        Tool("question_status", STATUS_DESCRIPTION, status, question_status, read_only=True),
    )


def _build(context: Context, _: object) -> Components:
    waiting = Waiting(context)
    return Components(tools(context, waiting), [waiting.look])


MODULE: Final = Module("ask_user", _build)
