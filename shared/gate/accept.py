"""Stage 1, accept: tool arguments or an envelope in, a NotifyCall out, or an error that names the field. Pure."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from sys import float_info
from typing import Final, get_args
from uuid import UUID

from shared.addresses import parse_recipient
from shared.channels import CHANNELS, channel_of
from shared.contracts import Delivery, Intent, NotifyEnvelope, answered_subject, as_sent, to_whom
from shared.errors import InvalidInput
from shared.idempotency import Asked, request_sha, said_sha, stated_lineage
from shared.storage.contacts import Recipient

PARAMETERS: Final = (
    "channel",
    "message",
    "contact_id",
    "recipient",
    "subject",
    "intent",
    "emoji",
    "request_context",
)
LONGEST: Final = {"message": 10_000, "recipient": 320, "subject": 500, "emoji": 32, "contact_id": 64}
REQUIRED_CONTEXT: Final = ("request_id", "source_channel", "source_endpoint_identity", "source_sender_identity")
DEEPEST: Final = 20
_LINE_BREAKS: Final = re.compile(r"[\r\n\x00]")
_UNSENDABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
# JSON text escapes a NUL; after a doubled backslash the same six characters are plain text.
_UNSENDABLE_JSON: Final = re.compile(r"[\ud800-\udfff]|(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class NotifyCall:
    """One valid call: the envelope as it will travel, whom it means, and what identifies equal calls."""

    envelope: NotifyEnvelope
    whom: Recipient
    # The hash of the request, which calls share whichever way they spell an address; and of the call as it was said.
    request_sha: str
    said_sha: str
    lineage: str | None
    note: str | None = None
    # The session that calls, if one does.
    session: str | None = None
    # The arguments as they came, used or not; equal calls may be worded differently.
    came: Mapping[str, object] = field(default_factory=dict, compare=False)


def thread_of(envelope: NotifyEnvelope) -> str | None:
    """Return what is answered or reacted to, as `chat:message` or a Message-ID; None for a send."""
    found = (envelope.request_context or {}).get("source_thread_identity")
    return str(found).strip(" ") if found and envelope.delivery.intent != "send" else None


def accept(origin: str, arguments: Mapping[str, object]) -> NotifyCall:
    """Read a call of the tool (seed 001: intent, channel and context requirements).

    Raises InvalidInput if it does not meet them.
    """
    _demand_known_names(arguments)
    given = {name: value for name, value in arguments.items() if not _is_absent(value)}
    channel = _channel(given)
    intent = _one_of(given, "intent", get_args(Intent), "send")
    message = message_of(given, intent)
    texts = {name: _text(given, name) for name in ("contact_id", "recipient", "subject", "emoji")}
    context = _context(given.get("request_context"))
    if intent != "send":
        _demand_context(intent, channel, context)
    if intent == "react":
        _demand_reaction(channel, texts["emoji"])
    delivery = Delivery(
        intent=intent,  # type: ignore[arg-type]  # one of the literals, checked above
        channel=channel,
        message=message,
        recipient=texts["recipient"].strip(" ") if texts["recipient"] else None,
        subject=texts["subject"] or answered_subject(intent, channel, context),
        emoji=texts["emoji"],
    )
    sent = as_sent(delivery)
    envelope = NotifyEnvelope(origin_butler=origin, delivery=sent, request_context=context or None)
    call = _call(envelope, texts["contact_id"])
    note = " ".join(filter(None, [call.note, _unused(delivery, sent)])) or None
    return replace(call, envelope=to_whom(envelope, call.whom.kind), note=note, came=given)


def _unused(given: Delivery, sent: Delivery) -> str:
    """Say which words go to nobody."""
    unused = [name for name in ("message", "subject", "emoji") if getattr(given, name) != getattr(sent, name)]
    words = f"no {' and no '.join(unused)}"
    said = f"Intent '{given.intent}' on {given.channel} takes {words}; it was ignored."
    return said if unused else ""


def accept_envelope(envelope: NotifyEnvelope) -> NotifyCall:
    """Read an envelope that carries only the contract's fields, by the same rules as a call of the tool."""
    arguments: dict[str, object] = envelope.delivery.model_dump(exclude_none=True)
    if envelope.request_context is not None:
        arguments["request_context"] = dict(envelope.request_context)
    return accept(envelope.origin_butler, arguments)


def _call(envelope: NotifyEnvelope, contact_id: str | None) -> NotifyCall:
    whom, note = _whom(envelope, contact_id)
    delivery, context = envelope.delivery, envelope.request_context or {}
    asked = Asked(
        origin=envelope.origin_butler,
        intent=delivery.intent,
        channel=delivery.channel,
        whom=str(whom),
        message=delivery.message,
        subject=delivery.subject,
        emoji=delivery.emoji,
        answered=str(context.get("source_thread_identity", "")) if delivery.intent != "send" else None,
    )
    return NotifyCall(envelope, whom, request_sha(asked), said_sha(asked), stated_lineage(context), note)


def _whom(envelope: NotifyEnvelope, contact_id: str | None) -> tuple[Recipient, str | None]:
    """Return whom the call means, and a note on parameters that were not used.

    That is contact_id, then recipient, then the owner; a reply or reaction goes to its thread.
    """
    recipient, context = envelope.delivery.recipient, envelope.request_context or {}
    if envelope.delivery.intent != "send":
        note = (
            "A reply goes to its conversation; contact_id and recipient were ignored."
            if contact_id or recipient
            else None
        )
        thread = CHANNELS[envelope.delivery.channel].thread
        answered = "source_thread_identity" if thread.address else "source_sender_identity"
        return Recipient("thread", str(context[answered])), note
    if contact_id:
        note = "contact_id was used; recipient was ignored." if recipient else None
        return Recipient("contact", _uuid(contact_id)), note
    if recipient:
        return Recipient("recipient", parse_recipient(recipient).value), None
    return Recipient("owner"), None


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip(" "))


def _demand_known_names(arguments: Mapping[str, object]) -> None:
    for name in arguments:
        if name not in PARAMETERS:
            near = difflib.get_close_matches(str(name), PARAMETERS, 1, 0.5)
            hint = f"Did you mean '{near[0]}'?" if near else f"Choose from: {', '.join(PARAMETERS)}."
            raise InvalidInput(f"Unknown parameter '{str(name)[:60]}'.", hint)


def _channel(given: Mapping[str, object]) -> str:
    if "channel" not in given:
        raise InvalidInput("Missing required 'channel' parameter.", f"Give {' or '.join(map(repr, CHANNELS))}.")
    channel = given["channel"]
    if channel not in tuple(CHANNELS):
        raise InvalidInput(f"Unsupported channel '{str(channel)[:60]}'.", f"Supported: {', '.join(CHANNELS)}.")
    return str(channel)


def _one_of(given: Mapping[str, object], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = given.get(name, default)
    if value not in allowed:
        raise InvalidInput(f"Unsupported {name} '{str(value)[:60]}'.", f"Supported: {', '.join(allowed)}.")
    return str(value)


def message_of(given: Mapping[str, object], intent: str) -> str:
    """Return the text to deliver; raise InvalidInput if it is missing, too long or cannot be sent."""
    message = _text(given, "message")
    if intent == "react":
        return message or ""
    if message is None or not message.strip():
        raise InvalidInput("Missing required 'message' parameter.", f"Intent '{intent}' needs the text to deliver.")
    return message


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"Parameter '{name}' must be a string.", "Give plain text.")
    if len(value) > LONGEST[name]:
        raise InvalidInput(
            f"Parameter '{name}' has {len(value)} characters; at most {LONGEST[name]} are allowed.", "Shorten it."
        )
    if name != "message" and _LINE_BREAKS.search(value):
        raise InvalidInput(f"Parameter '{name}' contains a line break or a NUL character.", "Give one line of text.")
    if _UNSENDABLE.search(value):
        raise InvalidInput(
            f"Parameter '{name}' contains a NUL character or an incomplete Unicode character.", "Remove it."
        )
    return value


def _context(value: object) -> dict[str, object]:
    """Return the context as an object; read JSON text too, since models send it so."""
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InvalidInput("Parameter 'request_context' is not valid JSON.", "Give an object.") from None
    if not isinstance(value, dict):
        raise InvalidInput("Parameter 'request_context' must be an object.", "Give the request_context you received.")
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise InvalidInput("Parameter 'request_context' is nested too deeply.", "Pass it on unchanged.") from None
    if _UNSENDABLE_JSON.search(text) or len(text) > 20_000:  # noqa: PLR2004
        raise InvalidInput(
            "Parameter 'request_context' is too long, or contains a NUL or an incomplete Unicode character.",
            "Pass it on unchanged.",
        )
    if _is_deeper(value, DEEPEST):
        raise InvalidInput("Parameter 'request_context' is nested too deeply.", "Pass it on unchanged.")
    _demand_context_values(value)
    return value


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether objects and lists are nested more than so many levels."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inside is not None and (levels == 0 or any(_is_deeper(one, levels - 1) for one in inside))


def _is_boundless(value: object) -> bool:
    """Return whether the value holds a number that is beyond a double's range, infinite or not a number."""
    if isinstance(value, Mapping | list):
        return any(map(_is_boundless, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, int | float) and not abs(value) <= float_info.max


def _demand_context_values(context: Mapping[str, object]) -> None:
    if _is_boundless(context):
        raise InvalidInput("Parameter 'request_context' contains an infinite number.", "Give it as text.")
    for name in (*REQUIRED_CONTEXT, "source_thread_identity", "source_subject", "idempotency_key", "received_at"):
        value = context.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or not 1 <= len(value) <= 1000 or _LINE_BREAKS.search(value):  # noqa: PLR2004
            raise InvalidInput(f"request_context.{name} must be one line of text.", "Pass it on unchanged.")
    for name in ("request_id", "idempotency_key"):
        if len(str(context.get(name) or "")) > 200:  # noqa: PLR2004
            raise InvalidInput(f"request_context.{name} has more than 200 characters.", "Shorten it.")


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _demand_context(intent: str, channel: str, context: Mapping[str, object]) -> None:
    for name in REQUIRED_CONTEXT:
        if not context.get(name):
            raise InvalidInput(
                f"Intent '{intent}' needs request_context.{name}.", "Pass on the request_context you received."
            )
    if (received := context.get("received_at")) is not None and not _has_zone(str(received)):
        raise InvalidInput(
            "request_context.received_at must be an ISO 8601 time with a time zone.", "Pass it on unchanged."
        )
    family = channel_of(str(context["source_channel"]))
    if family != channel:
        raise InvalidInput(
            f"The request came by '{str(context['source_channel'])[:40]}' and cannot be answered by {channel}.",
            f"Use channel '{family}'." if family else "Use intent 'send'.",
        )
    form, thread = CHANNELS[channel].thread, context.get("source_thread_identity")
    if form.address is None:
        parse_recipient(str(context["source_sender_identity"]))
    elif not thread:
        raise InvalidInput(
            f"Intent '{intent}' on {channel} needs request_context.source_thread_identity.", f"Give '{form.form}'."
        )
    if thread:
        form.spellings(str(thread))


def _demand_reaction(channel: str, emoji: str | None) -> None:
    spec = CHANNELS[channel]
    if not spec.reactions:
        raise InvalidInput(f"{spec.label.capitalize()} has no reactions.", "Use intent 'reply'.")
    if emoji is None:
        raise InvalidInput("Missing required 'emoji' parameter.", "Intent 'react' needs the emoji to set.")
    if emoji.strip().replace("\ufe0f", "") not in spec.reactions:  # an emoji is the same in either style
        raise InvalidInput(
            f"{spec.label.capitalize()} has no reaction {emoji[:20]!r}.", f"Choose from: {' '.join(spec.reactions)}."
        )


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidInput(
            f"Parameter 'contact_id' must be a UUID, not '{text[:60]}'.",
            "Give the name as `recipient`, or look the id up with the tool `contacts`.",
        ) from None
