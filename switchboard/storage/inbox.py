"""The inbox: every inbound message once, with the context by which a butler answers it."""

from collections.abc import Mapping

from shared.addresses import folded
from shared.channels import channel_of
from shared.contracts import IngestEnvelope
from shared.db.pool import Connection

STORE = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, contact_id, text,
    request_context)
VALUES ($1, $2, $3, $4, $5,
    (SELECT contact_id FROM shared.contact_info WHERE type = $1 AND lookup = $6), $7, $8)
ON CONFLICT (channel, endpoint_identity, external_event_id) DO NOTHING
RETURNING id::text
"""


async def store(connection: Connection, event: IngestEnvelope) -> str | None:
    """Store the event; return the new row's id, or None if it was stored before."""
    channel = channel_of(event.source.channel) or "telegram"
    sender = folded(event.sender.identity)
    found: str | None = await connection.fetchval(
        STORE,
        channel,
        event.source.endpoint_identity,
        event.event.external_event_id,
        event.event.external_thread_id,
        event.sender.identity,
        sender,
        event.payload.text,
        context_of(event),
    )
    return found


def context_of(event: IngestEnvelope) -> Mapping[str, object]:
    """Return the request_context by which a butler may answer this event."""
    context: dict[str, object] = {
        "request_id": f"{event.source.channel}:{event.event.external_event_id}",
        "source_channel": event.source.channel,
        "source_endpoint_identity": event.source.endpoint_identity,
        "source_sender_identity": event.sender.identity,
        "received_at": event.event.observed_at,
    }
    if event.event.external_thread_id:
        context["source_thread_identity"] = event.event.external_thread_id
    return context
