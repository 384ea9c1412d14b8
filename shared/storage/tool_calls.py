"""Calls of gated tools: what was asked, who runs it under a lease, and what came of it.

The only writer of shared.tool_calls. Whether a call may run is its pending action, under the same id.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from shared.config.timings import STANDARD
from shared.db.pool import Connection, Record
from shared.hashing import digest, id_in
from shared.model import Risk
from shared.storage.facts import BRAKES, IN_FORCE, RULE

# Where questions about tools are shown: the sandbox is enough only as long as nothing reaches real people.
REALM: Final = "(SELECT coalesce(min(realm) FILTER (WHERE realm <> 'sandbox'), 'sandbox') FROM shared.channels)"
ROW: Final = f"""
SELECT a.id::text, a.origin_butler, a.status, a.revision, a.content_sha, a.rule_id::text, a.requested_at, a.expires_at,
    a.decided_at, a.decided_by::text, a.decision_reason, a.session_id, c.tool_name, c.arguments, c.says, c.risk,
    c.repeatable, c.holder, c.attempt, c.result, {REALM} AS realm,
    a.status = 'pending' AND a.expires_at > clock_timestamp() AS open,
    extract(epoch FROM clock_timestamp() - coalesce(a.decided_at, a.requested_at))::float8 AS age
FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
"""


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call of a gated tool: its exact arguments as JSON, and the tool's own sentence of what it would do."""

    id: str
    origin: str
    tool_name: str
    arguments: str
    says: str
    risk: Risk
    repeatable: bool
    session: str | None = None

    @property
    def content_sha(self) -> str:
        """The hash that a yes is bound to."""
        return call_sha(self.origin, self.tool_name, self.arguments, self.says)


def call_sha(origin: str, tool_name: str, arguments: str, says: str) -> str:
    """Return the hash over what would run, and over what the owner is told that it does."""
    return digest("tool_call.v1", origin, tool_name, arguments, says)


def sha_of(row: Record) -> str:
    """Return the hash over what the row would run now, whatever is written beside it."""
    return call_sha(row["origin_butler"], row["tool_name"], row["arguments"], row["says"])


ADD: Final = """
INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def add_call(connection: Connection, new: NewCall) -> None:
    """Write down what is called; its pending action is there."""
    words = (new.tool_name, new.arguments, new.says, new.risk, new.repeatable)
    await connection.execute(ADD, UUID(new.id), new.origin, *words)


ONE: Final = f"{ROW} WHERE a.id = $1"


async def one(connection: Connection, call_id: str) -> Record | None:
    """Return a call with its pending action, or None."""
    return await connection.fetchrow(ONE, id_in(call_id))


async def own_call(connection: Connection, call_id: str, butler: str) -> Record | None:
    """Return a call of this butler; None for any other's, and for what is none."""
    found = await one(connection, call_id)
    return found if found is not None and found["origin_butler"] == butler else None


OPEN_EQUAL: Final = f"""
{ROW} WHERE a.origin_butler = $1 AND a.content_sha = $2 AND a.notification_id IS NULL AND a.tool_name <> 'notify'
    AND a.status IN ('pending', 'approved', 'executing')
"""


async def open_equal(connection: Connection, butler: str, content_sha: str) -> Record | None:
    """Return the same call that waits or runs already, or None."""
    return await connection.fetchrow(OPEN_EQUAL, butler, content_sha)


# A yes is good for a day, as it is for a message.
DUE: Final = """
SELECT a.id::text, a.tool_name FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
WHERE a.origin_butler = $1 AND a.status = 'approved' AND a.notification_id IS NULL
    AND coalesce(a.decided_at, a.requested_at) > clock_timestamp() - $2::interval
ORDER BY a.requested_at LIMIT 20
"""


async def due_calls(connection: Connection, butler: str, within: timedelta) -> list[Record]:
    """Return this butler's calls that may run and that nobody has begun: id and tool_name, oldest first."""
    return list(await connection.fetch(DUE, butler, within))


# Whoever comes here has moved the pending action to `executing`, which one alone can.
LEASE: Final = """
UPDATE shared.tool_calls SET holder = $2, attempt = attempt + 1, lease_until = clock_timestamp() + $3::interval,
    result = NULL, ended_at = NULL
WHERE id = $1 RETURNING attempt
"""


async def lease(connection: Connection, call_id: str, holder: str, lasts: timedelta) -> int:
    """Begin an attempt under a lease, and return its number."""
    attempt: int = await connection.fetchval(LEASE, UUID(call_id), holder, lasts)
    return attempt


RENEW: Final = """
UPDATE shared.tool_calls SET lease_until = clock_timestamp() + $4::interval
WHERE id = $1 AND holder = $2 AND attempt = $3 AND ended_at IS NULL
"""


async def renew_call(connection: Connection, call_id: str, holder: str, attempt: int, lasts: timedelta) -> None:
    """Keep the lease of an attempt that goes on."""
    await connection.execute(RENEW, UUID(call_id), holder, attempt, lasts)


END: Final = """
UPDATE shared.tool_calls SET result = $4, ended_at = clock_timestamp()
WHERE id = $1 AND (holder, attempt) IS NOT DISTINCT FROM ($2, $3) RETURNING id
"""


async def end_call(connection: Connection, call_id: str, holder: str | None, attempt: int, result: str) -> bool:
    """Write down what came of an attempt; return False if it is another's by now."""
    return await connection.fetchval(END, UUID(call_id), holder, attempt, result) is not None


# Here and below butlers take turns, and what its own butler holds is left for later: this is looked at for all of them
# in one unit of work. A lease that ends further off than its own length was written by a clock that was wrong, and is
# none; and without one no honest process runs anything.
SILENT: Final = """
SELECT id::text, again FROM (
    SELECT a.id, c.repeatable AND c.attempt < 3 AS again,
        row_number() OVER (PARTITION BY a.origin_butler ORDER BY a.requested_at) AS turn
    FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
    WHERE a.status = 'executing' AND a.notification_id IS NULL
        AND (c.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + $1::interval) IS NOT TRUE) silent
JOIN shared.pending_actions a USING (id) ORDER BY turn LIMIT 100 FOR NO KEY UPDATE OF a SKIP LOCKED
"""


async def silent_calls(connection: Connection, lasts: timedelta) -> list[Record]:
    """Return the calls whose daemon no longer renews its lease: id, and `again` if a machine may repeat it."""
    return list(await connection.fetch(SILENT, lasts))


OVERDUE: Final = """
SELECT id::text FROM (
    SELECT a.id, row_number() OVER (PARTITION BY a.origin_butler ORDER BY a.requested_at) AS turn
    FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
    WHERE a.status = 'approved' AND a.notification_id IS NULL
        AND coalesce(a.decided_at, a.requested_at) <= clock_timestamp() - $1::interval) late
JOIN shared.pending_actions a USING (id) ORDER BY turn LIMIT 100 FOR NO KEY UPDATE OF a SKIP LOCKED
"""


async def overdue_calls(connection: Connection, within: timedelta) -> list[str]:
    """Return the calls that were let through so long ago that they may not begin any more."""
    return [row["id"] for row in await connection.fetch(OVERDUE, within)]


# What waits, may run or runs since before a backup was put back. A word of the owner's that came later counts. The
# brake may have been written while the clock was ahead: what was asked after the owner lifted it is not of the backup
# either. A call that its butler held at that moment was asked before it, and is doubted still. A lifting that lies
# ahead too says nothing of what is asked now.
BROUGHT_BACK: Final = """
SELECT a.id::text FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
WHERE a.status IN ('pending', 'approved', 'executing') AND a.notification_id IS NULL
    AND EXISTS (SELECT FROM shared.brakes b WHERE b.reason = 'restored'
        AND least(b.made_at, b.lifted_at) >= coalesce(a.decided_at, a.requested_at)
        AND (b.lifted_at > clock_timestamp()) IS NOT TRUE)
ORDER BY a.id FOR NO KEY UPDATE OF a SKIP LOCKED
"""


async def brought_back(connection: Connection) -> list[str]:
    """Hold and return the calls that a backup brought back, but for what their butlers hold."""
    return [row["id"] for row in await connection.fetch(BROUGHT_BACK)]


# The rules that may speak of a call, with their uses by others; the brakes; what the owner said lately; and whether
# the same call may have run before.
FACTS: Final = f"""
SELECT
    coalesce((SELECT jsonb_agg({RULE}) {IN_FORCE} AND r.tool_name = $3), '[]') AS rules,
    {BRAKES},
    (SELECT extract(epoch FROM max(b.made_at))::float8 FROM shared.brakes b WHERE b.reason = 'restored'
        AND (b.lifted_at IS NULL OR b.handled_at IS NULL
            OR clock_timestamp() < b.lifted_at + $6::interval)) AS restored,
    (SELECT extract(epoch FROM max(decided_at) + $5::interval)::float8 FROM (
        SELECT status, decided_at FROM shared.pending_actions WHERE origin_butler = $1 AND tool_name = $3
            AND notification_id IS NULL AND decided_by IS NOT NULL
            AND decided_at > coalesce((SELECT min(changed_at) FROM shared.channels WHERE realm <> 'sandbox'),
                '-infinity')
        ORDER BY decided_at DESC LIMIT 3) last
        HAVING count(*) = 3 AND bool_and(status = 'denied') AND max(decided_at) > clock_timestamp() - $5::interval)
        AS cools_until,
    EXISTS (SELECT FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
        WHERE a.origin_butler = $1 AND a.content_sha = $4 AND a.notification_id IS NULL
            AND (a.status = 'uncertain' OR (a.status = 'expired' AND c.attempt > 0))) AS uncertain
"""


async def facts(connection: Connection, call_id: str, butler: str, tool: str, content_sha: str) -> Record | None:
    """Return what a decision about a call leans on."""
    spans = (STANDARD.cool_down, STANDARD.restored_mistrusted)
    return await connection.fetchrow(FACTS, butler, UUID(call_id), tool, content_sha, *spans)
