"""Butlers ask one another, `ask_butler` and `butler_answer`, or tell: `tell_butler`; `route.execute` takes prompts in.

INVARIANT: whom a butler may ask is the owner's list, which the Switchboard goes by. What is asked in a session belongs
to its chain, which is bounded in depth and in each butler's share of it: butlers cannot ask each other for ever. Where
in a chain a session stands, the Switchboard reads in the row of the session that asks.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID, uuid5

from pydantic import ValidationError

from butlers.butler import Answer, Arguments, Components, Context, Result, Tool, ToolCall
from butlers.tools.notification_status import wait_for_news, wait_seconds
from shared import answers
from shared.contracts import (
    AskedSession,
    Asking,
    RequestContext,
    RouteEnvelope,
    RouteInput,
    RouteResponse,
    RouteResult,
    RouteTarget,
    TellRequest,
    Timing,
    describe,
    wire,
)
from shared.db.pool import BRIEFLY, NOW_HELD
from shared.errors import ButlersError, Forbidden, InvalidInput, Locked
from shared.storage import session_list, sessions

OPEN: Final = frozenset({"waiting", "running"})
ASK: Final = (
    "Ask another butler to do or to find out something. It answers at once with a session_id; butler_answer tells what "
    "came of it. In one session the same words to the same butler are asked once."
)
ANSWER: Final = (
    "What came of a session that you asked of another butler: its status, and its outcome once it has ended. With "
    "wait_seconds it answers as soon as that is so, or how it stands then."
)
TELL: Final = (
    "Let another butler know something. It begins no work: the other reads it with its next tool result, or when it "
    "works next, within a day."
)
LONGEST_NEWS: Final = 4000
# How long a prompt waits for another one of the same asker.
MOST_SECONDS: Final = 2
PROMPTED: Final = "Take in a route.v1 with a prompt: a session of this butler."


def asking(context: Context, others: Sequence[str]) -> Components:
    """Make what takes prompts in, and, for a butler that may ask others, what asks them."""
    # By who asks: held as long as a prompt of that butler's is written down.
    askers = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def execute(call: ToolCall) -> Result:
        return Result(wire(await take_in(context, call, askers)))

    async def ask_butler(call: ToolCall) -> Result:
        return Result(await ask(context, call))

    async def butler_answer(call: ToolCall) -> Result:
        return Result(await answer(context, call.arguments))

    async def tell_butler(call: ToolCall) -> Result:
        return Result(await tell(context, call.arguments))

    whom = {"type": "string", "enum": list(others), "description": "The butler."}
    what = {"type": "string", "maxLength": sessions.LONGEST_PROMPT, "description": "What it is to do, in plain words."}
    news = {"type": "string", "maxLength": LONGEST_NEWS, "description": "What it is to know, in plain words."}
    which = {"type": "string", "description": "The session_id that ask_butler returned."}
    longest = context.settings.timings.status_wait
    wait = {"type": "number", "minimum": 0, "maximum": longest, "description": "Seconds to wait for the outcome."}
    tools = [Tool("route.execute", PROMPTED, {"type": "object", "additionalProperties": True}, execute, hop=True)]
    if others:
        tools += [
            Tool("tell_butler", TELL, _schema({"butler": whom, "text": news}, "butler", "text"), tell_butler),
            Tool("ask_butler", ASK, _schema({"butler": whom, "prompt": what}, "butler", "prompt"), ask_butler),
            Tool(
                "butler_answer",
                ANSWER,
                _schema({"session_id": which, "wait_seconds": wait}, "session_id"),
                butler_answer,
                read_only=True,
            ),
        ]
    return Components(tools)


def _schema(properties: Answer, *required: str) -> Answer:
    return {"type": "object", "properties": properties, "required": list(required)}


async def ask(context: Context, call: ToolCall) -> Answer:
    """Bring a prompt to the Switchboard, which lets it through or refuses it; return the session it becomes."""
    target, prompt = _text(call.arguments, "butler"), _text(call.arguments, "prompt")
    asked = _asking(context, call.caller.session, f"{target}\n{prompt}")
    try:
        envelope = RouteEnvelope(
            request_context=RequestContext(
                request_id=str(asked.session_id),
                source_channel="mcp",
                source_endpoint_identity="switchboard",
                source_sender_identity=context.name,
            ),
            target=RouteTarget(butler=target),
            input=RouteInput(prompt=prompt, context=wire(asked)),
        )
    except ValidationError as wrong:
        raise InvalidInput(describe(wrong), "Name a butler and say in plain text what it is to do.") from None
    wait = context.settings.timings.butler_wait
    told = await context.daemons.call_for("switchboard", "route", wire(envelope), wait, RouteResponse)
    if told.error is not None:
        raise ButlersError(told.error.message, code=told.error.error_class)
    return {"status": "accepted", "session_id": str(asked.session_id), "butler": target}


async def tell(context: Context, arguments: Arguments) -> Answer:
    """Bring news to the Switchboard, which makes it a notice of the other butler or refuses it."""
    try:
        news = TellRequest(butler=_text(arguments, "butler"), text=_text(arguments, "text"))
    except ValidationError as wrong:
        raise InvalidInput(describe(wrong), "Name a butler and say in plain text what it is to know.") from None
    answer = await context.daemons.call("switchboard", "tell", wire(news), context.settings.timings.butler_wait)
    if answer.get("status") != "ok":
        raise ButlersError(str(answer.get("error")), code=str(answer.get("code")))
    return {"status": "ok", "butler": news.butler}


def _asking(context: Context, session: str | None, words: str) -> Asking:
    """Return the session to be, which in a session has the same id for the same words."""
    if session is None:
        return Asking(session_id=UUID(context.new_id()))
    return Asking(session_id=uuid5(UUID(session), words), asked_in=UUID(session))


async def answer(context: Context, arguments: Arguments) -> Answer:
    """Return how a session stands that this butler asked of another, once it has ended or the wait is over."""
    session_id, timings = _text(arguments, "session_id"), context.settings.timings
    deadline = time.monotonic() + wait_seconds(arguments.get("wait_seconds"), timings.status_wait)
    while True:
        async with context.db.work() as connection:
            found = await session_list.asked_session(connection, context.name, session_id)
        if found is None:
            raise InvalidInput("You have asked no such session.", "Use the session_id that ask_butler returned.")
        never = asyncio.Event()
        if found["status"] not in OPEN or not await wait_for_news(context, never, deadline, timings.outcome_again):
            return dict(found)


def _text(arguments: Arguments, name: str) -> str:
    given = arguments.get(name)
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput(f"Missing required '{name}' parameter.", "Give it as text.")
    return given.strip()


@asynccontextmanager
async def _turn(lock: asyncio.Lock) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(MOST_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise Locked(*NOW_HELD) from None
    try:
        yield
    finally:
        lock.release()


async def take_in(context: Context, call: ToolCall, askers: Mapping[str, asyncio.Lock]) -> RouteResponse:
    """Put the prompt of a route.v1 into this butler's queue, once; only the Switchboard brings one.

    Prompts of one asker are written one after the other, and one that waits for long is refused: who asks may hold the
    ids, and takes one of this butler's connections then.
    """
    if call.caller.name != "switchboard":
        raise Forbidden(f"{call.caller.name} may not bring a prompt.", "Prompts come through the Switchboard.")
    started, error, result = time.perf_counter(), None, None
    about: Answer = {}
    try:
        route = RouteEnvelope.model_validate(call.arguments)
        about = route.request_context.model_dump(exclude_none=True)
        asked = AskedSession.model_validate(route.input.context)
        async with _turn(askers[asked.asked_by]), context.db.work(BRIEFLY) as connection:
            await session_list.demand_room(connection, context.name, asked)
            await sessions.enqueue_asked(connection, asked, context.name, route.input.prompt or "")
        result = RouteResult(session_id=str(asked.session_id))
    except ValidationError as wrong:
        error = answers.failure_of(InvalidInput(describe(wrong)))
    except (InvalidInput, Forbidden) as refused:
        error = answers.failure_of(refused)
    return RouteResponse(
        request_context=about,
        status="error" if error else "accepted",
        result=result,
        error=error,
        timing=Timing(duration_ms=round((time.perf_counter() - started) * 1000, 3)),
    )
