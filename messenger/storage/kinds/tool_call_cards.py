"""The cards about calls of gated tools that are missing, and those that are over; messenger/storage/cards.py queues."""

from typing import Final

from messenger.storage.cards import QUEUE, WITHIN
from messenger.storage.queries import IN_TELEGRAM, SHOWN_IN_TELEGRAM, YES_STANDS
from shared.config.timings import Timings
from shared.db.pool import Connection, Record
from shared.storage.tool_calls import REALM

# Of each butler as many as its burst ($2) has room for, messages and calls together; the rest stands in a digest.
ASK_CALLS: Final = f"""
WITH unasked AS MATERIALIZED ({WITHIN}),
waits AS (
    SELECT id, revision, origin_butler, requested_at, true AS counted FROM unasked
    WHERE fits AND notification_id IS NULL
    UNION ALL
    SELECT q.id, q.revision, q.origin_butler, q.requested_at, false FROM shared.pending_actions q
    WHERE q.status = 'pending' AND q.expires_at > clock_timestamp() AND q.notification_id IS NULL
        AND EXISTS (SELECT FROM messenger.deliveries d WHERE d.card_kind = 'tool_call' AND d.action_id = q.id)),
a AS (
    SELECT 'tool_call' AS card_kind, id AS action_id, NULL::uuid AS about, NULL::uuid AS digest_id, revision,
        origin_butler, requested_at AS at, counted, {REALM} AS realm FROM waits)
{QUEUE}
"""


async def ask_calls(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards of the calls that wait for the owner."""
    return len(await connection.fetch(ASK_CALLS, timings.card_elsewhere, burst, timings.burst_window))


# A butler whose calls fail in numbers is told of in so many cards ($2) within $4; the console shows the rest. What was
# uncertain and failed then has its card, unless that never left; what the owner left needs none. What has one of its
# kind may get another, by the next channel. The revision of each is one more than the attempt it is about: what a
# backup brought back may be of none.
ASK_ENDED: Final = f"""
WITH ended AS (
    SELECT q.id, c.attempt + 1 AS revision, q.origin_butler, q.requested_at,
        CASE q.status WHEN 'uncertain' THEN 'call_uncertain' ELSE 'call_ended' END AS card_kind, has_card,
        row_number() OVER (PARTITION BY q.origin_butler, has_card ORDER BY q.requested_at, q.id) AS place
    FROM shared.pending_actions q JOIN shared.tool_calls c USING (id)
    CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM messenger.deliveries d WHERE d.action_id = q.id
        AND d.revision = c.attempt + 1 AND d.card_kind
            = CASE q.status WHEN 'uncertain' THEN 'call_uncertain' ELSE 'call_ended' END)) t (has_card)
    WHERE q.notification_id IS NULL AND q.requested_at > clock_timestamp() - $3::interval
        AND (q.status IN ('failed', 'uncertain')
            OR (q.status = 'expired' AND (q.decided_by IS NOT NULL OR q.rule_id IS NOT NULL)))
        AND (q.status <> 'failed' OR NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.action_id = q.id
            AND d.revision = c.attempt + 1 AND d.card_kind = 'call_uncertain'
            AND d.status NOT IN ('cancelled', 'failed', 'expired', 'dead')))
        AND NOT EXISTS (SELECT FROM shared.approval_events e WHERE e.action_id = q.id AND e.actor = 'owner'
            AND e.event_type = 'failed')),
told AS (
    SELECT origin_butler, count(DISTINCT (action_id, revision)) AS cards FROM messenger.deliveries
    WHERE card_kind IN ('call_ended', 'call_uncertain') AND created_at > clock_timestamp() - $4::interval
        AND created_at <= clock_timestamp() GROUP BY origin_butler),
a AS (
    SELECT card_kind, id AS action_id, NULL::uuid AS about, NULL::uuid AS digest_id, revision,
        origin_butler, requested_at AS at, false AS counted, {REALM} AS realm
    FROM ended LEFT JOIN told USING (origin_butler) WHERE has_card OR place + coalesce(cards, 0) <= $2)
{QUEUE}
"""


async def ask_ended(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards about calls that failed, or may have run."""
    within = (timings.card_elsewhere, burst, timings.call_told, timings.burst_window)
    return len(await connection.fetch(ASK_ENDED, *within))


# A card that was answered; and one that shows a yes of which more is known by now.
ASKED: Final = f"""
SELECT d.id::text, d.address, a.id::text AS action_id, {REALM} AS realm, p.provider_id, p.shown, d.created_at,
    {YES_STANDS} AS shows
FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
"""
CALLS_OVER: Final = f"""
{ASKED} {SHOWN_IN_TELEGRAM} AND d.card_kind = 'tool_call' AND a.status <> 'pending'
UNION ALL
{ASKED} {IN_TELEGRAM} AND d.card_kind = 'tool_call' AND d.reason IN ('approved', 'uncertain')
    AND d.reason <> {YES_STANDS}
ORDER BY created_at LIMIT 20
"""


async def calls_over(connection: Connection) -> list[Record]:
    """Return the cards in Telegram that do not show how their call stands."""
    return list(await connection.fetch(CALLS_OVER))


# A card about an attempt of which more is known, or more was said, than it shows.
UNCERTAIN_OVER: Final = f"""
{ASKED} JOIN shared.tool_calls c ON c.id = a.id {SHOWN_IN_TELEGRAM}
    AND d.card_kind = 'call_uncertain' AND (a.status <> 'uncertain' OR c.attempt + 1 <> d.revision)
UNION ALL
{ASKED} {IN_TELEGRAM} AND d.card_kind = 'call_uncertain' AND d.reason IN ('approved', 'uncertain')
    AND d.reason <> {YES_STANDS}
ORDER BY created_at LIMIT 20
"""


async def uncertain_over(connection: Connection) -> list[Record]:
    """Return the cards in Telegram about calls whose outcome is known, or answered, by now."""
    return list(await connection.fetch(UNCERTAIN_OVER))
