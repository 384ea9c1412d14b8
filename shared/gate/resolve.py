"""Stage 2, resolve: whom a message is for and what proves its thread; a Target out, or what is missing for one.

Where it would go, and as what, is the same for its butler, at the marker, and before the owner's eyes.

A reply or reaction names a thread. If no message that reached its butler proves that thread, a reply goes out as a
message of its own, and a reaction to anybody but the owner stays one that only the owner can let out. In the owner's
own chat a butler may also point at what it said itself, and at nothing of others; otherwise there is no reaction.
"""

from dataclasses import replace

from shared.addresses import Address, folded
from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection
from shared.gate.accept import thread_of
from shared.hashing import Content, content_sha
from shared.model import Action
from shared.storage import threads
from shared.storage.contacts import MissingIdentifier, Recipient, Target, target_of


async def resolve(connection: Connection, envelope: NotifyEnvelope, whom: Recipient) -> Target | MissingIdentifier:
    """Resolve the address meant, and whether the thread that names it is proved (stage 2).

    What cannot be read raises.
    """
    delivery = envelope.delivery
    target = await target_of(connection, whom, delivery.channel)
    if isinstance(target, MissingIdentifier) or delivery.intent == "send":
        return target
    address = Address(delivery.channel, target.address)
    proves = threads.may_point_at if target.is_owner else threads.is_proved
    endpoint = str((envelope.request_context or {}).get("source_endpoint_identity"))
    to = threads.Answering(thread_of(envelope), endpoint)
    proved = await proves(connection, envelope.origin_butler, address, to)
    return replace(target, unproved=not proved)


def going(envelope: NotifyEnvelope, target: Target | MissingIdentifier) -> NotifyEnvelope:
    """Return the envelope as it would go out: an unproved reply becomes a send, which has no thread."""
    unproved = isinstance(target, Target) and target.unproved
    if not unproved or envelope.delivery.intent != "reply":
        return envelope
    delivery = envelope.delivery.model_copy(update={"intent": "send"})
    return envelope.model_copy(update={"delivery": delivery})


def action_of(asked: NotifyEnvelope, target: Target, realm: str, admitted_by: str) -> Action:
    """Return the action that the policy judges, the same at admission and at the marker."""
    envelope = going(asked, target)
    delivery = envelope.delivery
    content = Content(
        realm=realm,
        origin=envelope.origin_butler,
        intent=delivery.intent,
        channel=delivery.channel,
        # An entry has one spelling, the owner's; what is on no contact has each caller's.
        address=target.address if target.entry_id else folded(target.address),
        entry_id=target.entry_id,
        message=delivery.message,
        subject=delivery.subject,
        emoji=delivery.emoji,
        thread=thread_of(envelope),
    )
    return Action(
        origin=envelope.origin_butler,
        admitted_by=admitted_by,
        intent=delivery.intent,
        channel=delivery.channel,
        address=target.address,
        contact_id=target.contact_id,
        is_owner=target.is_owner,
        deliverable=target.deliverable,
        realm=realm,
        content_sha=content_sha(content),
        length=len(delivery.message) + len(delivery.subject or ""),
        unproved=target.unproved,
    )
