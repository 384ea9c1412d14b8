"""Admission and the current answer.

The only writer of shared.notifications, shared.request_windows and shared.request_aliases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import asyncpg
from pydantic import ValidationError

from shared import answers
from shared.contracts import NotifyEnvelope, NotifyResponse, as_sent, wire
from shared.db.decoding import bounded
from shared.db.pool import Connection, Record
from shared.errors import IdempotencyConflict, InvalidInput, Unreadable
from shared.hashing import id_in
from shared.idempotency import EXPLICIT

# While a message is on its way its authority lasts this long (design section 8).
SEND_WITHIN = timedelta(hours=24)
REPLY_WITHIN = timedelta(hours=1)
REPEAT_WINDOW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class NewNotification:
    """Everything one admission writes."""

    id: str
    origin: str
    admitted_by: str
    realm: str
    key: str
    lineage: str
    request_sha: str
    envelope: NotifyEnvelope
    whom: str
    third_party: bool
    answer: NotifyResponse
    content_sha: str | None = None
    contact_id: str | None = None
    entry_id: str | None = None
    lasts: timedelta | None = None
    # The session that asked, and the arguments as they came, for its pending action.
    session: str | None = None
    came: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Current:
    """What is known of a notification now; `first` is true for the call that admitted it."""

    notification_id: str
    answer: NotifyResponse
    first: bool = False
    same_content: bool = False
    # What the caller should know of how it was taken.
    note: str | None = None


ADMIT = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha,
    envelope, whom, contact_id, contact_info_id, third_party, not_after, status, answer)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, clock_timestamp() + $14, $15, $16
WHERE NOT EXISTS (SELECT FROM shared.request_aliases WHERE origin_butler = $3 AND key = $5)
ON CONFLICT DO NOTHING
"""


async def admit(connection: Connection, new: NewNotification) -> Current:
    """Write the notification once.

    For the same key, or the same content in the lineage, return the first one's current answer instead. Raises
    IdempotencyConflict if a stated key was used for other words, and InvalidInput if too much waits that somebody else
    admitted in the same name.
    """
    try:
        done = await connection.execute(ADMIT, *_columns(new))
    except asyncpg.ProgramLimitExceededError:
        many = f"A hundred messages that {new.admitted_by} sent in the name of {new.origin} wait already."
        raise InvalidInput(many, "Wait until some have left.") from None
    if done == "INSERT 0 1":
        return Current(new.id, new.answer, first=True)
    found = await _first(connection, new)
    if found is None:
        raise IdempotencyConflict(
            "This idempotency_key was already used for a different message.",
            "Use a new request_context.idempotency_key for a new message.",
        )
    return found


def _columns(new: NewNotification) -> tuple[object, ...]:
    named = (new.origin, new.admitted_by, new.realm, new.key, new.lineage, new.request_sha, new.content_sha)
    return (
        UUID(new.id),
        *named,
        wire(new.envelope),
        new.whom,
        *(UUID(one) if one else None for one in (new.contact_id, new.entry_id)),
        *(new.third_party, new.lasts, new.answer.status, wire(new.answer)),
    )


# INVARIANT: only what this daemon admitted itself makes a call a repetition ($2 here, $5 below), and it notes what it
# was asked under its own name. So nobody who admits for a butler answers for that butler's own calls.
BY_KEY = """
SELECT notification_id::text, status, answer, updated_at FROM shared.notification_status
WHERE origin_butler = $1 AND admitted_by = $2 AND (key = $3 OR notification_id =
    (SELECT notification_id FROM shared.request_aliases WHERE origin_butler = $2 AND key = $3))
"""
BY_CONTENT = """
SELECT notification_id::text, status, answer, updated_at FROM shared.notification_status
WHERE origin_butler = $1 AND admitted_by = $2 AND lineage = $3 AND content_sha = $4
"""


async def _first(connection: Connection, new: NewNotification) -> Current | None:
    row = await connection.fetchrow(BY_KEY, new.origin, new.admitted_by, new.key)
    if row is not None:
        return _current(row)
    row = await connection.fetchrow(BY_CONTENT, new.origin, new.admitted_by, new.lineage, new.content_sha)
    return _current(row, same_content=True) if row else None


# Locks the row that equal calls share until this transaction ends; a row inserted only for that stands for no call.
IN_TURN = """
INSERT INTO shared.request_windows (origin_butler, request_sha, lineage, first_at)
VALUES ($1, $2, $3, clock_timestamp() - $4::interval)
ON CONFLICT (origin_butler, request_sha) DO UPDATE SET lineage = EXCLUDED.lineage WHERE false
"""


async def take_turn(connection: Connection, by: str, what: str, lineage: str) -> None:
    """Let the units of work of this daemon that are about the same go on one after the other, each to its end."""
    await connection.execute(IN_TURN, by, what, lineage, REPEAT_WINDOW)


# The same request under another lineage, as long as the owner can answer it and this call was never admitted. From
# here on this call's key names it too.
COLLAPSE = """
WITH first AS (SELECT s.notification_id, s.answer FROM shared.notification_status s
    WHERE s.origin_butler = $1 AND s.request_sha = $2 AND s.status IN ('pending_approval', 'pending_missing_identifier')
        AND s.admitted_by = $5 AND s.realm = $4 AND s.asked_until > clock_timestamp() AND s.key <> $3
        AND NOT EXISTS (SELECT FROM shared.withdrawals w
            WHERE w.notification_id = s.notification_id AND w.origin_butler = $1)
        AND NOT EXISTS (SELECT FROM shared.notification_status own
            WHERE own.origin_butler = $1 AND own.admitted_by = $5 AND own.key = $3)
        AND NOT EXISTS (SELECT FROM shared.request_aliases WHERE origin_butler = $5 AND key = $3)
    ORDER BY s.created_at LIMIT 1),
tied AS (INSERT INTO shared.request_aliases (origin_butler, key, notification_id)
    SELECT $5, $3, notification_id FROM first)
SELECT notification_id::text, answer FROM first
"""


async def collapse(connection: Connection, new: NewNotification) -> Current | None:
    """Return the same request that waits for the owner, and make this one part of it; equal calls take turns.

    Returns None if there is none, and if a key was stated, which asks for another one.
    """
    if new.lineage.startswith(EXPLICIT):
        return None
    await take_turn(connection, new.admitted_by, new.request_sha, new.lineage)
    row = await connection.fetchrow(COLLAPSE, new.origin, new.request_sha, new.key, new.realm, new.admitted_by)
    return replace(_current(row), note=answers.WAITS_ALREADY) if row else None


def _current(row: Record, *, same_content: bool = False) -> Current:
    answer = NotifyResponse.model_validate(row["answer"])
    return Current(row["notification_id"], answer, same_content=same_content)


REQUEST_WINDOW = """
INSERT INTO shared.request_windows AS r (origin_butler, request_sha, lineage) VALUES ($1, $2, $3)
ON CONFLICT (origin_butler, request_sha) DO UPDATE SET
    lineage = CASE WHEN r.first_at < clock_timestamp() - $4::interval THEN EXCLUDED.lineage ELSE r.lineage END,
    first_at = CASE WHEN r.first_at < clock_timestamp() - $4::interval THEN clock_timestamp()
        ELSE least(r.first_at, clock_timestamp()) END
RETURNING r.lineage
"""


async def recent_lineage(connection: Connection, by: str, request_sha: str, fresh: str) -> str:
    """Return the lineage of a call that stated none: that of the first equal call of the last five minutes.

    `by` is the daemon that looks, and finds what it noted itself.
    """
    found: str = await connection.fetchval(REQUEST_WINDOW, by, request_sha, fresh, REPEAT_WINDOW)
    return found


REACTIONS = """
SELECT notification_id::text, emoji FROM shared.notification_status
WHERE origin_butler = $1 AND whom = $2 AND emoji IS NOT NULL ORDER BY created_at DESC LIMIT 20
"""


async def before_reaction(connection: Connection, origin: str, whom: str, emoji: str) -> str:
    """Return what tells this reaction from earlier ones: the id of the last other one set there.

    An equal reaction right after the last is a replay and shares that one's distinction; like, heart, like are three.
    """
    rows = await connection.fetch(REACTIONS, origin, whom)
    others = [row["notification_id"] for row in rows if row["emoji"] != emoji]
    return others[0] if others else ""


# Of the expired messages to third parties one per request comes up again.
EXPIRED_AGAIN = """
UPDATE shared.notifications n SET reopened_at = clock_timestamp(), not_after = NULL
WHERE n.id = $1 AND (NOT n.third_party OR NOT EXISTS (SELECT FROM shared.notifications o
    WHERE o.origin_butler = n.origin_butler AND o.lineage = n.lineage AND o.reopened_at IS NOT NULL)) RETURNING n.id
"""


async def expired_again(connection: Connection, notification_id: str) -> bool:
    """Let this expired message come up again, and return whether it may.

    For a third party this happens once per request.
    """
    return await connection.fetchval(EXPIRED_AGAIN, UUID(notification_id)) is not None


ONE = f"""
SELECT id::text, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha, envelope, whom,
    contact_id::text, third_party, status, answer, created_at, owner_text, {bounded("not_after")} AS not_after,
    not_after <= clock_timestamp() AS too_late, wiped_at IS NOT NULL AS wiped
FROM shared.notifications WHERE id = $1
"""


async def one(connection: Connection, notification_id: str) -> Record | None:
    """Return the whole row, for the daemons that move or deliver it."""
    return await connection.fetchrow(ONE, id_in(notification_id))


LOCKED = ONE + " FOR NO KEY UPDATE"


async def locked(connection: Connection, notification_id: str) -> Record | None:
    """Return the whole row, held until the end of this transaction.

    It comes first in the lock order after the authority.
    """
    return await connection.fetchrow(LOCKED, id_in(notification_id))


# A butler is told if its message goes out in the owner's words. The answer may hold words again, and is wiped in its
# turn.
SETTLE = """
UPDATE shared.notifications SET status = $2, updated_at = clock_timestamp(), wiped_at = NULL,
    answer = jsonb_strip_nulls(jsonb_build_object('note',
        CASE WHEN $2 IN ('ok', 'queued', 'uncertain') THEN $4::text || owner_text END)) || $3::jsonb
WHERE id = $1 RETURNING answer, extract(epoch FROM clock_timestamp() - created_at)::float8 AS age,
    EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = notifications.id) AS asked
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer as it is stored, its message's age in seconds, and whether the owner was ever asked about it."""

    answer: NotifyResponse
    age: float = 0.0
    asked: bool = False


async def settle(connection: Connection, notification_id: str, answer: NotifyResponse) -> Stored:
    """Store the current answer, which every later call for the same gets, and return what stands then."""
    given = (answer.status, wire(answer), answers.OWNER_CHANGED)
    row = await connection.fetchrow(SETTLE, UUID(notification_id), *given)
    if row is None:
        return Stored(answer)
    return Stored(NotifyResponse.model_validate(row["answer"]), row["age"], row["asked"])


# A notification that was delayed and is then tried gets the answer of one that is tried again.
ACCEPTED_AGAIN = """
UPDATE shared.notifications SET updated_at = clock_timestamp(),
    answer = jsonb_strip_nulls(jsonb_build_object('note', $4::text || owner_text)) || $2::jsonb
WHERE id = $1 AND status = 'queued' AND answer ->> 'message' = $3
"""


async def accepted_again(connection: Connection, notification_id: str) -> None:
    """Stop saying that the notification is delayed, if that was said; the caller holds the row."""
    plain = wire(answers.queued(notification_id))
    await connection.execute(ACCEPTED_AGAIN, UUID(notification_id), plain, answers.BRAKED, answers.OWNER_CHANGED)


RELEASE = """
UPDATE shared.notifications SET status = 'queued', updated_at = clock_timestamp(),
    not_after = clock_timestamp() + $3,
    answer = jsonb_strip_nulls(jsonb_build_object('note', $4::text || owner_text)) || $2::jsonb
WHERE id = $1
"""


async def release(connection: Connection, notification_id: str, answer: NotifyResponse, lasts: timedelta) -> None:
    """Put the notification on its way: its authority is given now and lasts for `lasts`."""
    await connection.execute(RELEASE, UUID(notification_id), wire(answer), lasts, answers.OWNER_CHANGED)


EDIT = "UPDATE shared.notifications SET owner_text = $2 WHERE id = $1"


async def edit(connection: Connection, notification_id: str, text: str | None) -> None:
    """Put the owner's words in the place of the message, or take them back; the caller holds the row."""
    await connection.execute(EDIT, UUID(notification_id), text)


def delivery_of(row: Mapping[str, object] | Record) -> Mapping[str, object]:
    """Return the plain fields of what goes out.

    They are as asked, but with the owner's words for the message if there are any.
    """
    envelope = row["envelope"]
    asked = envelope.get("delivery") if isinstance(envelope, Mapping) else None
    fields = asked if isinstance(asked, Mapping) else {}
    return fields if row["owner_text"] is None else {**fields, "message": row["owner_text"]}


def envelope_of(row: Mapping[str, object] | Record) -> NotifyEnvelope:
    """Return the envelope of what goes out: the one source of what is shown, hashed, approved and sent.

    Raises Unreadable if the row holds none.
    """
    try:
        envelope = NotifyEnvelope.model_validate({**row["envelope"], "delivery": delivery_of(row)})  # type: ignore[dict-item]
    except (ValidationError, TypeError):
        raise Unreadable("The stored message cannot be read.") from None
    return envelope.model_copy(update={"delivery": as_sent(envelope.delivery)})


def lasts(intent: str) -> timedelta:
    """Return how long what is allowed at once stays allowed: a reply that comes hours late answers nobody."""
    return SEND_WITHIN if intent == "send" else REPLY_WITHIN
