"""The Switchboard's daemon: it takes routes and heartbeats from daemons, and received messages from the Messenger."""

import asyncio
import time
from collections import Counter
from dataclasses import astuple, dataclass
from functools import partial
from typing import Final

from pydantic import ValidationError

from butlers.butler import Answer, Butler, Components, Context, Result, Tool, ToolCall
from butlers.daemon.discovery import is_base_url, kind_of
from butlers.refusals import note_refusal
from shared import answers
from shared.contracts import (
    IngestEnvelope,
    NotifyEnvelope,
    NotifyResponse,
    RouteEnvelope,
    RouteResponse,
    RouteResult,
    TellRequest,
    Timing,
    describe,
    wire,
)
from shared.db.pool import Database
from shared.errors import ButlersError, Forbidden, InvalidInput
from shared.gate.accept import accept_envelope
from shared.gate.admit import Admitter, admit, answer_of
from shared.storage import calls, notices
from shared.storage.notices import Notice
from switchboard.attachment import pass_on
from switchboard.incoming import route_for_ever
from switchboard.route import Forwarded, Routes, forward, forward_prompt
from switchboard.storage import inbox, registry
from switchboard.sweeper import sweep_for_ever, tidy_for_ever
from switchboard.targets import demand_own_origin, demand_routable, notify_request

OBJECT: Final = {"type": "object", "additionalProperties": True}


async def route(context: Context, routes: Routes, call: ToolCall) -> Result:
    """Answer a route.v1 with a route_response.v1; a refusal is an answer too, and is audited."""
    started = time.perf_counter()
    request_context: Answer = {}
    try:
        envelope = RouteEnvelope.model_validate(call.arguments)
        request_context = envelope.request_context.model_dump(exclude_none=True)
        if envelope.input.prompt is not None:
            await _demand_may_ask(context, envelope, call.caller.name)
            outcome = await forward_prompt(context, routes, envelope, call.caller.name)
        else:
            demand_routable(envelope)
            request = notify_request(envelope)
            demand_own_origin(request, call.caller.name)
            outcome = await _admitted(context, routes, envelope, request)
    except ValidationError as wrong:
        outcome = Forwarded(None, "error", InvalidInput(describe(wrong)))
    except Forbidden as refused:
        await note_refusal(context, call.caller.name, refused.message)
        outcome = Forwarded(None, "error", refused)
    except ButlersError as failed:
        outcome = Forwarded(None, "error", failed)
    return Result(wire(_response(outcome, request_context, (time.perf_counter() - started) * 1000)))


async def _demand_may_ask(context: Context, envelope: RouteEnvelope, caller: str) -> None:
    """Raise Forbidden if a prompt is for a butler that is not in the caller's `calls`, InvalidInput if for nobody.

    INVARIANT: the list is the owner's, from butler.toml; nothing of the call itself is believed.
    """
    target = envelope.target.butler
    if kind_of(target) != "butler" or envelope.target.tool != "route.execute":
        raise InvalidInput(f"`{envelope.target.tool}` of {target} takes no prompt.", "Ask a butler, by route.execute.")
    async with context.db.work() as connection:
        if not await calls.may(connection, caller, target):
            raise Forbidden(f"{caller} may not call {target}.", f"The owner may add it to `calls` of {caller}.")
        if not await registry.has_runtime(connection, target):
            raise InvalidInput(f"Nothing thinks for {target}.", "Its butler.toml needs a table [runtime].")


async def tell(context: Context, call: ToolCall) -> Result:
    """Make what one butler lets another know a notice of that one, if it is in the caller's `calls`.

    INVARIANT: who tells it is proved, and its words are a butler's: they begin no work, and are never the owner's.
    """
    try:
        news = TellRequest.model_validate(call.arguments)
        async with context.db.work() as connection:
            may = await calls.may(connection, call.caller.name, news.butler)
            if may and kind_of(news.butler) == "butler":
                source = f"butler.{call.caller.name}"
                await notices.add(connection, news.butler, Notice(source, "told", news.text, trust="external"))
                return Result({"status": "ok"})
        failed: ButlersError = Forbidden(f"{call.caller.name} may not call {news.butler}.")
        await note_refusal(context, call.caller.name, failed.message)
    except ValidationError as wrong:
        failed = InvalidInput(describe(wrong))
    return Result.refused(failed)


async def _admitted(
    context: Context, routes: Routes, route_envelope: RouteEnvelope, request: NotifyEnvelope
) -> Forwarded:
    """Admit a request that brings only the contract's fields, and no id yet; then forward what is allowed."""
    note: NotifyResponse | None = None
    if request.notification_id is None:
        call = accept_envelope(request)
        admitter = Admitter(context.name, context.db, context.settings.approval_ttl, context.new_id)
        note = answer_of(await admit(admitter, call), call.note)
        if note.status != "queued":
            return Forwarded(note, "ok")
        request = call.envelope.model_copy(update={"notification_id": note.notification_id})
    outcome = await forward(context, routes, route_envelope, request)
    if note is not None and outcome.response is not None:
        said = outcome.response.model_copy(update={"duplicate": note.duplicate, "note": note.note})
        return Forwarded(said, outcome.status, outcome.error)
    return outcome


def _response(outcome: Forwarded, request_context: Answer, milliseconds: float) -> RouteResponse:
    error = answers.failure_of(outcome.error) if outcome.response is None and outcome.error is not None else None
    return RouteResponse(
        request_context=request_context,
        status="error" if error else ("accepted" if outcome.status == "accepted" else "ok"),
        result=RouteResult(notify_response=outcome.response, session_id=outcome.session_id)
        if outcome.response or outcome.session_id
        else None,
        error=error,
        timing=Timing(duration_ms=round(milliseconds, 3)),
    )


# Far less than anybody waits for the answer, and long enough for a process to say all it serves.
BREATH: Final = 0.05


@dataclass(frozen=True, slots=True, order=True)
class Beat:
    """What an instance says of itself; the name and the kind are proved."""

    name: str
    url: str
    kind: str
    tools: tuple[str, ...]
    status: str
    has_runtime: bool = False


class Heartbeats:
    """The heartbeats that wait for the end of a breath, and the task that notes them then."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._beats: set[Beat] = set()
        self._noting: asyncio.Task[frozenset[Beat]] | None = None

    async def note(self, beat: Beat) -> None:
        """Note this heartbeat together with others; one that cannot be noted spoils none but itself."""
        self._beats.add(beat)
        if self._noting is None:
            self._noting = asyncio.create_task(self._together())
        if beat not in await asyncio.shield(self._noting):
            async with self._db.work() as connection:
                await registry.all_seen(connection, [astuple(beat)])

    async def _together(self) -> frozenset[Beat]:
        """Return the heartbeats of this breath, all noted, or none if one of them could not be."""
        await asyncio.sleep(BREATH)
        beats, self._beats, self._noting = frozenset(self._beats), set(), None
        try:
            async with self._db.work() as connection:
                # The same order in every process, so that none waits in a circle.
                await registry.all_seen(connection, [astuple(beat) for beat in sorted(beats)])
        except ButlersError:
            return frozenset()
        return beats


async def heartbeat(heartbeats: Heartbeats, call: ToolCall) -> Result:
    """Note that an instance of the caller is there; the name comes from the token, and the kind from the name."""
    caller, arguments = call.caller, call.arguments
    tools, url = arguments.get("tools"), arguments.get("url")
    status, kind = arguments.get("status", "ready"), kind_of(caller.name)
    if status not in registry.STATUSES or not isinstance(tools, list):
        raise InvalidInput("A heartbeat needs url, kind, tools and status.")
    if arguments.get("kind") != kind:
        raise InvalidInput(f"{caller.name} can only register as a {kind}.")
    if not isinstance(url, str) or not is_base_url(url):
        raise InvalidInput("The url of a heartbeat must be http(s)://host:port.")
    thinks = arguments.get("runtime") is True
    await heartbeats.note(Beat(caller.name, url, kind, tuple(str(tool) for tool in tools), str(status), thinks))
    return Result({"status": "ok"})


async def ingest(context: Context, call: ToolCall) -> Result:
    """Store the ingest.v1 of a received message once; only the Messenger, which holds the channels, may bring it."""
    if call.caller.name != "messenger":
        raise Forbidden(f"{call.caller.name} may not take in messages.")
    try:
        event = IngestEnvelope.model_validate(call.arguments)
        async with context.db.work() as connection:
            stored = await inbox.store(connection, event)
    except ValidationError as wrong:
        return Result({"status": "error", "error": describe(wrong)})
    except InvalidInput as wrong:
        # An answer like any other: whoever brought it knows that no second try will do.
        return Result({"status": "error", "error": wrong.message})
    context.wakes["inbox"]()
    return Result({"status": "ok", "duplicate": stored is None})


def build(context: Context) -> Components:
    """Make the Switchboard's tools, all of them for daemons, and its sweep."""
    routes, files = Routes(context.db), Counter[str]()
    tools = [
        Tool("route", "Route a route.v1 envelope to its target.", OBJECT, partial(route, context, routes), hop=True),
        Tool("heartbeat", "Announce a running daemon.", OBJECT, partial(heartbeat, Heartbeats(context.db)), hop=True),
        Tool("fetch_attachment", "Have a message's file fetched.", OBJECT, partial(pass_on, context, files), hop=True),
        Tool("tell", "Let another butler know something.", OBJECT, partial(tell, context), hop=True),
        Tool("ingest", "Take in a received message (ingest.v1).", OBJECT, partial(ingest, context), hop=True),
    ]

    loops = [partial(loop, context) for loop in (sweep_for_ever, tidy_for_ever, route_for_ever)]
    return Components(tools, loops, close=routes.close)


BUTLER: Final = Butler("switchboard", "Routes each envelope to its target.", "switchboard", build)
