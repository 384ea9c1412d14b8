"""The five wire envelopes, frozen. Field names are public; docs/schemas is generated from here."""

import json
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from shared.channels import CHANNELS
from shared.hashing import canonical_json, id_in

Intent = Literal["send", "reply", "react"]


def _known(channel: str) -> str:
    """Return the channel if there is one of that name."""
    if channel not in CHANNELS:
        expected = " or ".join(repr(name) for name in CHANNELS)
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return channel


def _written_as_id(said: str) -> str:
    if str(id_in(said)) != said.lower():
        raise PydanticCustomError("uuid", "Input should be a UUID")
    return said


ChannelName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(CHANNELS)})]
AnswerStatus = Literal["ok", "error", "queued", "uncertain", "pending_approval", "pending_missing_identifier"]
ErrorClass = Literal[
    "validation_error",
    "forbidden",
    "provider_rejected",
    "idempotency_conflict",
    "internal_error",
    "target_unavailable",
    "timeout",
    "overload_rejected",
]
RETRYABLE: frozenset[str] = frozenset({"target_unavailable", "timeout", "overload_rejected"})

LONGEST_SUBJECT = 500
Text = Annotated[str, Field(min_length=1, max_length=1000)]
ButlerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]


class Request(BaseModel):
    """A model of what others ask us: it refuses unknown keys, so that a misspelt one is never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Response(BaseModel):
    """A model of what others answer us: it ignores unknown keys, so that their answers may grow."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RequestContext(BaseModel):
    """The lineage of the inbound request this belongs to; extra keys are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    request_id: Annotated[str, Field(min_length=1, max_length=200)]
    source_channel: Text
    source_endpoint_identity: Text
    source_sender_identity: Text
    source_thread_identity: Text | None = None
    received_at: str | None = None


class Delivery(Request):
    """What is to be told, and by which channel."""

    intent: Intent = "send"
    channel: ChannelName
    message: Annotated[str, Field(max_length=10_000)] = ""
    recipient: Annotated[str, Field(min_length=1, max_length=320)] | None = None
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_SUBJECT)] | None = None
    emoji: Annotated[str, Field(min_length=1, max_length=32)] | None = None


def as_sent(delivery: Delivery) -> Delivery:
    """Leave out what the channel and the intent do not carry: it reaches nobody, so it is shown and hashed nowhere.

    INVARIANT: the owner is asked about no word that would not go out.
    """
    return delivery.model_copy(
        update={
            "message": "" if delivery.intent == "react" else delivery.message,
            "subject": delivery.subject if CHANNELS[delivery.channel].subject else None,
            "emoji": delivery.emoji if delivery.intent == "react" else None,
        }
    )


def answered_subject(intent: str, channel: str, context: Mapping[str, object]) -> str | None:
    """Return the subject of an answer to what came with one: mail programs put both into one conversation by it.

    It becomes part of the envelope, so that it is shown, bound and counted like one that the caller gave.
    """
    answered = context.get("source_subject")
    if intent != "reply" or CHANNELS[channel].subject is None or not isinstance(answered, str) or not answered.strip():
        return None
    subject = " ".join(answered.split())
    return (subject if subject.lower().startswith("re:") else f"Re: {subject}")[:LONGEST_SUBJECT]


class NotifyEnvelope(Request):
    """notify.v1: one thing a butler wants told."""

    schema_version: Literal["notify.v1"] = "notify.v1"
    origin_butler: ButlerName
    delivery: Delivery
    request_context: Mapping[str, object] | None = None
    # No caller's words stand where an id is told.
    notification_id: Annotated[str, AfterValidator(_written_as_id)] | None = None


def to_whom(envelope: NotifyEnvelope, kind: str) -> NotifyEnvelope:
    """Return the envelope without its recipient, where something else says whom the message is for.

    INVARIANT: an envelope names nobody to whom it does not go.
    """
    if kind == "recipient":
        return envelope
    return envelope.model_copy(update={"delivery": envelope.delivery.model_copy(update={"recipient": None})})


class Failure(Response):
    """The error object of a failed delivery."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    error_class: ErrorClass = Field(alias="class")
    message: str
    retryable: bool = False


class Delivered(Response):
    """Where it went; `delivery_id` is the provider's id of the first part."""

    channel: ChannelName
    delivery_id: str
    parts: int | None = None
    sandbox: bool | None = None


class NotifyResponse(Response):
    """notify_response.v1: the current answer about one notification."""

    schema_version: Literal["notify_response.v1"] = "notify_response.v1"
    status: AnswerStatus
    notification_id: str | None = None
    delivery: Delivered | None = None
    error: Failure | None = None
    action_id: str | None = None
    message: str | None = None
    note: str | None = None
    duplicate: bool | None = None


class RouteTarget(Request):
    """Whose tool is meant."""

    butler: ButlerName
    tool: Text = "route.execute"


# How often butlers may pass a matter on to each other.
MOST_DEPTH = 3


class Asking(Request):
    """The context of a prompt as a butler brings it: the session to be, and the one of its own that asks, if any."""

    session_id: UUID
    asked_in: UUID | None = None


class AskedSession(Request):
    """The context of a prompt as its butler gets it: the session to be, who asks, and where in which chain it is."""

    session_id: UUID
    asked_by: ButlerName
    chain: UUID
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH, strict=True)]
    # What a schedule had due: the lineage of all that the chain sends.
    occurrence_id: UUID | None = None


class RouteInput(Request):
    """What the target gets: a prompt, or a context that holds the notify request."""

    prompt: Annotated[str, Field(max_length=100_000)] | None = None
    context: Mapping[str, object] | None = None


class RouteEnvelope(Request):
    """route.v1: one call on its way through the Switchboard."""

    schema_version: Literal["route.v1"] = "route.v1"
    request_context: RequestContext
    target: RouteTarget
    input: RouteInput
    trace_context: Mapping[str, object] | None = None


class Timing(Response):
    """How long the answering daemon worked, in milliseconds."""

    duration_ms: float


class RouteResult(Response):
    """What the target found."""

    notify_response: NotifyResponse | None = None
    # The session that a prompt became.
    session_id: str | None = None


class RouteResponse(Response):
    """route_response.v1: what became of the call."""

    schema_version: Literal["route_response.v1"] = "route_response.v1"
    request_context: Mapping[str, object] = Field(default_factory=dict)
    status: Literal["ok", "error", "accepted"]
    result: RouteResult | None = None
    error: Failure | None = None
    timing: Timing


class TellRequest(Request):
    """What one butler lets another know."""

    butler: ButlerName
    text: Annotated[str, Field(min_length=1, max_length=4000)]


class AttachmentRequest(Request):
    """Which file of which message, for the butler that the message was routed to."""

    message_id: UUID
    number: Annotated[int, Field(ge=1, le=32, strict=True)] = 1
    butler: ButlerName | None = None


class IngestSource(Request):
    """Where an inbound event came in."""

    channel: Text
    provider: Text
    endpoint_identity: Text


class IngestEvent(Request):
    """Which event it is at the provider."""

    external_event_id: Text
    external_thread_id: Text | None = None
    # The thread identity of the message that is answered, edited or reacted to.
    reply_to: Text | None = None
    # A message, or a forward of somebody else's words, an edit, a reaction.
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,29}$")] = "message"
    observed_at: str


class IngestSender(Request):
    """Who sent it, in the provider's own terms."""

    identity: Text
    display_name: Annotated[str, Field(max_length=200)] | None = None
    # Whether the owner's own mail server vouches for the sender's domain; elsewhere it says nothing.
    verified: bool = False


class IngestAttachment(Request):
    """A file that came with a message, by reference: its bytes stay with the provider, who knows it by `file_id`."""

    name: Annotated[str, Field(max_length=255)] | None = None
    type: Annotated[str, Field(max_length=127)] | None = None
    size: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    file_id: Annotated[str, Field(max_length=500)] | None = None


class IngestPayload(Request):
    """What was said."""

    text: Annotated[str, Field(max_length=100_000)]
    # What the message repeats of earlier ones, which are not its sender's words now.
    quoted: Annotated[str, Field(max_length=100_000)] | None = None
    # Whether that begins with words that may be its sender's.
    in_doubt: bool = False
    subject: Annotated[str, Field(max_length=1000)] | None = None
    attachments: Annotated[tuple[IngestAttachment, ...], Field(max_length=32)] | None = None


class IngestControl(Request):
    """How to treat it."""

    idempotency_key: str | None = None


class IngestEnvelope(Request):
    """ingest.v1: one inbound event on its way to the inbox."""

    schema_version: Literal["ingest.v1"] = "ingest.v1"
    source: IngestSource
    event: IngestEvent
    sender: IngestSender
    payload: IngestPayload
    control: IngestControl = IngestControl()


ENVELOPES: Mapping[str, type[BaseModel]] = {
    "notify.v1": NotifyEnvelope,
    "notify_response.v1": NotifyResponse,
    "route.v1": RouteEnvelope,
    "route_response.v1": RouteResponse,
    "ingest.v1": IngestEnvelope,
}


def wire(model: BaseModel) -> dict[str, object]:
    """Return the model as the JSON object that travels: aliases used, absent fields left out."""
    dumped: dict[str, object] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def failure(error_class: ErrorClass, message: str, *, retryable: bool | None = None) -> Failure:
    """Make an error object whose `retryable` follows its class unless stated otherwise."""
    hint = error_class in RETRYABLE if retryable is None else retryable
    return Failure.model_validate({"class": error_class, "message": message, "retryable": hint})


def route_request(
    envelope: Mapping[str, object], origin: str, request_id: str, *, again: bool = False
) -> dict[str, object]:
    """Wrap a notify request in a route.v1 envelope, with the request it belongs to and the trace of this message.

    A notification that belongs to no request is one of its own, by its caller; who that is, the token proves.
    """
    return {
        "schema_version": "route.v1",
        "request_context": _originating(envelope.get("request_context"))
        or {
            "request_id": request_id,
            "source_channel": "mcp",
            "source_endpoint_identity": "switchboard",
            "source_sender_identity": origin,
        },
        "trace_context": {"traceparent": _traceparent(request_id)},
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": envelope, **({"again": True} if again else {})}},
    }


def _originating(context: object) -> Mapping[str, object] | None:
    """Return the context of the request that a notification answers, if that names one."""
    try:
        return RequestContext.model_validate(context).model_dump(exclude_none=True)
    except ValidationError:
        return None


def _traceparent(notification_id: str) -> str:
    """Return the trace of a notification (W3C Trace Context): the same wherever the message is taken up again."""
    digest = sha256(notification_id.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def same_envelope(brought: Mapping[str, object], stored: Mapping[str, object]) -> bool:
    """Return whether the envelope that was carried is the one that was admitted, its notification_id aside."""
    plain = [{k: v for k, v in one.items() if k != "notification_id" and v is not None} for one in (brought, stored)]
    one, other = (canonical_json(json.loads(canonical_json(each), parse_float=_as_stored)) for each in plain)
    return one == other


def _as_stored(text: str) -> int | float:
    """Return a number with a point or an exponent as it comes back from jsonb, which writes a whole one without them.

    A whole one below 10^16 keeps its point there; taken for the same on both sides, that makes no difference.
    """
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(text)


def describe(error: ValidationError) -> str:
    """Say what is wrong first with an envelope, naming the field."""
    first = error.errors()[0]
    return f"Field '{'.'.join(str(part) for part in first['loc'])}': {first['msg']}."
