"""Deliveries and their markers: each state change is one statement.

Every change asks for the state it comes from, so that the second of two changes nothing. All times are the database's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

import asyncpg

from messenger.storage import rate_limits
from messenger.storage.queries import LASTS
from shared.config.timings import Timings
from shared.db.pool import Connection, Record, after_commit
from shared.errors import IdempotencyConflict, Unavailable
from shared.model import Decision
from shared.storage import pending_actions
from shared.telemetry.logs import logger

log = logger("messenger.storage.deliveries")
# A state in which nothing more happens to a delivery by itself.
ENDS = frozenset({"sent", "failed", "expired", "dead", "cancelled", "refused", "uncertain", "abandoned", "bounced"})
# A state in which a rule lets nothing more of it out.
BY_NO_RULE = frozenset({"parked", "failed", "expired", "dead", "cancelled", "refused"})


def ended(of: str) -> str:
    """Return the column, of the deliveries of this name in a statement, with what the log says of an end.

    It holds no word of the message and no address.
    """
    return f"""
jsonb_strip_nulls(jsonb_build_object('delivery', {of}.id, 'notification', {of}.notification_id,
    'butler', {of}.origin_butler, 'kind', coalesce({of}.card_kind, {of}.class), 'channel', {of}.channel,
    'state', {of}.status, 'reason', {of}.reason, 'attempt', {of}.attempt,
    'seconds', round(extract(epoch FROM {of}.settled_at - {of}.created_at), 3))) AS ended"""


async def note_ends(connection: Connection, rows: Iterable[Record | None]) -> None:
    """Note of these deliveries, each of which a statement has moved, what has ended.

    Its rule gets its use back where nothing can have left; once it is committed, the log has a line of it.
    """
    for told in [dict(row["ended"]) for row in rows if row is not None]:
        if told["state"] in BY_NO_RULE and "notification" in told:
            await pending_actions.give_back(connection, told["notification"])
        if told["state"] in ENDS:
            after_commit(connection, partial(log.info, "delivery_ended", **told))


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery this process holds under a fence."""

    id: str
    notification_id: str | None
    kind: str
    channel: str
    address: str
    fence: int
    attempt: int
    action_id: str | None
    revision: int | None
    created_at: datetime
    # How often it was queued again after an attempt of unknown outcome.
    repeated: int = 0
    # Of a card: what it is about, and its kind. The revision is the question's, or the attempt of the delivery.
    digest_id: str | None = None
    about: str | None = None
    card_kind: str | None = None
    # Where it goes out, which is where it was asked for.
    realm: str = ""
    # The butler whose message it is, or about whose message; empty for the house's own.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A delivery to be made for a notification."""

    notification_id: str
    kind: str
    channel: str
    address: str
    realm: str
    not_after: datetime | None
    origin: str
    lineage: str


ENQUEUE = """
INSERT INTO messenger.deliveries (notification_id, class, channel, address, realm, not_after, origin_butler, lineage)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (notification_id) DO UPDATE SET status = 'queued', reason = NULL, send_at = clock_timestamp(),
    address = EXCLUDED.address, not_after = EXCLUDED.not_after WHERE deliveries.status = 'parked'
RETURNING CASE WHEN xmax = 0 THEN 'made' ELSE 'again' END
"""


async def enqueue(connection: Connection, new: Enqueued) -> Literal["made", "again"] | None:
    """Put the delivery in the queue, and return whether it was made or had waited; None where it lies there already.

    Return None too where it is settled.
    """
    queued: Literal["made", "again"] | None
    queued = await connection.fetchval(ENQUEUE, UUID(new.notification_id), *astuple(new)[1:])
    return queued


# Each butler has its own line at an address: oldest first, cards before the rest; a message being retried keeps its
# place for a minute from its first failure, one that a limit delays or of which a part is sent for good. Both are
# looked up by the primary keys. A card that is being retried keeps its place before its own butler's words alone: a row
# that breaks it is that butler's. A line is crowded where more than three texts wait in it, or more than one card, due
# or not. Of the lines at an address a card goes first that has begun to arrive or is the only one of its line, then a
# text that has begun, then the oldest; where one is crowded the lot decides, and many texts have a quarter of the
# chance. So no line, nor one that a brake keeps going round, stands before another, and none stands behind for ever. A
# butler that has sent as much as it may has no line.
# Butlers take turns: of each the oldest, counting what it has in flight; ties are broken at random.
CLAIM = """
WITH spent AS MATERIALIZED (
    SELECT substr(key, length($3 || ':of:') + 1) AS origin FROM messenger.rate_limits
    WHERE starts_with(key, $3 || ':of:') AND free_at > clock_timestamp()),
line AS (
    SELECT DISTINCT ON (q.address, coalesce(q.origin_butler, '')) q.id, q.address, q.class <> 'card' AS other,
        q.created_at, coalesce(q.origin_butler, '') AS origin, q.send_at <= clock_timestamp() AS due,
        q.fence > 0 AND coalesce((SELECT true FROM messenger.parts p
            WHERE p.delivery_id = q.id AND p.status = 'sent' LIMIT 1), false) AS begun,
        coalesce((SELECT true FROM messenger.deliveries o WHERE o.channel = $3 AND o.address = q.address
            AND o.status = 'queued' AND coalesce(o.origin_butler, '') = coalesce(q.origin_butler, '')
            AND (o.class = 'card') = (q.class = 'card')
            OFFSET CASE q.class WHEN 'card' THEN 1 ELSE 3 END LIMIT 1), false) AS crowded
    FROM messenger.deliveries q WHERE q.channel = $3 AND q.status = 'queued'
        AND coalesce(q.not_after, 'infinity') > clock_timestamp()
        AND coalesce(q.origin_butler, '') NOT IN (SELECT origin FROM spent)
        AND (q.send_at <= clock_timestamp() OR q.reason = 'rate_limited'
            OR (q.attempt > 0 AND q.reason IS DISTINCT FROM 'braked' AND (
                (SELECT q.class <> 'card' FROM messenger.parts p WHERE p.delivery_id = q.id AND p.status = 'sent'
                    LIMIT 1)
                OR coalesce((SELECT min(a.ended_at) FROM messenger.attempts a WHERE a.delivery_id = q.id
                    AND a.outcome <> 'sent'), q.created_at) > clock_timestamp() - $5::interval)))
    ORDER BY q.address, coalesce(q.origin_butler, ''), q.class <> 'card', q.created_at, q.id),
lines AS (
    SELECT *, other OR (crowded AND NOT begun) AS late, bool_or(crowded) OVER (PARTITION BY address) AS by_lot
    FROM line),
head AS (
    SELECT DISTINCT ON (address) * FROM lines WHERE due OR (begun AND other)
    ORDER BY address, late, begun DESC,
        CASE WHEN by_lot THEN random() * CASE WHEN crowded AND other THEN 4 ELSE 1 END END, created_at, id),
held AS (
    SELECT address, coalesce(origin_butler, '') AS origin FROM messenger.deliveries
    WHERE channel = $3 AND status IN ('claimed', 'sending')),
next AS MATERIALIZED (
    SELECT id, other, coalesce(busy.n, 0) + row_number() OVER (PARTITION BY origin ORDER BY other, created_at) AS turn,
        random() AS lot
    FROM head LEFT JOIN (SELECT origin, count(*) AS n FROM held GROUP BY origin) busy USING (origin)
    WHERE due AND address NOT IN (SELECT address FROM held)
        AND NOT EXISTS (SELECT FROM messenger.circuit_breakers WHERE channel = $3 AND since IS NOT NULL)
        AND NOT EXISTS (SELECT FROM messenger.rate_limits
            WHERE key = $3 || ':' || address AND free_at > clock_timestamp())
    ORDER BY other, turn, lot LIMIT 4 * $2::int),
taken AS MATERIALIZED (
    SELECT q.id FROM next JOIN messenger.deliveries q ON q.id = next.id WHERE q.status = 'queued'
    ORDER BY next.other, next.turn, next.lot
    LIMIT least($2::int, (SELECT min(CASE WHEN free_at > clock_timestamp() THEN 0 WHEN every = '0' THEN $2::int
        ELSE least(burst, 1 + floor(extract(epoch FROM clock_timestamp() - free_at) / extract(epoch FROM every))) END)
        FROM messenger.rate_limits WHERE key IN ($3, $3 || ':minute', $3 || ':day'))::int)
    FOR UPDATE OF q SKIP LOCKED)
UPDATE messenger.deliveries d SET status = 'claimed', fence = d.fence + 1, attempt = d.attempt + 1, claimed_by = $1,
    lease_until = clock_timestamp() + $4::interval
FROM taken WHERE d.id = taken.id
RETURNING d.id::text, d.notification_id::text, d.class, d.channel, d.address, d.fence, d.attempt, d.action_id::text,
    d.revision, d.created_at, d.repeated, d.digest_id::text,
    d.about::text, d.card_kind, d.realm, coalesce(d.origin_butler, '')
"""


async def claim(connection: Connection, holder: str, room: Mapping[str, int], timings: Timings) -> list[Claimed]:
    """Take what is due, at most one per address and so many per channel as there is room for; return it."""
    lasts = (timings.lease, timings.turn_held)
    try:
        rows = [await connection.fetch(CLAIM, holder, most, name, *lasts) for name, most in room.items()]
    except asyncpg.UniqueViolationError:
        raise Unavailable("Another Messenger took one of these at the same moment.") from None
    return [Claimed(*row.values()) for taken in rows for row in taken]


RENEW = """
UPDATE messenger.deliveries SET lease_until = clock_timestamp() + $4::interval
WHERE claimed_by = $1 AND (id, fence) IN (SELECT * FROM unnest($2::uuid[], $3::bigint[]))
    AND status IN ('claimed', 'sending') AND lease_until > clock_timestamp() RETURNING id::text, fence
"""


async def renew(
    connection: Connection, holder: str, held: Collection[tuple[str, int]], lease: timedelta
) -> set[tuple[str, int]]:
    """Lengthen the leases of what is in hand (id, fence), not of what was left to its lease.

    Return what the holder still holds.
    """
    ids, fences = [UUID(delivery_id) for delivery_id, _ in held], [fence for _, fence in held]
    return {(row["id"], row["fence"]) for row in await connection.fetch(RENEW, holder, ids, fences, lease)}


# The marker: nothing after this statement's commit may be repeated by a machine unless proved not sent. There is none
# for a third party's part that has its receipt.
MARK = f"""
WITH d AS (
    UPDATE messenger.deliveries SET status = 'sending', lease_until = clock_timestamp() + $8::interval,
        content_sha = coalesce($6, content_sha)
    WHERE id = $1 AND fence = $2 AND status IN ('claimed', 'sending') AND lease_until > clock_timestamp()
        AND NOT (class = 'third_party' AND EXISTS (SELECT FROM messenger.attempts e
            WHERE e.delivery_id = $1 AND e.n = $3 AND e.outcome = 'sent'))
    RETURNING id, notification_id, class, channel, address),
p AS (
    UPDATE messenger.parts SET status = 'sending' FROM d
    WHERE delivery_id = d.id AND n = $3 AND wire_sha = $5 AND status IN ('queued', 'failed') RETURNING n),
a AS (
    INSERT INTO messenger.attempts (delivery_id, n, attempt, started_at, marked_at)
    SELECT d.id, p.n, $4, clock_timestamp(), clock_timestamp() FROM d, p RETURNING n),
line AS ({pending_actions.MARKED})
SELECT CASE WHEN EXISTS (SELECT FROM a) THEN NOT EXISTS (SELECT FROM messenger.rate_limits
    WHERE key = ANY ($10::text[]) AND free_at > clock_timestamp()) END
"""


async def mark(
    connection: Connection,
    claimed: Claimed,
    part: tuple[int, str],
    lease: timedelta,
    content_sha: str | None,
    decision: Decision | None = None,
) -> bool | None:
    """Set the marker of one part (its number, its wire_sha); return None where lease, fence or bytes are not ours now.

    Return whether the part may leave now, as far as the provider has asked nobody to wait longer; if not, the caller's
    transaction must not be committed. Its line in the audit says by which decision it is set.
    Raises IdempotencyConflict where the same content went out in this lineage before; the transaction is lost.
    """
    (n, wire_sha), rule = part, UUID(decision.rule_id) if decision and decision.rule_id else None
    yes = decision.approval_id if decision else None
    keys = rate_limits.keys(claimed.channel, claimed.address, claimed.origin)
    args = (UUID(claimed.id), claimed.fence, n, claimed.attempt, wire_sha, content_sha, rule, lease, yes, keys)
    try:
        leaves: bool | None = await connection.fetchval(MARK, *args)
    except asyncpg.UniqueViolationError:
        raise IdempotencyConflict("The same message to the same address was already sent in this request.") from None
    return leaves


@dataclass(frozen=True, slots=True)
class Turned:
    """A delivery that has moved on: how many parts it has, and the receipt of the first."""

    parts: int
    receipt: str | None


TURN = f"""
UPDATE messenger.deliveries SET status = $4, reason = $5, send_at = clock_timestamp() + $6,
    settled_at = CASE WHEN $4 IN ('queued', 'parked') THEN NULL ELSE clock_timestamp() END,
    claimed_by = NULL, lease_until = NULL
WHERE id = $1 AND fence = $2 AND status = ANY ($3::text[]) RETURNING {ended("deliveries")},
    (SELECT count(*) FROM messenger.parts WHERE delivery_id = deliveries.id) AS parts,
    (SELECT provider_id FROM messenger.parts WHERE delivery_id = deliveries.id AND n = 1) AS receipt
"""


async def turn(
    connection: Connection, claimed: Claimed, come_from: Sequence[str], to: str, reason: str | None, after: object
) -> Turned | None:
    """Move the delivery on and return what it has by then; `after` is the timedelta until it may be tried again.

    Return None if it did not move.
    """
    args = (UUID(claimed.id), claimed.fence, list(come_from), to, reason, after)
    row = await connection.fetchrow(TURN, *args)
    await note_ends(connection, [row])
    return Turned(row["parts"], row["receipt"]) if row is not None else None


# A delay is no attempt: the count goes back, so that neither its chat nor its own next try waits for it.
DELAY = """
UPDATE messenger.deliveries SET status = 'queued', reason = $3, attempt = attempt - 1,
    send_at = least(to_timestamp($4::float8), not_after,
        CASE WHEN $3 = 'braked' THEN clock_timestamp() + $5::interval END),
    claimed_by = NULL, lease_until = NULL
WHERE id = $1 AND fence = $2 AND status IN ('claimed', 'sending') RETURNING id
"""


async def delay(connection: Connection, claimed: Claimed, reason: str, until: float | None, again: timedelta) -> bool:
    """Put it back for later without counting an attempt, and return whether it was put back.

    `until` is seconds since 1970; what a brake delays is looked at `again` before.
    """
    return await connection.fetchval(DELAY, UUID(claimed.id), claimed.fence, reason, until, again) is not None


# `sending` whose holder fell silent is never queued again: it becomes `uncertain` if a part may be out.
# A card may come twice without harm, since deciding happens once; so may a reaction, which replaces the last one.
REAP = f"""
WITH lost AS (
    SELECT d.id, d.class <> 'card' AND EXISTS (
        SELECT FROM messenger.parts p WHERE p.delivery_id = d.id AND p.status = 'sending')
        AND NOT EXISTS (SELECT FROM shared.notifications n WHERE n.id = d.notification_id
            AND n.envelope #>> '{{delivery,intent}}' = 'react') AS out
    FROM messenger.deliveries d
    WHERE d.id = ANY ($2::text[]::uuid[]) AND d.status IN ('claimed', 'sending')
        AND NOT {LASTS} FOR UPDATE SKIP LOCKED),
p AS (
    UPDATE messenger.parts SET status = CASE WHEN lost.out THEN 'uncertain' ELSE 'queued' END FROM lost
    WHERE delivery_id = lost.id AND parts.status = 'sending' RETURNING delivery_id),
a AS (
    UPDATE messenger.attempts SET ended_at = clock_timestamp(), outcome = 'lease_lost' FROM lost
    WHERE delivery_id = lost.id AND ended_at IS NULL RETURNING delivery_id),
d AS (
    UPDATE messenger.deliveries d SET
        status = CASE WHEN lost.out THEN 'uncertain' ELSE 'queued' END,
        reason = CASE WHEN lost.out THEN 'lease_lost' END, claimed_by = NULL, lease_until = NULL,
        settled_at = CASE WHEN lost.out THEN clock_timestamp() END
    FROM lost WHERE d.id = lost.id RETURNING d.id, d.status, d.notification_id, d.channel, {ended("d")})
SELECT id::text, status, notification_id::text, channel, ended FROM d
"""


async def reap(connection: Connection, deliveries: Sequence[str], lease: timedelta) -> list[Record]:
    """Take what silent holders left, and return it.

    What is unsent goes back to the queue, what was possibly sent becomes `uncertain`.
    """
    rows = list(await connection.fetch(REAP, lease, list(deliveries)))
    await note_ends(connection, rows)
    return rows


# There is one card about a thing at an address. By another bot ($5, no more $6) it comes whole, as by another address,
# whose wires are others. Of a message nothing has left yet.
READDRESS = """
WITH moved AS (
    UPDATE messenger.deliveries d SET address = $3, class = $4, realm = $5, status = 'queued', claimed_by = NULL,
        lease_until = NULL
    WHERE id = $1 AND fence = $2 AND status IN ('claimed', 'sending') AND NOT EXISTS (
        SELECT FROM messenger.deliveries o WHERE o.card_kind = d.card_kind
            AND (o.action_id = d.action_id OR o.about = d.about OR o.digest_id = d.digest_id)
            AND coalesce(o.revision = d.revision, true) AND (o.channel, o.address, o.realm) = (d.channel, $3, $5))
    RETURNING d.id),
whole AS (
    UPDATE messenger.parts SET status = 'queued' FROM moved
    WHERE delivery_id = moved.id AND parts.status = 'sent' AND $5::text <> $6::text)
SELECT id FROM moved
"""


async def readdress(connection: Connection, claimed: Claimed, address: str, kind: str, realm: str) -> bool:
    """Put it back in the queue, since whom it goes to changed meanwhile; return False for a card that is there already.

    It waits in the order of the new address, and as what it is now.
    """
    args = (UUID(claimed.id), claimed.fence, address, kind, realm, claimed.realm)
    return await connection.fetchval(READDRESS, *args) is not None
