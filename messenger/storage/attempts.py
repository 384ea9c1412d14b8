"""Parts and attempts: what was tried with each part of a delivery; each change is one statement.

The marker, which begins an attempt, is a change of the delivery: `messenger/storage/deliveries.py` writes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from messenger.storage.deliveries import Claimed
from shared.db.pool import Connection, Record

# What has left stays as the bytes it left with; a card that changed is sent anew, as it may come twice without harm.
KEEP_PARTS = """
WITH d AS (SELECT id, class = 'card' AS card FROM messenger.deliveries WHERE id = $1),
gone AS (
    DELETE FROM messenger.parts USING d WHERE delivery_id = d.id AND n > cardinality($2::text[])
        AND (d.card OR parts.status IN ('queued', 'failed')) RETURNING n),
kept AS (
    INSERT INTO messenger.parts (delivery_id, n, wire_sha, shown)
    SELECT d.id, n, sha, CASE WHEN n = cardinality($2::text[]) THEN $3::jsonb END
    FROM d, unnest($2::text[]) WITH ORDINALITY AS w(sha, n)
    ON CONFLICT (delivery_id, n) DO UPDATE SET wire_sha = EXCLUDED.wire_sha, shown = EXCLUDED.shown, status = 'queued'
    WHERE parts.wire_sha <> EXCLUDED.wire_sha AND (parts.status IN ('queued', 'failed') OR (SELECT card FROM d))
    RETURNING n, wire_sha, status, provider_id)
SELECT n, wire_sha, status, provider_id FROM kept UNION ALL
SELECT n, wire_sha, status, provider_id FROM messenger.parts
WHERE delivery_id = $1 AND n NOT IN (SELECT n FROM gone UNION ALL SELECT n FROM kept) ORDER BY n
"""


async def keep_parts(
    connection: Connection, delivery_id: str, shas: Sequence[str], shown: Mapping[str, object] | None = None
) -> list[Record]:
    """Write down which bytes each part is, and return the parts; those already sent stay what they were.

    `shown` is what a card shows beside its buttons, which stand in its last part.
    """
    return list(await connection.fetch(KEEP_PARTS, UUID(delivery_id), list(shas), shown))


PARTS = "SELECT n, wire_sha, status, provider_id FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"


async def parts(connection: Connection, delivery_id: str) -> list[Record]:
    """Return the parts in order: n, wire_sha, status, provider_id."""
    return list(await connection.fetch(PARTS, UUID(delivery_id)))


@dataclass(frozen=True, slots=True)
class PartEnd:
    """How an attempt at one part ended."""

    n: int
    outcome: str
    detail: str
    status: str
    provider_id: str | None = None


# A late answer may still turn `uncertain` into `sent`: it is matched by its attempt, not by the lease. It says nothing
# of a later attempt at the same part.
END_PART = """
WITH a AS (
    UPDATE messenger.attempts SET ended_at = clock_timestamp(), outcome = $4, detail = $5
    WHERE delivery_id = $1 AND n = $2 AND attempt = $3 AND (ended_at IS NULL OR outcome = 'lease_lost') RETURNING n),
p AS (
    UPDATE messenger.parts SET status = $6, provider_id = coalesce($7, provider_id) FROM a
    WHERE delivery_id = $1 AND parts.n = a.n AND parts.status IN ('sending', 'uncertain')
        AND NOT EXISTS (SELECT FROM messenger.attempts later WHERE later.delivery_id = $1 AND later.n = $2
            AND later.attempt > $3 AND later.marked_at IS NOT NULL) RETURNING parts.n)
SELECT CASE WHEN EXISTS (SELECT FROM p) THEN 'part' WHEN EXISTS (SELECT FROM a) THEN 'attempt' END
"""


async def end_part(connection: Connection, claimed: Claimed, end: PartEnd) -> Literal["part", "attempt"] | None:
    """Write an attempt's end; return `part` if it ends its part too, `attempt` where the part has gone on meanwhile.

    Return None where somebody wrote another end before.
    """
    attempt = (UUID(claimed.id), end.n, claimed.attempt)
    what = (end.outcome, end.detail[:500], end.status, end.provider_id)
    found: Literal["part", "attempt"] | None = await connection.fetchval(END_PART, *attempt, *what)
    return found


NOT_SENT = """
INSERT INTO messenger.attempts (delivery_id, n, attempt, ended_at, outcome, detail)
VALUES ($1, $2, $3, clock_timestamp(), $4, $5) ON CONFLICT DO NOTHING
"""


async def not_sent(connection: Connection, claimed: Claimed, end: PartEnd) -> None:
    """Note an attempt that ended before its marker."""
    delivery = UUID(claimed.id)
    await connection.execute(NOT_SENT, delivery, end.n, claimed.attempt, end.outcome, end.detail[:500])
