"""The life of one message, read by SELECT only.

It tells who asked, whose yes or which rule allowed it, and which attempts and receipts there are.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.console.labels import answered, mapping, moment, text
from butlers.console.queries.approvals import Letter, Step, left_out, letter, step
from shared.db.decoding import bounded
from shared.db.pool import Connection, Record
from shared.display.fates import DELIVERY, fate
from shared.display.visible import visible


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the message at its provider."""

    n: int
    status: str
    receipt: str
    sha: str


@dataclass(frozen=True, slots=True)
class Life:
    """Everything this installation knows about one message."""

    notification_id: str
    delivery_id: str
    letter: Letter
    status: str
    words: str
    detail: str
    realm: str
    lineage: str
    not_after: str
    delivery_status: str
    questions: tuple[str, ...]
    rules: tuple[str, ...]
    parts: tuple[Part, ...]
    history: tuple[Step, ...]


ONE = f"""
SELECT n.id::text AS notification_id, n.origin_butler, n.admitted_by, coalesce(d.realm, n.realm) AS realm, n.lineage,
    n.envelope, n.owner_text, n.status, n.answer, n.whom, n.created_at, {bounded("n.not_after")} AS not_after,
    d.address AS sent_to,
    d.id::text AS delivery_id, d.status AS delivery_status, d.reason, d.created_at AS taken_at, d.settled_at,
    d.address IS NULL AS open
FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
WHERE n.id = $1 OR n.id = (SELECT notification_id FROM messenger.deliveries WHERE id = $1)
"""
# The attempts tell of sending and how it ended. The newest lines of each actor, as on the page of a question.
EVENTS = """
SELECT e.at, e.event_type, e.actor, e.reason, e.detail, ranked.total FROM (
    SELECT seq, row_number() OVER (PARTITION BY actor ORDER BY seq DESC) AS place, count(*) OVER () AS total
    FROM shared.approval_events WHERE notification_id = $1 AND NOT (actor = 'messenger'
        AND event_type IN ('marked', 'executing', 'executed', 'failed', 'uncertain'))) ranked
JOIN shared.approval_events e USING (seq) WHERE ranked.place <= 200 ORDER BY seq
"""
ATTEMPTS = """
SELECT n, attempt, started_at, marked_at, ended_at, outcome, detail FROM messenger.attempts
WHERE delivery_id = $1 ORDER BY n, attempt LIMIT 500
"""
PARTS = "SELECT n, status, provider_id, wire_sha FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"
ACTIONS = """
SELECT id::text, status FROM shared.pending_actions WHERE notification_id = $1 ORDER BY requested_at
"""
RULES = """
SELECT r.id::text, r.description FROM shared.rule_uses u JOIN shared.approval_rules r ON r.id = u.rule_id
WHERE u.notification_id = $1
"""


async def life(connection: Connection, any_id: str) -> Life | None:
    """Return the message with this id, or the one whose delivery has it; None if there is none."""
    row = await connection.fetchrow(ONE, UUID(any_id))
    if row is None:
        return None
    key = UUID(row["notification_id"])
    delivery = UUID(row["delivery_id"]) if row["delivery_id"] else None
    events = await connection.fetch(EVENTS, key)
    attempts = await connection.fetch(ATTEMPTS, delivery)
    answer = mapping(row["answer"])
    error = text(mapping(answer.get("error")), "message")
    return Life(
        notification_id=row["notification_id"],
        delivery_id=row["delivery_id"] or "",
        letter=await letter(connection, row),
        status=row["status"],
        words=fate(row["status"], error),
        detail=answered(row["origin_butler"], error or text(answer, "message")),
        realm=visible(row["realm"]),
        lineage=visible(row["lineage"]),
        not_after=moment(row["not_after"]),
        delivery_status=DELIVERY.get(row["delivery_status"], ""),
        questions=tuple(one["id"] for one in await connection.fetch(ACTIONS, key)),
        rules=tuple(visible(one["description"] or one["id"]) for one in await connection.fetch(RULES, key)),
        parts=tuple(map(_part, await connection.fetch(PARTS, delivery))),
        history=(*left_out(events), *_history(row, events, attempts)),
    )


def _part(row: Record) -> Part:
    return Part(row["n"], row["status"], visible(row["provider_id"] or ""), row["wire_sha"])


def _history(row: Record, events: list[Record], attempts: list[Record]) -> tuple[Step, ...]:
    """Return what happened, in the order in which it did."""
    origin = visible(row["origin_butler"])
    told: list[tuple[datetime, Step]] = [_told(row["created_at"], "Requested", origin)]
    if row["taken_at"]:
        told.append(_told(row["taken_at"], "Queued for delivery", "messenger"))
    told += [(one["at"], step(one)) for one in events]
    for one in attempts:
        which = f"part {one['n']}, attempt {one['attempt']}"
        told.append(_told(one["started_at"], "Attempt started", which))
        if one["marked_at"]:
            told.append(_told(one["marked_at"], "Checked again, sending", which))
        if one["ended_at"]:
            told.append(_told(one["ended_at"], f"Attempt ended: {one['outcome']}", which, one["detail"] or ""))
    if row["settled_at"]:
        told.append(_told(row["settled_at"], DELIVERY[row["delivery_status"]], "messenger", row["reason"] or ""))
    return tuple(line for _, line in sorted(told, key=lambda one: one[0]))


def _told(at: datetime, words: str, by: str, detail: str = "") -> tuple[datetime, Step]:
    return at, Step(moment(at), words, by, visible(detail))
