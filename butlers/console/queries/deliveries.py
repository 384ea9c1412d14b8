"""What the pages of deliveries show, read by SELECT only; hidden characters in the text of others are written out."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from butlers.console.labels import ago, excerpt
from shared.channels.realms import SANDBOX
from shared.db.pool import Connection, Record
from shared.display.fates import DELIVERY
from shared.display.visible import in_line, visible
from shared.hashing import reference
from shared.storage import deliveries, resolutions

MOST: Final = 100
# The filters of the list, in their order: the value in the URL, and its name.
FILTERS: Final = (
    ("", "All"),
    ("uncertain", "Delivery unconfirmed"),
    ("queued", "Sending"),
    ("parked", "Waiting for approval"),
    ("sent", "Sent"),
    ("failed", "Not delivered"),
    ("expired", "Expired"),
    ("dead", "Gave up after retrying"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One delivery in the list."""

    id: str
    reference: str
    butler: str
    channel: str
    name: str
    address: str
    excerpt: str
    status: str
    words: str
    sandbox: bool
    when: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may have arrived: its reference, what is known, and the attempt that a word on it speaks of."""

    id: str
    reference: str
    attempt: int
    evidence: str
    noted: bool


async def lines(connection: Connection, status: str) -> tuple[Line, ...]:
    """Return the latest hundred deliveries in that status, or in any, newest first."""
    now = await connection.fetchval("SELECT clock_timestamp()")
    rows = await deliveries.latest(connection, status or None, MOST)
    return tuple(_line(row, (now - row["created_at"]).total_seconds()) for row in rows)


def _line(row: Record, age: float) -> Line:
    return Line(
        id=row["id"],
        reference=reference(row["id"]),
        butler=visible(row["origin_butler"]),
        channel=row["channel"],
        name=in_line(row["contact"] or ""),
        address=in_line(row["address"]),
        excerpt=excerpt(row["message"] or row["emoji"] or ""),
        status=row["status"],
        words=DELIVERY[row["status"]],
        sandbox=row["realm"] == SANDBOX,
        when=ago(age),
    )


# The attempt whose outcome is unknown, and whether a word on it is on its way.
DOUBT: Final = """
SELECT d.id::text, d.attempt AS tried, d.reason, a.n, a.marked_at, a.outcome,
    (SELECT count(*) FROM messenger.parts p WHERE p.delivery_id = d.id) AS parts,
    EXISTS (SELECT FROM shared.resolutions r WHERE r.delivery_id = d.id AND r.attempt = d.attempt
        AND r.handled_at IS NULL) AS noted
FROM messenger.deliveries d
LEFT JOIN LATERAL (SELECT * FROM messenger.attempts a WHERE a.delivery_id = d.id AND a.attempt = d.attempt
    AND a.marked_at IS NOT NULL ORDER BY a.n DESC LIMIT 1) a ON true
WHERE d.id = $1 AND d.status = 'uncertain'
"""


async def doubt(connection: Connection, delivery_id: str) -> Doubt | None:
    """Return what is known of the uncertain attempt of this delivery; None if the delivery is not uncertain."""
    row = await connection.fetchrow(DOUBT, UUID(delivery_id)) if delivery_id else None
    if row is None:
        return None
    return Doubt(row["id"], reference(row["id"]), row["tried"], resolutions.evidence(row), row["noted"])


# What ended without anything of it having left.
RETRIED: Final = """
SELECT attempt FROM messenger.deliveries WHERE id = $1 AND class <> 'card' AND status = ANY ($2)
"""


async def retried(connection: Connection, delivery_id: str, notification_id: str) -> int | None:
    """Return the attempt after which the owner may have this delivery tried again; None if it may not be."""
    if not delivery_id or await deliveries.begun(connection, notification_id):
        return None
    found: int | None = await connection.fetchval(RETRIED, UUID(delivery_id), list(resolutions.UNSENT))
    return found


ABOUT: Final = "SELECT action_id::text, about::text FROM messenger.deliveries WHERE id = $1"


async def page_of_card(connection: Connection, card_id: str) -> str | None:
    """Return the page of what a card asks about: a question, or a delivery; None for what is no such card."""
    question, about = await connection.fetchrow(ABOUT, UUID(card_id)) or (None, None)
    return f"/approvals/{question}" if question else f"/deliveries/{about}" if about else None
