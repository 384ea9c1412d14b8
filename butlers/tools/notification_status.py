"""The core tools `notification_status` and `withdraw`: how a message stands, and taking it back.

Both speak of the butler's own notifications only, and answer with the stored notify_response.v1.
"""

import asyncio
import time
from collections.abc import Awaitable, Collection, Mapping
from typing import Final

from butlers.butler import Answer, Arguments, Ground, Tool
from shared import answers
from shared.auth.tokens import Caller
from shared.contracts import NotifyResponse, wire
from shared.db.wake import tell
from shared.errors import ButlersError, InvalidInput
from shared.loops import pause
from shared.storage import standing, withdrawals

LONGEST_WAIT: Final = 50.0
WITHDRAW_SECONDS: Final = 5.0
# How often the rows are looked at: nobody tells a process what another one has settled.
POLL_SECONDS: Final = 0.5
WITHDRAW_POLL_SECONDS: Final = 0.2
OPEN: Final = frozenset({"queued", "pending_approval", "pending_missing_identifier"})
ID: Final = {"type": "string", "description": "The notification_id (or action_id) that notify answered with."}

STATUS_DESCRIPTION: Final = (
    "How one of your notifications stands now. With wait_seconds (at most 50) it answers as soon as there is an "
    "outcome, or how it stands then."
)
WITHDRAW_DESCRIPTION: Final = (
    "Take back one of your notifications. What is not being sent yet never goes out; anything else is answered as "
    "it stands."
)


def status_tools(ground: Ground) -> list[Tool]:
    """The two tools as every butler has them."""

    async def notification_status(_: Caller, arguments: Arguments) -> Answer:
        return await _answered(_status(ground, arguments))

    async def withdraw(_: Caller, arguments: Arguments) -> Answer:
        return await _answered(_withdraw(ground, arguments))

    wait = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "description": "Seconds to wait for an outcome."}
    return [
        Tool(
            "notification_status",
            STATUS_DESCRIPTION,
            _parameters(notification_id=ID, wait_seconds=wait),
            notification_status,
            read_only=True,
        ),
        Tool("withdraw", WITHDRAW_DESCRIPTION, _parameters(notification_id=ID), withdraw),
    ]


def _parameters(**properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": ["notification_id"]}


async def _answered(asked: Awaitable[NotifyResponse]) -> Answer:
    try:
        return wire(await asked)
    except InvalidInput as wrong:
        return {"status": "error", "error": str(wrong)}
    except ButlersError as failed:
        said = f"{failed} Nothing has changed by asking."
        return wire(answers.failed(None, "target_unavailable", said, retryable=True))


async def _status(ground: Ground, arguments: Arguments) -> NotifyResponse:
    notification_id = _id(arguments, {"notification_id", "wait_seconds"})
    deadline = time.monotonic() + _seconds(arguments.get("wait_seconds"))
    while True:
        ticket = ground.wakes["settled"].ticket(notification_id)
        answer = await _own(ground, notification_id)
        if answer.status not in OPEN or not await _woken(ground, ticket, deadline, POLL_SECONDS):
            return answer


async def _withdraw(ground: Ground, arguments: Arguments) -> NotifyResponse:
    notification_id = _id(arguments, {"notification_id"})
    answer = await _own(ground, notification_id)
    if answer.status not in OPEN:
        return answer
    async with ground.db.work() as connection:
        await withdrawals.ask(connection, notification_id, ground.name)
        await tell(connection, "cards")
    ground.wakes["cards"]()
    deadline = time.monotonic() + WITHDRAW_SECONDS
    while True:
        ticket = ground.wakes["settled"].ticket(notification_id)
        async with ground.db.work() as connection:
            found = await withdrawals.outcome(connection, notification_id, ground.name)
        answer = await _own(ground, notification_id)
        if answer.status not in OPEN:
            return answer
        if found == "being_sent":
            return answer.model_copy(update={"message": answers.ALREADY_BEING_SENT})
        if not await _woken(ground, ticket, deadline, WITHDRAW_POLL_SECONDS):
            return answer.model_copy(update={"message": answers.WITHDRAWAL_NOTED})


async def _own(ground: Ground, notification_id: str) -> NotifyResponse:
    async with ground.db.work() as connection:
        found = await standing.own(connection, notification_id, ground.name)
    if found is None:
        raise InvalidInput(
            f"You have no notification '{notification_id[:60]}'.", "Use the notification_id that notify answered with."
        )
    return found


async def _woken(ground: Ground, ticket: asyncio.Event, deadline: float, soon: float) -> bool:
    """Whether it is worth looking again: something moved, or a moment passed and there is time left."""
    left = deadline - time.monotonic()
    if left <= 0 or ground.stopping.is_set():
        return False
    await pause(ticket, min(soon, left))
    return True


def _id(arguments: Arguments, known: Collection[str]) -> str:
    for name in arguments:
        if name not in known:
            raise InvalidInput(f"Unknown parameter '{str(name)[:60]}'.", f"Known are {', '.join(sorted(known))}.")
    given = arguments.get("notification_id")
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput("Missing required 'notification_id' parameter.", "Give the id that notify answered with.")
    return given.strip().lower()


def _seconds(given: object) -> float:
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= LONGEST_WAIT:
        raise InvalidInput("'wait_seconds' is no number from 0 to 50.", "Leave it out to be answered at once.")
    return float(given)
