"""The tool route.execute: it takes an envelope from the Switchboard, queues it, waits, and answers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from butlers.butler import Answer, Context, Result, ToolCall
from butlers.outcomes import rows_say, wait_settled
from butlers.refusals import note_refusal
from messenger import poison
from messenger.delivery import lease, loop
from messenger.maintenance import reopener
from messenger.storage import breakers, deliveries, targets
from shared import answers
from shared.auth.tokens import Caller
from shared.contracts import (
    NotifyEnvelope,
    NotifyResponse,
    RouteEnvelope,
    RouteResponse,
    RouteResult,
    Timing,
    describe,
    same_envelope,
    wire,
)
from shared.db.pool import after_commit
from shared.db.wake import Ticket
from shared.errors import ButlersError, Forbidden, InvalidInput
from shared.gate.evaluate import Held
from shared.storage import notifications
from shared.telemetry.logs import logger

log = logger("messenger.route_execute")

OBJECT: Final = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a route asks for: that the caller waits, and that what has ended begins anew."""

    wait: bool
    again: bool


async def execute(worker: lease.Worker, call: ToolCall) -> Result:
    """Take route.v1 with a notify request in, and return route_response.v1 with the notify response."""
    started = time.perf_counter()
    request_context: Answer = {}
    brought: object = None
    error: ButlersError | None = None
    response: NotifyResponse | None = None
    try:
        _demand_switchboard(call.caller)
        route = RouteEnvelope.model_validate(call.arguments)
        request_context = route.request_context.model_dump(exclude_none=True)
        inside = route.input.context or {}
        brought = inside.get("notify_request")
        request = NotifyEnvelope.model_validate(brought)
        asked = Asked(inside.get("wait") is not False, inside.get("again") is True)
        response = await take(worker, request, asked)
    except ValidationError as wrong:
        error = InvalidInput(describe(wrong))
        await _end_what_nobody_can_bring(worker.context, brought)
    except Forbidden as refused:
        error = refused
        about = str(brought.get("notification_id")) if isinstance(brought, Mapping) else ""
        await note_refusal(worker.context, call.caller.name, refused.message, about)
        await _end_what_nobody_can_bring(worker.context, brought)
    except ButlersError as failed:
        error = failed
    return Result(wire(_response(request_context, response, error, (time.perf_counter() - started) * 1000)))


async def _end_what_nobody_can_bring(context: Context, brought: object) -> None:
    """End a notification if what was refused is all that can be made of its row.

    No sweep would ever bring anything else.
    """
    if isinstance(brought, Mapping):
        async with context.db.work() as connection:
            await poison.end_if_it_cannot_travel(connection, brought.get("notification_id"))


def _demand_switchboard(caller: Caller) -> None:
    if caller.name != "switchboard":
        raise Forbidden(f"{caller.name} may not call the Messenger.")


def _response(
    request_context: Answer, response: NotifyResponse | None, error: ButlersError | None, milliseconds: float
) -> RouteResponse:
    return RouteResponse(
        request_context=request_context,
        status="error" if error else "ok",
        result=RouteResult(notify_response=response) if response else None,
        error=answers.failure_of(error) if error else None,
        timing=Timing(duration_ms=round(milliseconds, 3)),
    )


async def take(worker: lease.Worker, request: NotifyEnvelope, asked: Asked) -> NotifyResponse:
    """Put the delivery of what is admitted in the queue, and wait for what becomes of it.

    INVARIANT: the Messenger admits nothing. Whoever brings messages could else leave any number of them in anybody's
    name.
    """
    if request.notification_id is None:
        raise Forbidden("It was brought without the id of a message that is admitted.")
    notification_id = str(request.notification_id)
    ticket = worker.context.wakes["settled"].ticket(notification_id)
    current = await put(worker, request, notification_id, asked)
    if current is not None:
        return current
    seconds = worker.context.settings.timings.messenger_wait if asked.wait else 0
    return await outcome_of(worker.context, request, seconds, ticket)


async def outcome_of(context: Context, request: NotifyEnvelope, seconds: float, ticket: Ticket) -> NotifyResponse:
    """Return what became of what is in the queue; losing the database meanwhile is no failure of the message."""
    notification_id = str(request.notification_id)
    try:
        return await wait_settled(context, notification_id, time.monotonic() + seconds, ticket)
    except ButlersError as lost:
        log.warning("the outcome is not known yet", notification=notification_id, why=lost.message)
    # The database may be back already, and then says whether the last byte has left.
    return await rows_say(context.db, notification_id, request.origin_butler) or answers.queued(notification_id)


async def put(
    worker: lease.Worker, request: NotifyEnvelope, notification_id: str, asked: Asked
) -> NotifyResponse | None:
    """Queue the delivery; where somebody waits and nobody claims at this moment, begin it in the same transaction.

    What breaks there is undone with it, and the delivery is queued alone.
    """
    if asked.wait and worker.at_work and not worker.claiming.locked():
        async with worker.claiming:
            try:
                return await enqueue(worker, request, notification_id, again=asked.again, begins=True)
            except Forbidden:
                raise
            except ButlersError as lost:
                log.info("not begun at once", notification=notification_id, why=lost.message)
    return await enqueue(worker, request, notification_id, again=asked.again)


async def enqueue(
    worker: lease.Worker, request: NotifyEnvelope, notification_id: str, *, again: bool, begins: bool = False
) -> NotifyResponse | None:
    """Queue the delivery of what was really admitted; return an answer instead where nothing is to be waited for."""
    async with worker.context.db.work() as connection:
        row = await notifications.locked(connection, notification_id)
        if row is None or row["origin_butler"] != request.origin_butler:
            raise Forbidden(f"{request.origin_butler} has no notification {notification_id}.")
        # Of an equal call nothing is used that it brings: what is sent anew is what was admitted first.
        if not again and not same_envelope(wire(request), row["envelope"]):
            raise Forbidden("The envelope differs from the one that was submitted.")
        if again and await reopener.reopen(connection, row, worker.context):
            row = await notifications.locked(connection, notification_id) or row
        if row["status"] != "queued":
            return NotifyResponse.model_validate(row["answer"])
        target = await targets.target_now(connection, row)
        new = targets.delivery_to(row, target)
        queued = await deliveries.enqueue(connection, new)
        held = Held(row, target if target is not targets.NOWHERE else None)
        if queued and begins and await loop.begin_at_once(connection, worker, new.channel, held, made=queued == "made"):
            return None
        after_commit(connection, worker.context.wakes["deliveries"])
        if queued and await breakers.stands(connection, new.channel):
            # The caller learns at once why waiting is idle; kept nowhere: it is true only as long as the pause stands.
            return NotifyResponse.model_validate({**row["answer"], "message": answers.PAUSED})
    return None
