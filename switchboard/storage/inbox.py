"""The inbox: every inbound message once, with the context by which a butler answers it, and where it was routed.

A message waits for its butler under a lease: whoever takes it works on it until the lease ends, and only the holder
writes where it went. Of one conversation only the oldest that waits can be taken, so that all are routed in order.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

import asyncpg

from shared.addresses import folded
from shared.channels import CHANNELS, channel_of, realms
from shared.config.timings import STANDARD
from shared.contracts import IngestEnvelope
from shared.db.pool import Connection, Record, tell
from shared.display.conversation import written_at
from shared.errors import InvalidInput

LONGEST_ID: Final = 200

STORE: Final = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, contact_id, text,
    request_context, kind, reply_to, display_name, attachments, conversation, quoted, verified, in_doubt, route_until)
VALUES ($1, $2, $3, $4, $5, (SELECT contact_id FROM shared.contact_info WHERE type = $1 AND lookup = $6), $7, $8, $9,
    $10, $11, $12, $13, $14, $15, $16, clock_timestamp())
ON CONFLICT (channel, endpoint_identity, external_event_id) DO NOTHING
RETURNING id::text
"""


async def store(connection: Connection, event: IngestEnvelope) -> str | None:
    """Store the event; return the new row's id, or None if it was stored before.

    Raises InvalidInput for a channel that is none, and for what no row can hold.
    """
    channel = channel_of(event.source.channel)
    if channel is None:
        raise InvalidInput(f"Nothing comes in by the channel '{event.source.channel[:40]}'.")
    try:
        found: str | None = await connection.fetchval(STORE, channel, *_columns(channel, event))
    except asyncpg.DataError as unfit:
        raise InvalidInput("The database cannot hold what came in.", "Leave out control characters.") from unfit
    return found


def _columns(channel: str, event: IngestEnvelope) -> Sequence[object]:
    attached = event.payload.attachments
    return (
        event.source.endpoint_identity,
        event.event.external_event_id,
        event.event.external_thread_id,
        event.sender.identity,
        folded(event.sender.identity),
        event.payload.text,
        context_of(event),
        event.event.kind,
        event.event.reply_to,
        event.sender.display_name,
        [one.model_dump(exclude_none=True) for one in attached] if attached else None,
        conversation_of(channel, event),
        event.payload.quoted,
        event.sender.verified,
        event.payload.in_doubt,
    )


def conversation_of(channel: str, event: IngestEnvelope) -> str:
    """Return what is routed in order: the chat of a message, or its sender where a thread does not say where it is."""
    place, thread = CHANNELS[channel].thread.address, event.event.external_thread_id
    return place(thread) if place is not None and thread else folded(event.sender.identity)


def context_of(event: IngestEnvelope) -> Mapping[str, object]:
    """Return the request_context by which a butler may answer this event."""
    context: dict[str, object] = {
        "request_id": request_id_of(event),
        "source_channel": event.source.channel,
        "source_endpoint_identity": event.source.endpoint_identity,
        "source_sender_identity": event.sender.identity,
        "received_at": event.event.observed_at,
    }
    if event.event.external_thread_id:
        context["source_thread_identity"] = event.event.external_thread_id
    if subject := " ".join((event.payload.subject or "").split()):
        context["source_subject"] = subject
    return context


def request_id_of(event: IngestEnvelope) -> str:
    """Return the name of the request that this event is: channel, place it came in at, and event.

    INVARIANT: what came in at another bot or mailbox, or in the sandbox, has another name. A long one is hashed.
    """
    source = event.source
    name = f"{source.channel}:{source.endpoint_identity}:{event.event.external_event_id}"
    return name if len(name) <= LONGEST_ID else f"{source.channel[:40]}:{sha256(name.encode()).hexdigest()}"


# The oldest of each conversation that nobody holds; a lease that is longer than any was written by a wrong clock. What
# the classifier was asked about keeps its place, and is taken once that has ended, or is too late.
CLAIM: Final = f"""
UPDATE switchboard.inbox m SET route_holder = $1, route_until = clock_timestamp() + $2::interval
WHERE id IN (
    SELECT i.id FROM switchboard.inbox i
    WHERE i.route_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + $2::interval
        AND NOT EXISTS (SELECT FROM switchboard.inbox before WHERE before.route_until IS NOT NULL
            AND before.channel = i.channel AND before.conversation = i.conversation
            AND (before.received_at, before.id) < (i.received_at, i.id))
        AND NOT EXISTS (SELECT FROM shared.sessions s WHERE s.id = i.asked_in AND s.ended_at IS NULL
            AND s.created_at BETWEEN clock_timestamp() - $4::interval AND clock_timestamp())
    ORDER BY i.received_at, i.id LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING id::text, channel, endpoint_identity, thread, sender, kind, reply_to, text, conversation, received_at,
    verified, routed_to, routed_because, request_context, contact_id::text, asked_in::text,
    left(quoted, 20000) AS quoted, in_doubt,
    received_at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() AS is_late,
    endpoint_identity IN {realms.PLACES} AND {realms.REACHES_PEOPLE} AS is_played,
    EXISTS (SELECT FROM shared.contacts o WHERE o.id = m.contact_id AND 'owner' = ANY (o.roles)) AS from_owner
"""


async def claim(
    connection: Connection, holder: str, lease: timedelta, most: int, patience: timedelta = STANDARD.classifier
) -> Sequence[Record]:
    """Take messages that wait for their butler, at most one of each conversation, for the time of the lease.

    `patience` is how long the classifier's answer is waited for.
    """
    return await connection.fetch(CLAIM, holder, lease, most, patience)


# INVARIANT: a message is asked about once, by whoever holds it.
ASK: Final = """
UPDATE switchboard.inbox SET asked_in = $3, route_until = clock_timestamp(), route_holder = NULL
WHERE id = $1 AND route_holder = $2 AND route_until > clock_timestamp() AND asked_in IS NULL RETURNING id
"""


async def note_asked(connection: Connection, message_id: str, holder: str, session_id: str) -> bool:
    """Note the session in which the classifier is asked, and let the message wait for it; return if it was ours."""
    return await connection.fetchval(ASK, message_id, holder, session_id) is not None


# As in the view `shared.turns`: what a blocked sender wrote is shown to no butler.
BLOCKED: Final = """
EXISTS (SELECT FROM switchboard.routing_rules r WHERE r.butler IS NULL AND coalesce(r.channel, s.channel) = s.channel
    AND (r.sender IS NULL OR lower(r.sender COLLATE "C") = lower(s.sender COLLATE "C"))
    AND (r.contact_id IS NULL OR r.contact_id = s.contact_id)
    AND (r.words IS NULL OR position(lower(r.words) IN lower(s.text)) > 0))
"""
# A message of ours by its number in that chat, or by its Message-ID at that address or, of who is proved to be the
# contact $5, at any other of theirs, and where it came from.
ANSWERED: Final = f"""
SELECT coalesce(n.id, CASE WHEN d.card_kind IN ('tool_call', 'call_ended', 'call_uncertain') THEN d.action_id END)::text
        AS id, coalesce(n.origin_butler, s.routed_to, d.origin_butler) AS butler, s.id::text AS concerns
FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
    JOIN shared.channels c ON c.channel = d.channel AND c.realm = d.realm AND c.endpoint = $2
    LEFT JOIN shared.pending_actions a ON d.card_kind = 'approval' AND a.id = d.action_id
    LEFT JOIN messenger.deliveries o ON d.card_kind IN ('uncertain', 'not_delivered', 'bounced') AND o.id = d.about
    LEFT JOIN shared.notifications n ON n.id = coalesce(d.notification_id, a.notification_id, o.notification_id)
    LEFT JOIN switchboard.inbox s ON d.card_kind = 'stranger' AND s.id = d.about AND NOT {BLOCKED}
WHERE p.provider_id = ANY ($4) AND d.channel = $1 AND (lower(d.address COLLATE "C") = $3
    OR lower(d.address COLLATE "C") IN (SELECT lookup FROM shared.contact_info WHERE type = $1 AND contact_id = $5))
LIMIT 1
"""


async def ours_answered(connection: Connection, message: Record) -> Record | None:
    """Return the message of ours that this one answers: its notification or call, or that of its card, and its butler.

    A card about a stranger's words is answered to that stranger's butler, and says which words it concerns, unless the
    stranger is blocked by now.

    What is named in another chat, or was sent to somebody else, is none that this sender can answer.
    """
    form, reply_to = CHANNELS[message["channel"]].thread, message["reply_to"]
    if not reply_to or (form.address is not None and form.address(reply_to) != message["conversation"]):
        return None
    try:
        spellings = form.spellings(reply_to)
    except InvalidInput:
        return None
    numbers = [one.rpartition(":")[2] for one in spellings] if form.address is not None else list(spellings)
    place = message["channel"], message["endpoint_identity"], folded(message["conversation"])
    contact = message["contact_id"] if form.address is None and message["verified"] else None
    return await connection.fetchrow(ANSWERED, *place, numbers, contact)


WENT_TO: Final = "SELECT EXISTS (SELECT FROM switchboard.inbox WHERE id = $1 AND routed_to = $2)"


async def went_to(connection: Connection, message_id: UUID, butler: str) -> bool:
    """Return whether a message was routed to that butler."""
    return bool(await connection.fetchval(WENT_TO, message_id, butler))


# What the owner changes, or reacts to, is part of an older talk, and no turn of this one.
# INVARIANT: what nobody vouches for says nothing of where a mail goes that is vouched for; anybody can name its sender.
THREAD: Final = """
SELECT routed_to, received_at, (thread = ANY ($5)) IS TRUE AS by_thread FROM switchboard.inbox
WHERE channel = $1 AND endpoint_identity = $2 AND conversation = $3 AND routed_to IS NOT NULL AND id <> $4
    AND (verified OR NOT $8)
    AND (thread = ANY ($5) OR (kind IN ('message', 'forward')
        AND received_at BETWEEN $6::timestamptz AND $7::timestamptz))
ORDER BY by_thread DESC, received_at DESC LIMIT 1
"""


async def thread_butler(connection: Connection, message: Record, lasts: timedelta) -> tuple[str | None, Sequence[str]]:
    """Return the butler that the thread went to last, and those that wrote to the owner there since, the last first.

    The first is found by what is answered, else by what was said here just before; only then others count beside it.
    Before means before it was written, however late it came; a chat brings in order what is written there.
    INVARIANT: no earlier row honestly has the number of a new message of a chat, which anybody can count on.
    """
    is_new = message["channel"] == "telegram" and message["kind"] in {"message", "forward"}
    thread = [one for one in (message["reply_to"], None if is_new else message["thread"]) if one]
    place = message["channel"], message["endpoint_identity"], message["conversation"]
    now = message["received_at"]
    written = written_at(message["request_context"].get("received_at"), now) or now
    since = written - lasts
    went = await connection.fetchrow(THREAD, *place, message["id"], thread, since, now, message["verified"])
    butler: str | None = went["routed_to"] if went is not None else None
    if (went is not None and went["by_thread"]) or not message["from_owner"]:
        return butler, ()
    return butler, await _wrote_since(connection, message, went["received_at"] if went else since, written)


# INVARIANT: it begins with what was delivered, which no butler writes: rows that a butler puts cost nothing.
# Of a flood the last is enough. A card that asks the owner names its butler as a message does; a reaction says nothing
# that could be answered.
WROTE: Final = """
WITH told AS MATERIALIZED (
    SELECT d.notification_id, d.origin_butler, d.realm, d.settled_at FROM messenger.deliveries d
    WHERE (d.class = 'owner' OR d.card_kind IN ('question', 'approval', 'tool_call', 'call_uncertain'))
        AND d.status = 'sent' AND d.channel = $1 AND d.address = $3
        AND d.settled_at BETWEEN $4::timestamptz AND $5::timestamptz
    ORDER BY d.settled_at DESC LIMIT 100)
SELECT told.origin_butler
FROM told LEFT JOIN shared.notifications n ON n.id = told.notification_id
    JOIN shared.channels c ON c.channel = $1 AND c.realm = told.realm AND c.endpoint = $2
WHERE n.envelope #>> '{delivery,intent}' IS DISTINCT FROM 'react'
GROUP BY told.origin_butler ORDER BY max(told.settled_at) DESC
"""


async def _wrote_since(connection: Connection, message: Record, since: datetime, until: datetime) -> Sequence[str]:
    """Return who wrote to the owner in that chat from then until then; of a mail what it answers says that."""
    if CHANNELS[message["channel"]].thread.address is None:
        return ()
    place = message["channel"], message["endpoint_identity"], message["conversation"]
    rows = await connection.fetch(WROTE, *place, since, until)
    return [row["origin_butler"] for row in rows]


# INVARIANT: only the holder of a lease that lasts writes where a message went, and that is written once. Only that it
# goes to nobody comes later too: whoever was blocked while it waited reaches no butler. What answers nothing of
# ours may answer what was written there before, as that stands now.
ROUTE: Final = """
UPDATE switchboard.inbox m SET routed_to = CASE WHEN $3::text IS NOT NULL THEN coalesce(routed_to, $3) END,
    routed_because = CASE WHEN $3 IS NOT NULL THEN coalesce(routed_because, $4) ELSE $4 END,
    concerns = $6, answers = coalesce($5::uuid, (SELECT o.id FROM switchboard.inbox o
        WHERE o.channel = m.channel AND o.thread = m.reply_to AND o.endpoint_identity = m.endpoint_identity
            AND o.conversation = m.conversation AND o.id <> m.id AND o.kind <> 'reaction'
            AND (o.verified OR NOT m.verified)
        ORDER BY o.received_at DESC LIMIT 1))
WHERE id = $1 AND route_holder = $2 AND route_until > clock_timestamp() RETURNING routed_to
"""


async def route(
    connection: Connection,
    message_id: str,
    holder: str,
    chosen: tuple[str | None, str],
    answers: str | None,
    concerns: str | None = None,
) -> tuple[bool, str | None]:
    """Write where a message goes and why, with the ids of what it answers and of the words it concerns.

    Return whether the lease lasted, and where it really went.
    """
    row = await connection.fetchrow(ROUTE, message_id, holder, *chosen, answers, concerns)
    return row is not None, row["routed_to"] if row is not None else None


# Of what was routed nothing happens twice, so that it need not be on disk at once: after a crash it is routed again.
DONE: Final = """
UPDATE switchboard.inbox SET route_until = NULL, route_holder = NULL
FROM (SELECT set_config('synchronous_commit', 'off', true)) lazily WHERE id = $1 AND route_holder = $2
"""


async def done(connection: Connection, message_id: str, holder: str) -> None:
    """End the routing of a message: nobody takes it again, and the next of its conversation can be taken."""
    await connection.execute(DONE, message_id, holder)


# The owner answers a stranger's words, so nothing of them waits any more.
ANSWERED_NOW: Final = """
WITH told AS (
    UPDATE switchboard.inbox SET stranger = 'answered' WHERE id = $1::text::uuid AND stranger = 'waits')
SELECT request_context FROM switchboard.inbox WHERE id = $1::text::uuid
"""


async def context_to_answer(connection: Connection, message_id: str) -> dict[str, object] | None:
    """Return the context by which those words are answered, and note that they are; None where it is gone."""
    found: dict[str, object] | None = await connection.fetchval(ANSWERED_NOW, message_id)
    return found or None


# INVARIANT: an edit changes the message of the same number in the same chat, by the same sender: the last before it,
# since a row that was put there beforehand is none.
# The same file may have another id of the provider's each time.
REFILED: Final = """
(SELECT jsonb_agg(CASE jsonb_typeof(f) WHEN 'object' THEN f - 'file_id' END)
    FROM jsonb_array_elements(CASE jsonb_typeof(e.attachments) WHEN 'array' THEN e.attachments END) f)
IS DISTINCT FROM
(SELECT jsonb_agg(CASE jsonb_typeof(f) WHEN 'object' THEN f - 'file_id' END)
    FROM jsonb_array_elements(CASE jsonb_typeof(b.attachments) WHEN 'array' THEN b.attachments END) f)
"""
EDITED: Final = f"""
SELECT o.id::text, o.routed_to, o.request_context, o.stranger IS NOT NULL AS shown,
    (SELECT b.id::text FROM switchboard.inbox b WHERE b.channel = e.channel AND b.thread = e.thread
        AND b.endpoint_identity = e.endpoint_identity AND b.sender = e.sender AND b.kind IN ('message', 'edit')
        AND (b.received_at, b.id) >= (o.received_at, o.id) AND (b.received_at, b.id) < (e.received_at, e.id)
        AND b.text ~ '[^[:space:]]'
        ORDER BY b.received_at, b.id LIMIT 1) AS spoken,
    e.text <> b.text OR {REFILED} AS changed, e.text <> b.text AS reworded, {REFILED} AS refiled
FROM switchboard.inbox o JOIN switchboard.inbox e ON e.id = $1 AND o.channel = e.channel
    AND o.endpoint_identity = e.endpoint_identity AND o.thread = e.thread AND o.sender = e.sender
LEFT JOIN LATERAL (SELECT text, attachments FROM switchboard.inbox b WHERE b.channel = e.channel AND b.thread = e.thread
    AND b.endpoint_identity = e.endpoint_identity AND b.sender = e.sender AND b.kind IN ('message', 'edit')
    AND (b.received_at, b.id) < (e.received_at, e.id) ORDER BY b.received_at DESC, b.id DESC LIMIT 1) b ON true
WHERE o.kind = 'message' AND o.routed_to IS NOT NULL AND (o.received_at, o.id) < (e.received_at, e.id)
ORDER BY o.received_at DESC, o.id DESC LIMIT 1
"""


async def edited(connection: Connection, edit: Record) -> Record | None:
    """Return the message that an edit changes, and its butler, if one got it.

    `changed` is whether these words (`reworded`) or files (`refiled`) are others than the last before them,
    `spoken` the id of the first that had any words, whose session is asked them, and `shown` whether the owner was or
    is to be shown the message.
    """
    return await connection.fetchrow(EDITED, edit["id"])


# Of one contact: sessions that wait, and messages that were work in a day.
MOST_WAITING: Final = 5
MOST_A_DAY: Final = 50
# Of sessions the Switchboard sees those alone that wait and that a message began.
HAS_ROOM: Final = """
SELECT count(*) FILTER (WHERE EXISTS (SELECT FROM shared.sessions s WHERE s.id = i.id)) < $3 AND count(*) < $4
FROM switchboard.inbox i
WHERE i.contact_id = $1 AND i.id <> $2 AND i.kind = 'message' AND i.routed_to IS NOT NULL AND i.stranger IS NULL
    AND i.received_at > clock_timestamp() - interval '1 day'
"""


async def has_room(connection: Connection, message: Record) -> bool:
    """Return whether a contact's message may begin work: the owner's words never wait for many of others."""
    return bool(await connection.fetchval(HAS_ROOM, message["contact_id"], message["id"], MOST_WAITING, MOST_A_DAY))


# Of a flood the first is a hint; what comes within two seconds of it is found by the Messenger's tick.
SHOW: Final = """
WITH shown AS (UPDATE switchboard.inbox SET stranger = 'waits' WHERE id = $1 AND stranger IS NULL RETURNING received_at)
SELECT NOT EXISTS (
    SELECT FROM switchboard.inbox other WHERE other.stranger = 'waits' AND other.id <> $1
        AND other.received_at BETWEEN shown.received_at - interval '2 s' AND shown.received_at)
FROM shown
"""


async def show(connection: Connection, message_id: str) -> None:
    """Have the owner shown what somebody else wrote, which nobody works on."""
    if await connection.fetchval(SHOW, message_id):
        await tell(connection, "cards")


CHANGED: Final = """
UPDATE switchboard.inbox o SET stranger = 'changed' FROM switchboard.inbox e
WHERE e.id = $1 AND o.channel = e.channel AND o.endpoint_identity = e.endpoint_identity AND o.thread = e.thread
    AND o.sender = e.sender AND o.id <> e.id AND o.stranger = 'waits'
"""


async def show_changed(connection: Connection, edit_id: str) -> None:
    """Have the owner shown what somebody else changed, in place of what was written before."""
    await connection.execute(CHANGED, edit_id)
    await show(connection, edit_id)
