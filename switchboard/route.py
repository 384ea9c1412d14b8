"""Stage 6, route: the live call, and the sweep of what a decision released or a crash left behind."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from butlers.butler import Ground
from butlers.tools.notify import route_request, rows_say
from shared import answers
from shared.contracts import Failure, NotifyEnvelope, NotifyResponse, RouteEnvelope, RouteResponse
from shared.db.pool import Connection, Record
from shared.errors import ButlersError, HopFailed
from shared.loops import apart
from shared.storage.pending_actions import Event, record
from shared.telemetry.logs import logger
from switchboard.storage import registry

log = logger("switchboard.route")
WAIT_SECONDS: Final = 12.0
AT_ONCE: Final = 8

# Allowed, and nobody has it: admitted and then forgotten by a crash, or released by a decision. Butlers take turns, so
# that what cannot be forwarded of one never keeps what another sends.
RELEASED = """
SELECT n.id::text, n.envelope FROM (
    SELECT n.id, n.created_at, row_number() OVER (PARTITION BY n.origin_butler ORDER BY n.created_at) AS turn
    FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
    WHERE n.status = 'queued' AND (d.id IS NULL OR d.status = 'parked')
        AND (n.created_at NOT BETWEEN clock_timestamp() - interval '3 seconds' AND clock_timestamp()
             OR EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id))
    ORDER BY turn, n.created_at LIMIT 100) due
JOIN shared.notifications n USING (id) ORDER BY due.turn, due.created_at
"""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What the target said, and how it is to be noted."""

    response: NotifyResponse | None
    status: str
    error: ButlersError | None = None


async def forward(ground: Ground, route: RouteEnvelope, envelope: NotifyEnvelope, *, wait: bool = True) -> Forwarded:
    """Hand the envelope to the target; note the route; a target that is down leaves the message queued."""
    started = time.perf_counter()
    outcome = await _hand_over(ground, route, envelope, wait=wait)
    if not wait and outcome.error is not None:
        # The sweep comes again in seconds; a row for each try would fill the table while the target is down.
        log.info("not forwarded", notification=envelope.notification_id, why=outcome.error.message)
        return outcome
    spent = (time.perf_counter() - started) * 1000
    code = outcome.error.code if outcome.error else None
    try:
        async with ground.db.work() as connection:
            await registry.routed(
                connection,
                (route.request_context.request_id, envelope.notification_id),
                envelope.origin_butler,
                (route.target.butler, route.target.tool),
                (outcome.status, code, spent),
            )
    except ButlersError as lost:
        log.warning("route not noted", why=lost.message)
    return outcome


async def _hand_over(ground: Ground, route: RouteEnvelope, envelope: NotifyEnvelope, *, wait: bool) -> Forwarded:
    inside: dict[str, object] = {"notify_request": envelope.model_dump(mode="json", exclude_none=True), "wait": wait}
    again = (route.input.context or {}).get("again") is True
    if again:
        inside["again"] = True
    outgoing = route.model_dump(mode="json", exclude_none=True)
    outgoing["input"] = {"context": inside}
    target, tool = route.target.butler, route.target.tool
    try:
        answer = await ground.hops.call_for(target, tool, outgoing, WAIT_SECONDS, RouteResponse)
    except HopFailed as failed:
        if failed.proved_not_begun or failed.timed_out:
            return await _as_it_stands(ground, envelope, failed, again=again)
        return Forwarded(None, "error", _broken(failed.message))
    if answer.result is not None and answer.result.notify_response is not None:
        return Forwarded(answer.result.notify_response, answer.status)
    refusal = _refusal(target, tool, answer.error)
    if refusal.code == HopFailed.code:
        # The target lost what it needs, its database say: the message is kept, and the sweep brings it again.
        return await _as_it_stands(ground, envelope, refusal, again=again)
    return Forwarded(None, "error", refusal)


def _refusal(target: str, tool: str, failure: Failure | None) -> ButlersError:
    """The target's own error keeps its class; an answer that says nothing is a broken hop's."""
    if failure is None:
        return _broken(f"{target} answered {tool} with nothing of the message.")
    return ButlersError(failure.message, code=failure.error_class)


def _broken(message: str) -> ButlersError:
    """Who answers nonsense is not away: its class says so, since what is away is told the butler as `queued`."""
    return ButlersError(message, code="internal_error")


async def _as_it_stands(ground: Ground, envelope: NotifyEnvelope, why: ButlersError, *, again: bool) -> Forwarded:
    """Accepted, as the rows say. Where they cannot be read what is admitted is kept, and who asks again is told why."""
    notification_id = str(envelope.notification_id)
    found = await rows_say(ground.db, notification_id, envelope.origin_butler)
    if found is None and again:
        return Forwarded(None, "error", why)
    return Forwarded(found or answers.queued(notification_id), "accepted", why)


async def sweep(ground: Ground) -> int:
    """Forward what is allowed and lies nowhere; how many were taken up."""
    async with ground.db.work() as connection:
        rows = await connection.fetch(RELEASED)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(row: Record) -> None:
        async with gate:
            done = False
            with apart(log, "not forwarded", notification=row["id"]):
                done = await _sweep_one(ground, row)
            if not done:
                with apart(log, "not handed over", notification=row["id"]):
                    await _hand_over_unread(ground, row["id"])

    await asyncio.gather(*(one(row) for row in rows))
    return len(rows)


async def _sweep_one(ground: Ground, row: Record) -> bool:
    """Whether the row could be read; what became of it then the rows say."""
    try:
        stored = NotifyEnvelope.model_validate(row["envelope"])
    except ValidationError:
        return False
    envelope = stored.model_copy(update={"notification_id": row["id"]})
    raw = route_request({}, stored.origin_butler, row["id"])
    await forward(ground, RouteEnvelope.model_validate(raw), envelope, wait=False)
    return True


async def _hand_over_unread(ground: Ground, notification_id: str) -> None:
    """What cannot be read or carried is named to the Messenger, which looks itself, and ends it."""
    log.warning("an envelope cannot be carried", notification=notification_id)
    named = route_request({"notification_id": notification_id}, ground.name, notification_id)
    await ground.hops.call_for("messenger", "route.execute", named, WAIT_SECONDS, RouteResponse)


async def sweep_for_ever(ground: Ground, stopping: asyncio.Event) -> None:
    """Sweep on each release and each tick; a lost database is waited for."""
    while not stopping.is_set():
        ticket = ground.wakes["released"].ticket()
        with apart(log, "sweep not done"):
            await sweep(ground)
        with apart(log, "registry not tidied"):
            async with ground.db.work() as connection:
                await registry.tidy(connection)
        waiting = [asyncio.ensure_future(ticket.wait()), asyncio.ensure_future(stopping.wait())]
        await asyncio.wait(waiting, timeout=ground.settings.sweep_seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()


async def refuse(connection: Connection, by: str, caller: str, why: str, notification_id: str | None = None) -> None:
    """Audit a refusal: who tried what."""
    await record(connection, Event("refused", by, notification_id=notification_id, reason=why), caller=caller)
