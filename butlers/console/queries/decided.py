"""What was decided lately, as the page of approvals lists it; read by SELECT only."""

from collections.abc import Mapping
from dataclasses import dataclass

from butlers.console.labels import ago, excerpt, text
from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.display.fates import ACTION, CALL
from shared.display.visible import in_line, visible
from shared.storage.addressees import Addressee, addressee
from shared.storage.readable import ENVELOPE, message, shown


@dataclass(frozen=True, slots=True)
class Decided:
    """One line of what was decided lately."""

    id: str
    butler: str
    channel: str
    name: str
    address: str
    excerpt: str
    status: str
    words: str
    reason: str
    when: str


# What nobody decided is as old as its end where it expired, else as its question: a butler withdraws by the dozen.
ENDED = f"coalesce(a.decided_at, CASE WHEN a.status IN ('pending', 'expired') THEN {EXPIRES} ELSE a.requested_at END)"
DECIDED = f"""
SELECT a.id::text, a.origin_butler, a.status, a.decision_reason, {ENVELOPE} AS envelope, n.owner_text, n.whom,
    d.address AS sent_to, a.tool_name, c.says,
    extract(epoch FROM clock_timestamp() - {ENDED})::float8 AS age
FROM shared.pending_actions a LEFT JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id LEFT JOIN shared.tool_calls c ON c.id = a.id
WHERE (a.status <> 'pending' OR a.expires_at <= clock_timestamp()) AND (n.id IS NOT NULL OR c.id IS NOT NULL)
ORDER BY {ENDED} DESC, a.id LIMIT 30
"""


async def decided(connection: Connection) -> tuple[Decided, ...]:
    """Return the last thirty questions that were decided or expired, newest first."""
    return tuple([await _decided(connection, row) for row in await connection.fetch(DECIDED)])


async def _decided(connection: Connection, row: Record) -> Decided:
    """Return a line; that of a gated tool's call has the tool in the place of a recipient."""
    status = "expired" if row["status"] == "pending" else row["status"]
    if row["says"] is not None:
        asked: Mapping[str, object] = {"message": row["says"]}
        to, words = Addressee(row["tool_name"]), CALL[status]
    else:
        asked, words = shown(message(row), row["id"]), ACTION[status]
        to = await addressee(connection, row["whom"], str(asked.get("channel")), row["sent_to"])
    return Decided(
        id=row["id"],
        butler=visible(row["origin_butler"]),
        channel=text(asked, "channel"),
        name=in_line(to.name),
        address=in_line(to.address),
        excerpt=excerpt(str(asked.get("message") or asked.get("emoji") or "")),
        status=status,
        words=words,
        reason=visible(row["decision_reason"] or ""),
        when=ago(row["age"]),
    )
