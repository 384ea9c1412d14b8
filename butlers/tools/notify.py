"""The core tool `notify`: accept the call, ask the gate, then route by the Switchboard (seed 001)."""

import time
from dataclasses import replace
from typing import Final, get_args

from butlers.butler import Answer, Arguments, Components, Context, Module, Result, Tool, ToolCall
from butlers.outcomes import rows_say, wait_settled
from butlers.refusals import note_refusal
from shared import answers
from shared.addresses import name_in
from shared.channels import CHANNELS
from shared.contracts import Intent, NotifyResponse, RouteResponse, route_request
from shared.errors import ButlersError, HopFailed, InvalidInput, Misconfigured
from shared.gate.accept import NotifyCall, accept
from shared.gate.admit import Admitter, admit, answer_of
from shared.idempotency import lineage_in_session
from shared.storage import contacts, session_list
from shared.storage.contacts import UnknownContact
from shared.telemetry.logs import logger
from shared.telemetry.metrics import notifications_total

log = logger("butlers.notify")

DESCRIPTION: Final = (
    "Tell somebody something by Telegram or e-mail. Without contact_id and recipient it goes to the owner at once; "
    "anybody else gets it when a standing rule or the owner allows it. Answers 'queued', 'pending_approval' and "
    "'uncertain' are final for you: do not send the same thing again in other words."
)
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "channel": {"type": "string", "enum": list(CHANNELS), "description": "How it goes out."},
        "message": {"type": "string", "description": "The text, at most 10,000 characters; not used for react."},
        "contact_id": {
            "type": "string",
            "format": "uuid",
            "description": "The contact's id; takes precedence over recipient.",
        },
        "recipient": {"type": "string", "description": "A contact's whole name, or one address."},
        "subject": {"type": "string", "description": "E-mail only."},
        "intent": {"type": "string", "enum": list(get_args(Intent)), "description": "send is the default."},
        "emoji": {"type": "string", "description": "The emoji; required for react."},
        "request_context": {
            "type": "object",
            "description": "The request_context you received, unchanged; required for reply and react.",
            "properties": {
                "request_id": {"type": "string"},
                "source_channel": {"type": "string"},
                "source_endpoint_identity": {"type": "string"},
                "source_sender_identity": {"type": "string"},
                "source_thread_identity": {"type": "string"},
                "received_at": {"type": "string"},
                "idempotency_key": {
                    "type": "string",
                    "description": "Your own name for this one message: the same key again is never sent twice.",
                },
            },
            "additionalProperties": True,
        },
    },
    "required": ["channel", "message"],
}


def notify_tool(context: Context) -> Tool:
    """Make the tool as every butler has it."""

    async def notify(call: ToolCall) -> Result:
        return Result(await tell(context, call.arguments, call.caller.session))

    return Tool("notify", DESCRIPTION, PARAMETERS, notify)


async def tell(
    context: Context, arguments: Arguments, session: str | None = None, lineage: str | None = None
) -> Answer:
    """Return the answer of the contract, also for an error, as the object the caller gets; `session` says whose it is.

    What a session says without naming a request_context belongs to the request that the session is about. `lineage` is
    the house's own, which no caller can state.
    """
    admitter = Admitter(context.name, context.db, context.settings.approval_ttl, context.new_id)
    try:
        occurrence = None
        if session is not None:
            arguments, occurrence = await _of_session(context, arguments, session)
        call = await _accept(context, arguments)
        call = replace(call, session=session, lineage=lineage or lineage_in_session(call.lineage, occurrence))
        current = await admit(admitter, call)
    except (InvalidInput, Misconfigured) as wrong:
        if isinstance(wrong, UnknownContact):
            # An id, and no name: that may be any words, and a line stays for ever.
            named = {"named": str(arguments["contact_id"])} if arguments.get("contact_id") else {}
            await note_refusal(context, context.name, "It named an unknown contact.", tool="notify", **named)
        notifications_total.labels(origin=context.name, outcome="validation_error").inc()
        return {"status": "error", "error": str(wrong)}
    except ButlersError as failed:
        log.warning("not admitted", code=failed.code, why=failed.message)
        notifications_total.labels(origin=context.name, outcome=failed.code).inc()
        return answers.as_tool_answer(_refusal(failed))
    answer = answer_of(current, call.note)
    again = not current.first and not current.same_content and answers.may_reopen(answer)
    if answer.status == "queued" or again:
        try:
            answer = await follow(context, call, answer, route=current.first or again)
        except ButlersError as lost:
            # It is admitted, and stays so: a caller that asks again is told what became of it.
            log.warning("the outcome is not known yet", code=lost.code, why=lost.message)
    notifications_total.labels(origin=context.name, outcome=answer.status).inc()
    return answers.as_tool_answer(answer)


async def _of_session(context: Context, arguments: Arguments, session: str) -> tuple[Arguments, str | None]:
    """Return the arguments with the request that the session answers, and the occurrence it is of, if it is of one."""
    async with context.db.work() as connection:
        about = await session_list.about(connection, context.name, session)
    is_answer = arguments.get("intent") in ("reply", "react")
    if arguments.get("request_context") or (about.request_context is None and not is_answer):
        return arguments, about.occurrence_id
    return {**arguments, "request_context": about.request_context}, about.occurrence_id


async def _accept(context: Context, arguments: Arguments) -> NotifyCall:
    """Read the call; a contact's name becomes its id first, so that a call by name and one by id are the same call."""
    given, by_id = arguments.get("recipient"), str(arguments.get("contact_id") or "").strip()
    is_send = arguments.get("intent") in (None, "", "send") and not by_id
    name = name_in(given) if is_send and isinstance(given, str) else None
    if name is None:
        return accept(context.name, arguments)
    async with context.db.work() as connection:
        contact_id, known_as = await contacts.by_name(connection, name)
    call = accept(context.name, {**arguments, "recipient": None, "contact_id": contact_id})
    note = " ".join(filter(None, [f"The contact is {known_as} ({contact_id}).", call.note]))
    return replace(call, note=note, came={**call.came, "recipient": given})


def _refusal(failed: ButlersError) -> NotifyResponse:
    if failed.code == "idempotency_conflict":
        return answers.failed(None, "idempotency_conflict", str(failed))
    return answers.failed(None, "target_unavailable", f"{failed} Nothing was sent.", retryable=True)


async def follow(context: Context, call: NotifyCall, answer: NotifyResponse, *, route: bool) -> NotifyResponse:
    """Route the message if this call is its first, or may begin it anew, and return the outcome as its row has it.

    A call that comes meanwhile waits for the same outcome.
    """
    deadline = time.monotonic() + context.settings.timings.butler_wait
    if not route:
        return _with(await wait_settled(context, str(answer.notification_id), deadline), answer)
    paused = False
    ticket = context.wakes["settled"].ticket(str(answer.notification_id))
    try:
        paused = await _route(context, call, answer)
    except HopFailed as broken:
        # How the message stands its row says all the same, and the Switchboard takes it up by itself.
        log.warning("the Switchboard did not answer as agreed", why=broken.message)
    # A Messenger in this process brings the answer that it has stored.
    told = ticket.news
    found = told if isinstance(told, NotifyResponse) else await _after_hop(context, answer)
    if paused and found.message == answers.ACCEPTED:
        found = found.model_copy(update={"message": answers.PAUSED})
    return _with(found, answer)


def _with(found: NotifyResponse, asked: NotifyResponse) -> NotifyResponse:
    """Return the outcome, with what only this call knows about itself."""
    return found.model_copy(update={"duplicate": asked.duplicate, "note": asked.note or found.note})


async def _route(context: Context, call: NotifyCall, before: NotifyResponse) -> bool:
    """Bring the message to the Switchboard, and return whether its channel is said to be paused.

    INVARIANT: nothing else of the answer is used. That the hop has answered means that somebody has looked; how the
    message stands, its row says.
    """
    notification_id, again = str(before.notification_id), before.status != "queued"
    envelope = call.envelope.model_copy(update={"notification_id": notification_id})
    request = route_request(
        envelope.model_dump(mode="json", exclude_none=True), context.name, notification_id, again=again
    )
    wait = context.settings.timings.butler_wait
    response = await context.daemons.call_for("switchboard", "route", request, wait, RouteResponse)
    if response.result is not None and response.result.notify_response is not None:
        return response.result.notify_response.message == answers.PAUSED
    if response.error is None:
        raise HopFailed("The route's answer says nothing of the message.")
    raise HopFailed(response.error.message)


async def _after_hop(context: Context, before: NotifyResponse) -> NotifyResponse:
    """Return what the rows say, or `before`, the answer when this call asked, where the database is away.

    The message may have been over already. A hop that is down, slow or broken is no failure of it.
    """
    return await rows_say(context.db, str(before.notification_id), context.name) or before


MODULE: Final = Module("notify", lambda context, _: Components([notify_tool(context)]))
