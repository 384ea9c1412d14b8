"""Stage 6, route: hand an envelope to its target, and note it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from butlers.butler import Context
from butlers.outcomes import rows_say
from shared import answers
from shared.contracts import (
    Asking,
    Failure,
    NotifyEnvelope,
    NotifyResponse,
    RouteEnvelope,
    RouteInput,
    RouteResponse,
    wire,
)
from shared.db.pool import Database
from shared.errors import ButlersError, HopFailed
from shared.loops import apart
from shared.storage import session_list
from shared.telemetry.logs import logger
from switchboard.storage import registry

log = logger("switchboard.route")
# How long a route waits for others to be noted together with it.
MOMENT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The target's response, and how the route is to be noted."""

    response: NotifyResponse | None
    status: str
    error: ButlersError | None = None
    # The session that a prompt became.
    session_id: str | None = None


class Routes:
    """The routes of a moment, which are noted together, once who waited for them has its answer.

    They decide nothing. A process that ends by force takes those of its last moment with it; what they carried stands
    in the rows of the message itself.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: list[registry.Routed] = []
        self._noting: asyncio.Task[None] | None = None

    def note(self, one: registry.Routed) -> None:
        """Note this route together with others of the moment."""
        self._waiting.append(one)
        if self._noting is None:
            self._noting = asyncio.create_task(self._together())

    async def _together(self) -> None:
        await asyncio.sleep(MOMENT)
        self._noting = None
        await self.write()

    async def write(self) -> None:
        """Write what waits; a route that cannot be written spoils none but itself, and only the log hears of it."""
        routes, self._waiting = self._waiting, []
        try:
            await self._write(routes)
        except ButlersError:
            for one in routes:
                with apart(log, "route not noted"):
                    await self._write([one])

    async def _write(self, routes: Sequence[registry.Routed]) -> None:
        async with self._db.work() as connection:
            await registry.routed(connection, routes)

    async def close(self) -> None:
        """Write at once what still waits, because this process stops."""
        if self._noting is not None:
            self._noting.cancel()
            await self.write()


async def forward(
    context: Context, routes: Routes, route: RouteEnvelope, envelope: NotifyEnvelope, *, wait: bool = True
) -> Forwarded:
    """Hand the envelope to the target and note the route; if the target is down, the message stays queued."""
    started = time.perf_counter()
    outcome = await _hand_over(context, route, envelope, wait=wait)
    if not wait and outcome.error is not None:
        # The sweep comes again in seconds; a row for each try would fill the table while the target is down.
        log.info("not forwarded", notification=envelope.notification_id, why=outcome.error.message)
        return outcome
    routes.note(_routed(route, (envelope.origin_butler, envelope.notification_id), outcome, started))
    return outcome


async def forward_prompt(context: Context, routes: Routes, route: RouteEnvelope, caller: str) -> Forwarded:
    """Hand a prompt to its butler, in the name of whoever is proved to ask, and note the route.

    INVARIANT: who asks is proved, and the place in a chain is read: nothing of that is the asker's word.
    """
    started = time.perf_counter()
    asking = Asking.model_validate(route.input.context or {})
    async with context.db.work() as connection:
        inside = wire(await session_list.next_in_chain(connection, caller, asking))
    try:
        answer = await carry(
            context, route.model_copy(update={"input": RouteInput(prompt=route.input.prompt, context=inside)})
        )
        outcome = Forwarded(None, answer.status, session_id=answer.result.session_id if answer.result else None)
        if outcome.session_id is None:
            outcome = Forwarded(None, "error", _refusal(route.target.butler, route.target.tool, answer.error))
    except HopFailed as failed:
        outcome = Forwarded(None, "error", failed)
    routes.note(_routed(route, (caller, None), outcome, started))
    return outcome


def _routed(route: RouteEnvelope, of: tuple[str, str | None], outcome: Forwarded, started: float) -> registry.Routed:
    """Return what is noted of a route of (caller, notification) that began at `started`."""
    caller, notification_id = of
    about: UUID | None = None
    with suppress(ValueError):
        about = UUID(notification_id) if notification_id else None
    return registry.Routed(
        request_id=route.request_context.request_id,
        origin=caller,
        target=route.target.butler,
        tool=route.target.tool,
        notification_id=about,
        status=outcome.status,
        error_class=outcome.error.code if outcome.error else None,
        milliseconds=(time.perf_counter() - started) * 1000,
    )


async def carry(context: Context, route: RouteEnvelope) -> RouteResponse:
    """Hand an allowed envelope of any kind to its target, as it came, and return the target's answer.

    What it means that there is none, each kind of envelope says for itself. Raises HopFailed.
    """
    wait = context.settings.timings.switchboard_wait
    return await context.daemons.call_for(route.target.butler, route.target.tool, wire(route), wait, RouteResponse)


async def _hand_over(context: Context, route: RouteEnvelope, envelope: NotifyEnvelope, *, wait: bool) -> Forwarded:
    inside: dict[str, object] = {"notify_request": envelope.model_dump(mode="json", exclude_none=True), "wait": wait}
    again = (route.input.context or {}).get("again") is True
    if again:
        inside["again"] = True
    target, tool = route.target.butler, route.target.tool
    try:
        answer = await carry(context, route.model_copy(update={"input": RouteInput(context=inside)}))
    except HopFailed as failed:
        if failed.proved_not_begun or failed.timed_out:
            return await _unanswered(context, envelope, failed, again=again)
        return Forwarded(None, "error", _broken(failed.message))
    if answer.result is not None and answer.result.notify_response is not None:
        return Forwarded(answer.result.notify_response, answer.status)
    refusal = _refusal(target, tool, answer.error)
    if refusal.code == HopFailed.code:
        # The target lost what it needs, such as its database: the message is kept, and the sweep brings it again.
        return await _unanswered(context, envelope, refusal, again=again)
    return Forwarded(None, "error", refusal)


async def as_it_stands(context: Context, envelope: NotifyEnvelope, *, again: bool) -> NotifyResponse | None:
    """Return what it means that a notification has no answer: how it stands as its rows have it.

    What is admitted is kept as `queued` if they cannot be read. Of a request made again nothing is known then: None.
    """
    notification_id = str(envelope.notification_id)
    found = await rows_say(context.db, notification_id, envelope.origin_butler)
    if found is None and again:
        return None
    return found or answers.queued(notification_id)


async def _unanswered(context: Context, envelope: NotifyEnvelope, why: ButlersError, *, again: bool) -> Forwarded:
    found = await as_it_stands(context, envelope, again=again)
    return Forwarded(found, "accepted", why) if found is not None else Forwarded(None, "error", why)


def _refusal(target: str, tool: str, failure: Failure | None) -> ButlersError:
    """Return the target's own error with its class; an answer that says nothing counts as a broken hop."""
    if failure is None:
        return _broken(f"{target} gave no answer about the message to {tool}.")
    return ButlersError(failure.message, code=failure.error_class)


def _broken(message: str) -> ButlersError:
    """Return the error of a target that answers nonsense, as `internal_error`.

    It is not away: of a target that is away, the butler is told `queued`.
    """
    return ButlersError(message, code="internal_error")
