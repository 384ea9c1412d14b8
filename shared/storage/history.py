"""The life of one message in order, from the rows that were written while it happened; SELECT only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from shared.db.decoding import bounded
from shared.db.pool import Connection, Record
from shared.display.visible import in_line, said
from shared.errors import InvalidInput, Unreadable
from shared.hashing import reference, that_begin
from shared.storage.addressees import Addressee, addressee
from shared.storage.deliveries import referred

SHORTEST: Final = 4
DECIDING: Final = frozenset({"owner", "console", "messenger"})
# Nothing is cut off: the texts in the rows are bounded.
ALL: Final = 1_000_000
DONE: Final[Mapping[str, str]] = {
    "parked": "requested the owner's approval",
    "approved": "approved it",
    "allowed": "allowed it without asking the owner",
    "denied": "denied it",
    "edited": "edited the text",
    "revised": "requested approval again",
    "identifier_added": "requested approval again with the new address",
    "expired": "let the request expire",
    "dead": "gave up after retrying",
    "cancelled": "cancelled it",
    "withdrawn": "withdrew it",
    "reopened": "requested it again",
    "executed": "confirmed that it was sent",
    "executing": "had it sent again",
    "failed": "found that it was not delivered",
    "bounced": "found the bounce in the mailbox",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, as a word for programs and as a sentence."""

    at: datetime
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Life:
    """A message and all that happened to it; `status` and `answer` are those of now."""

    notification_id: str
    status: str
    answer: Mapping[str, object]
    steps: tuple[Step, ...]


# By its own id, by that of its pending action or by that of its delivery.
FIND: Final = """
SELECT DISTINCT found.id::text FROM (
    SELECT id, id AS shown FROM shared.notifications
    UNION ALL SELECT notification_id, id FROM shared.pending_actions
    UNION ALL SELECT notification_id, id FROM messenger.deliveries) AS found
WHERE found.id IS NOT NULL AND found.shown BETWEEN $1 AND $2 LIMIT 2
"""
ASKED: Final = """
SELECT n.id::text, n.origin_butler, n.admitted_by, n.realm, n.lineage, n.whom, n.envelope, n.owner_text, n.status,
    n.answer, n.created_at, coalesce(d.channel, n.envelope #>> '{delivery,channel}', '') AS channel,
    d.address AS sent_to
FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id WHERE n.id = $1
"""
# The attempts tell that it was being sent, and how that ended.
# The newest of each kind, and of events those of each actor: however many a butler writes, they hide nobody else's.
# They are ranked by their numbers alone, so that their words need no room. Surface and contact are shown only of the
# actors that decide.
STEPS: Final = f"""
WITH lines AS (
SELECT e.seq, row_number() OVER (PARTITION BY e.actor ORDER BY e.seq DESC) AS newest FROM shared.approval_events e
WHERE (e.notification_id = $1
        OR e.action_id = ANY (ARRAY(SELECT id FROM shared.pending_actions WHERE notification_id = $1)))
    AND NOT (e.actor = 'messenger' AND e.event_type IN ('executing', 'executed', 'failed', 'uncertain', 'marked')))
SELECT {bounded("at")} AS at, kind, what, who, text, place, by,
    total + (SELECT count(*) FROM lines WHERE lines.newest > 200) AS total
FROM (SELECT *, count(*) OVER () AS total, row_number() OVER (
    PARTITION BY kind, CASE kind WHEN 'event' THEN who END ORDER BY at DESC, seq DESC) AS newest FROM (
SELECT e.at, 'event' AS kind, e.event_type AS what, e.actor AS who, e.reason AS text,
    CASE WHEN d.decides THEN e.detail ->> 'surface' END AS place, c.name AS by, e.seq
FROM lines JOIN shared.approval_events e USING (seq)
CROSS JOIN LATERAL (SELECT e.actor IN ('owner', 'console', 'messenger') AS decides) d
LEFT JOIN shared.contacts c ON d.decides AND c.id::text = e.detail ->> 'contact'
WHERE lines.newest <= 200
UNION ALL
SELECT u.at, 'rule', u.rule_id::text, NULL, r.description, NULL, NULL, 0
FROM shared.rule_uses u JOIN shared.approval_rules r ON r.id = u.rule_id WHERE u.notification_id = $1
UNION ALL
SELECT at, 'route', status, target_butler, error_class, NULL, NULL, 0
FROM switchboard.routes WHERE notification_id = $1
UNION ALL
SELECT created_at, 'delivery', channel, NULL, address, id::text, NULL, 0
FROM messenger.deliveries WHERE notification_id = $1
UNION ALL
SELECT a.marked_at, 'mark', a.attempt::text, NULL, p.wire_sha, a.n::text, NULL, 0
FROM messenger.attempts a JOIN messenger.deliveries d ON d.id = a.delivery_id
LEFT JOIN messenger.parts p ON p.delivery_id = a.delivery_id AND p.n = a.n
WHERE d.notification_id = $1 AND a.marked_at IS NOT NULL
UNION ALL
SELECT a.ended_at, 'end', coalesce(a.outcome, ''), CASE WHEN a.outcome = 'sent' THEN p.provider_id END, a.detail,
    a.n::text, NULL, 0
FROM messenger.attempts a JOIN messenger.deliveries d ON d.id = a.delivery_id
LEFT JOIN messenger.parts p ON p.delivery_id = a.delivery_id AND p.n = a.n
WHERE d.notification_id = $1 AND a.ended_at IS NOT NULL
) AS every) AS latest WHERE newest <= 200 ORDER BY at, seq
"""


async def life(connection: Connection, beginning: str) -> Life:
    """Return the life of the one message meant by the beginning of an id of it, or by its reference."""
    between = that_begin(beginning.lower()) if len(beginning) >= SHORTEST else None
    begun = await connection.fetch(FIND, *between) if between else []
    found = {row["id"] for row in begun} | {row["notification_id"] for row in await referred(connection, beginning)}
    if len(found) != 1:
        what = "More than one message has" if found else "No message has"
        raise InvalidInput(f"{what} an id that begins with `{beginning[:40]}`.", "Give more of the id.")
    key = UUID(found.pop())
    asked = await connection.fetchrow(ASKED, key)
    assert asked is not None  # noqa: S101  # a notification is never deleted
    rows = await connection.fetch(STEPS, key)
    to = await addressee(connection, asked["whom"], asked["channel"], asked["sent_to"])
    return told(asked, to, rows, left_out=rows[0]["total"] - len(rows) if rows else 0)


def told(asked: Record, to: Addressee, rows: Sequence[Record], *, left_out: int = 0) -> Life:
    """Tell the rows as sentences, in the order in which they happened, and how many older ones there are. Pure.

    What butlers and providers wrote stands in quotation marks: the rest of each sentence is the house's.
    """
    steps = _asked(asked, to)
    if left_out:
        steps.append(Step(steps[0].at, "left_out", f"{left_out} older lines are not shown."))
    steps += [_step(row) for row in rows]
    edits = [n for n, step in enumerate(steps) if step.what == "edited"]
    if edits and asked["owner_text"] is not None:
        last = steps[edits[-1]]
        steps[edits[-1]] = replace(last, text=f"{last.text} New text: {said(asked['owner_text'], ALL)}")
    # A row of a butler's own hand may hold what no answer of ours looks like.
    answer = asked["answer"] if isinstance(asked["answer"], Mapping) else {}
    return Life(asked["id"], asked["status"], answer, tuple(steps))


def _asked(asked: Record, to: Addressee) -> list[Step]:
    at, origin = asked["created_at"], in_line(asked["origin_butler"])
    where = f"in request {said(asked['lineage'])}, realm {said(asked['realm'])}"
    steps = [
        Step(at, "asked", f"{origin} {_words(asked, to)}"),
        Step(at, "admitted", f"{in_line(asked['admitted_by'])} submitted it {where}."),
    ]
    if to.is_owner:
        steps.append(Step(at, "to_the_owner", "It is to the owner, so no approval is needed."))
    return steps


def _words(asked: Record, to: Addressee) -> str:
    """Say what the butler asked for; its own step tells what the owner put in its place."""
    from shared.storage.notifications import envelope_of  # noqa: PLC0415  # keeps --help quick

    envelope, origin = asked["envelope"], asked["origin_butler"]
    named = {"origin_butler": origin, **(envelope if isinstance(envelope, Mapping) else {})}
    try:
        delivery = envelope_of({"envelope": named, "origin_butler": origin, "owner_text": None}).delivery
    except Unreadable:
        return "asked for something that cannot be read."
    return f"asked to {delivery.intent} by {delivery.channel} to {in_line(str(to))}: {said(delivery.message, ALL)}"


def _step(row: Record) -> Step:
    at, kind, what, place = row["at"], row["kind"], in_line(row["what"]), row["place"]
    who, text = in_line(row["who"] or ""), in_line(row["text"] or "")
    # What butlers, the Switchboard and providers say is quoted.
    ours = kind == "event" and row["who"] in DECIDING
    quoted = f" {text if ours else said(row['text'], ALL)}" if row["text"] else ""
    if kind == "event":
        return Step(at, row["what"], _event(row, who, what) + quoted)
    sentences = {
        "rule": f"Rule {what} allowed it: {text}.",
        "route": f"The Switchboard routed it to {who}: {what}.{quoted}",
        "delivery": f"The Messenger queued it as delivery {place}, ref {reference(place or '')}, by {what} to {text}.",
        "mark": f"Attempt {what} at part {place} started sending; from then on it may have arrived. Hash {text}.",
        "end": f"The attempt at part {place} ended: {what}.{quoted}" + (f" Receipt: {who}." if who else ""),
    }
    return Step(at, {"mark": "marked", "end": row["what"]}.get(kind, kind), sentences[kind])


def _event(row: Record, who: str, what: str) -> str:
    actor = f"{who} ({in_line(row['by'])})" if row["by"] else who
    where = f" via {in_line(row['place'])}" if row["place"] else ""
    did = DONE.get("allowed" if what == "approved" and who != "owner" else what)
    return f"{actor} {did}{where}." if did else f"{actor}: {what}{where}."
