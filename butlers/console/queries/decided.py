"""What was decided lately, as the page of approvals lists it; read by SELECT only."""

from dataclasses import dataclass

from butlers.console.labels import ago, excerpt, text
from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.display.fates import ACTION
from shared.display.visible import in_line, visible
from shared.storage.addressees import addressee
from shared.storage.readable import message, shown


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


DECIDED = f"""
SELECT a.id::text, a.origin_butler, a.status, a.decision_reason, n.envelope, n.owner_text, n.whom,
    d.address AS sent_to,
    extract(epoch FROM clock_timestamp() - coalesce(a.decided_at, {EXPIRES}))::float8 AS age
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
WHERE a.status <> 'pending' OR a.expires_at <= clock_timestamp()
ORDER BY coalesce(a.decided_at, a.expires_at) DESC, a.id LIMIT 30
"""


async def decided(connection: Connection) -> tuple[Decided, ...]:
    """Return the last thirty questions that were decided or expired, newest first."""
    return tuple([await _decided(connection, row) for row in await connection.fetch(DECIDED)])


async def _decided(connection: Connection, row: Record) -> Decided:
    asked = shown(message(row), row["id"])
    to = await addressee(connection, row["whom"], str(asked.get("channel")), row["sent_to"])
    status = "expired" if row["status"] == "pending" else row["status"]
    return Decided(
        id=row["id"],
        butler=visible(row["origin_butler"]),
        channel=text(asked, "channel"),
        name=in_line(to.name),
        address=in_line(to.address),
        excerpt=excerpt(str(asked.get("message") or asked.get("emoji") or "")),
        status=status,
        words=ACTION[status],
        reason=visible(row["decision_reason"] or ""),
        when=ago(row["age"]),
    )
