"""The core tool `notification_status`: how a message, or a call of a gated tool, stands.

It speaks of the butler's own only; of a message it answers with the stored notify_response.v1.
"""

import asyncio
import time
from collections.abc import Awaitable, Collection, Mapping
from typing import Final

from butlers.butler import Answer, Arguments, Components, Context, Module, Result, Tool, ToolCall
from shared import answers
from shared.auth.tokens import Caller
from shared.contracts import NotifyResponse, wire
from shared.errors import ButlersError, Forbidden, InvalidInput
from shared.loops import pause
from shared.storage import keyring, standing, tool_calls

OPEN: Final = frozenset({"queued", "pending_approval", "pending_missing_identifier"})
ID: Final = {"type": "string", "description": "The notification_id (or action_id) that notify returned."}

STATUS_DESCRIPTION: Final = (
    "How one of your notifications, or of your calls that needed approval, stands now. With wait_seconds (at most 50) "
    "it answers as soon as there is an outcome, or how it stands then."
)

USE: Final = "Give the id that notify returned."


def status_tool(context: Context) -> Tool:
    """Make the tool as every butler has it."""

    async def notification_status(call: ToolCall) -> Result:
        return await answered(_status(context, call))

    longest = context.settings.timings.status_wait
    wait = {
        "type": "number",
        "minimum": 0,
        "maximum": longest,
        "description": f"Seconds to wait for an outcome, at most {longest:.0f}.",
    }
    return Tool(
        "notification_status",
        STATUS_DESCRIPTION,
        parameters(notification_id=ID, wait_seconds=wait),
        notification_status,
        read_only=True,
    )


def parameters(**properties: Mapping[str, object]) -> Mapping[str, object]:
    """Return the schema of a tool that takes the id of one notification."""
    return {"type": "object", "properties": properties, "required": ["notification_id"]}


async def answered(asked: Awaitable[NotifyResponse | Answer]) -> Result:
    """Return what was asked for; an error becomes an answer like any other, and nothing has changed.

    Who may not ask is refused as at any call, with a line in the audit.
    """
    try:
        found = await asked
        return Result(wire(found) if isinstance(found, NotifyResponse) else found)
    except InvalidInput as wrong:
        return Result({"status": "error", "error": str(wrong)})
    except Forbidden:
        raise
    except ButlersError as failed:
        said = f"{failed} Nothing was changed."
        return Result(wire(answers.failed(None, "target_unavailable", said, retryable=True)))


async def _status(context: Context, call: ToolCall) -> NotifyResponse | Answer:
    arguments, timings, waited = call.arguments, context.settings.timings, False
    notification_id = id_of(arguments, {"notification_id", "wait_seconds"})
    deadline = time.monotonic() + wait_seconds(arguments.get("wait_seconds"), timings.status_wait)
    while True:
        ticket = context.wakes["settled"].ticket(notification_id)
        answer = await _stands(context, notification_id)
        status = answer.status if isinstance(answer, NotifyResponse) else answer["status"]
        if status not in OPEN or not await wait_for_news(context, ticket, deadline, timings.outcome_again):
            if waited:
                await demand_counting(context, call.caller)
            return answer
        waited = True


async def demand_counting(context: Context, caller: Caller) -> None:
    """Raise Forbidden where a client's token or a session came to its end, or is to, while its call waited."""
    async with context.db.work() as connection:
        if await keyring.is_over(connection, caller.jti):
            raise Forbidden("The token does not count any more, or its session is being stopped.", "End here.")


async def _stands(context: Context, about: str) -> NotifyResponse | Answer:
    """Return how a notification of this butler stands, or a call of one of its gated tools."""
    try:
        return await own(context, about)
    except InvalidInput:
        async with context.db.work() as connection:
            call = await tool_calls.own_call(connection, about, context.name)
        if call is None:
            raise
    return answers.call_stands(dict(call))


async def own(context: Context, notification_id: str) -> NotifyResponse:
    """Return how a notification of this very butler stands; raise InvalidInput if it has none of that id."""
    async with context.db.work() as connection:
        found = await standing.own(connection, notification_id, context.name)
    if found is None:
        raise InvalidInput(
            f"You have no notification '{notification_id[:60]}'.", "Use the notification_id that notify returned."
        )
    return found


async def wait_for_news(context: Context, ticket: asyncio.Event, deadline: float, soon: float) -> bool:
    """Wait for the ticket, at most `soon` seconds; return whether it is worth looking again.

    That is false if the deadline (monotonic) had passed already, or the process is told to stop.
    """
    left = deadline - time.monotonic()
    if left <= 0 or context.stopping.is_set():
        return False
    await pause(ticket, min(soon, left))
    return True


def demand_known(arguments: Arguments, known: Collection[str]) -> None:
    """Raise InvalidInput for a parameter that is none of these."""
    for name in arguments:
        if name not in known:
            raise InvalidInput(f"Unknown parameter '{str(name)[:60]}'.", f"Choose from: {', '.join(known)}.")


def id_of(arguments: Arguments, known: Collection[str], name_of_id: str = "notification_id", use: str = USE) -> str:
    """Return the id that was given; raise InvalidInput without one, or for a parameter that is not `known`."""
    demand_known(arguments, sorted(known))
    given = arguments.get(name_of_id)
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput(f"Missing required '{name_of_id}' parameter.", use)
    return given.strip().lower()


def wait_seconds(given: object, longest: float) -> float:
    """Return for how many seconds to wait, as it was given; raise InvalidInput for what is no such number."""
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= longest:
        raise InvalidInput(
            f"'wait_seconds' must be a number from 0 to {longest:.0f}.", "Leave it out for an immediate answer."
        )
    return float(given)


MODULE: Final = Module("notification_status", lambda context, _: Components([status_tool(context)]))
