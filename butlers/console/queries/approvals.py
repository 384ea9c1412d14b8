"""What the pages of approvals show, read by SELECT only; a text is the one that would go out, whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from butlers.console.labels import HEADLINES, ago, count, event, mapping, moment, span, text
from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.display.approval import Asked, foot, marking, thread_words
from shared.display.fates import ACTION
from shared.display.visible import in_line, said, seen, visible
from shared.errors import ButlersError, Unreadable
from shared.gate.approval_request import asked
from shared.gate.evaluate import Evaluation, evaluate
from shared.gate.resolve import going
from shared.hashing import short
from shared.storage import addressees, notifications, pending_actions
from shared.storage.addressees import addressee
from shared.storage.contacts import MissingIdentifier
from shared.storage.history import ALL, DECIDING
from shared.storage.readable import unreadable


@dataclass(frozen=True, slots=True)
class Letter:
    """What would go out, from whom and to whom; `trouble` says why it cannot."""

    butler: str
    # Who admitted it in its butler's name; empty if the butler did so itself.
    mark: str
    text: str
    sandbox: bool
    trouble: str
    intent: str = "send"
    channel: str = ""
    name: str = ""
    address: str = ""
    contact_id: str = ""
    subject: str = ""
    emoji: str = ""
    length: int = 0
    parts: int = 0
    missing: bool = False
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a history: when, what, by whom, and why."""

    at: str
    words: str
    by: str
    detail: str


@dataclass(frozen=True, slots=True)
class Question:
    """One pending or decided action, as its page shows it."""

    id: str
    revision: int
    notification_id: str
    letter: Letter
    # The question as every surface shows it: the thread it goes into, why it is asked, what its butler says about it
    # beyond that, and the line right above the buttons.
    thread: str
    findings: tuple[str, ...]
    summary: str
    last: str
    # The text that the owner's own replaced, if it did.
    original: str
    # The text for the owner to edit, without what cannot be seen.
    draft: str
    status: str
    words: str
    open: bool
    moving: bool
    decided: str
    shown: str
    reason: str
    told: str
    told_detail: str
    asked: str
    left: str
    expires_at: str
    history: tuple[Step, ...]

    @property
    def rule_form(self) -> str:
        """The link to the form for a rule for the same butler, address, channel and kind.

        It holds nothing of the text.
        """
        one = self.letter
        whom = {"contact_id": one.contact_id} if one.contact_id else {"recipient": one.address}
        narrow = {"channel": one.channel, "intent": one.intent, "butler": one.butler, "expires": "30d"}
        return f"/rules?{urlencode({**whom, **narrow, 'from': self.id})}"


ONE = f"""
SELECT a.id::text, a.origin_butler, n.admitted_by, a.status, a.revision, a.agent_summary, a.notification_id::text,
    a.decided_at, a.content_sha, a.decision_reason, {EXPIRES} AS expires_at, n.envelope, n.owner_text, n.whom,
    n.status AS told, n.answer, w.name AS decided_by, d.address AS sent_to, coalesce(d.realm, h.realm) AS realm,
    a.status = 'pending' AND a.expires_at > clock_timestamp() AS open,
    extract(epoch FROM clock_timestamp() - a.requested_at)::float8 AS age,
    extract(epoch FROM {EXPIRES} - clock_timestamp())::float8 AS remaining
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
    LEFT JOIN shared.channels h ON h.channel = n.envelope #>> '{{delivery,channel}}'
    LEFT JOIN shared.contacts w ON w.id = a.decided_by
WHERE a.id = $1
"""
# The newest lines of each actor: however many a butler writes in its own name, they hide nobody else's. They are ranked
# by their numbers alone, so that ranking needs no room for their words.
EVENTS = """
SELECT e.at, e.event_type, e.actor, e.reason, e.detail, ranked.total FROM (
    SELECT seq, row_number() OVER (PARTITION BY actor ORDER BY seq DESC) AS place, count(*) OVER () AS total
    FROM shared.approval_events WHERE action_id = $1 OR notification_id = $2) ranked
JOIN shared.approval_events e USING (seq) WHERE ranked.place <= 200 ORDER BY seq
"""


async def one(connection: Connection, action_id: str) -> Question | None:
    """Read the action with everything the owner should see before saying yes."""
    row = await connection.fetchrow(ONE, UUID(action_id))
    if row is None:
        return None
    events = await connection.fetch(EVENTS, UUID(action_id), UUID(row["notification_id"]))
    status = "expired" if row["status"] == "pending" and not row["open"] else row["status"]
    as_asked = mapping(mapping(row["envelope"]).get("delivery"))
    # The delivery of a decided question says where it went, which is not where it would go now.
    shown = await _asked(connection, action_id) if row["open"] else None
    return Question(
        id=row["id"],
        revision=row["revision"],
        notification_id=row["notification_id"],
        letter=await letter(connection, row),
        thread=thread_words(shown) if shown else "",
        findings=tuple(in_line(one) for one in shown.findings) if shown else (),
        summary=visible(shown.summary) if shown else "",
        last=foot(shown)[-1] if shown else f"hash {in_line(short(row['content_sha']))}",
        original=text(as_asked, "message") if row["owner_text"] is not None else "",
        draft=seen(str(notifications.delivery_of(row).get("message", ""))),
        status=status,
        words=ACTION[status],
        open=row["open"],
        moving=status in {"approved", "executing"} and row["told"] == "queued",
        decided=_decided_line(row),
        shown=(shown.content_sha or "") if shown else "",
        reason=visible(row["decision_reason"] or ""),
        told=row["told"],
        told_detail=text(mapping(mapping(row["answer"]).get("error")), "message"),
        asked=ago(row["age"]),
        left=span(row["remaining"]),
        expires_at=moment(row["expires_at"]),
        history=(*left_out(events), *map(step, events)),
    )


async def _asked(connection: Connection, action_id: str) -> Asked | None:
    action = await pending_actions.open_action(connection, action_id)
    try:
        return await asked(connection, action) if action is not None else None
    except ButlersError:
        return None


async def letter(connection: Connection, row: Record) -> Letter:
    """Return the stored words of a notification, and what evaluating them now tells."""
    try:
        envelope = notifications.envelope_of(row)
    except Unreadable as odd:
        return _unreadable(row, odd)
    delivery, found = envelope.delivery, await _seen(connection, row)
    if row["open"] and isinstance(found, Evaluation):
        to, delivery = addressees.found(found.target), going(envelope, found.target).delivery
    else:
        to = await addressee(connection, row["whom"], delivery.channel, None if row["open"] else row["sent_to"])
    parts, trouble = _wires(found)
    return Letter(
        butler=visible(row["origin_butler"]),
        mark=marking(row["origin_butler"], row["admitted_by"]),
        intent=delivery.intent,
        channel=delivery.channel,
        name=in_line(to.name),
        address=in_line(to.address),
        contact_id=to.contact_id,
        subject=visible(delivery.subject or ""),
        emoji=visible(delivery.emoji or ""),
        text=visible(delivery.message),
        length=len(delivery.message),
        parts=parts,
        sandbox=row["realm"] == "sandbox",
        missing=isinstance(found, MissingIdentifier),
        trouble=trouble,
    )


def _unreadable(row: Record, odd: Unreadable) -> Letter:
    """Return all that can be said of an unreadable message: whose it is; it names nobody and cannot be sent."""
    return Letter(
        butler=visible(row["origin_butler"]),
        mark=marking(row["origin_butler"], row["admitted_by"]),
        text=unreadable(row["notification_id"]),
        sandbox=row["realm"] == "sandbox",
        readable=False,
        trouble=odd.message,
    )


async def _seen(connection: Connection, row: Record) -> Evaluation | MissingIdentifier | ButlersError:
    try:
        return await evaluate(connection, row["notification_id"], lock=False)
    except ButlersError as gone:
        return gone
    except OverflowError:
        return Unreadable("A stored time of this message cannot be read.")


def _wires(found: Evaluation | MissingIdentifier | ButlersError) -> tuple[int, str]:
    """Return how many parts it goes out in, or 0 and why it cannot go out."""
    if isinstance(found, ButlersError):
        return 0, visible(found.message)
    if isinstance(found, MissingIdentifier):
        return 0, "There is no address on file."
    if not found.target.deliverable:
        return 0, "This channel cannot reach an address of that form."
    try:
        return len(found.wires()), ""
    except ButlersError as unfit:
        return 0, f"It cannot be sent: {visible(unfit.message)}"


def _decided_line(row: Record) -> str:
    if row["decided_at"] is None:
        return ""
    return f"by {visible(row['decided_by'] or 'the owner')}, {moment(row['decided_at'])}"


def step(row: Record, headlines: Mapping[str, str] = HEADLINES) -> Step:
    """Return one event of the audit as a line of a history."""
    detail: Mapping[str, object] = mapping(row["detail"])
    # A butler may write lines of its own: its surface counts for nothing, and its words stand as a quotation.
    ours = row["actor"] in DECIDING
    surface = text(detail, "surface") if ours else ""
    by = visible(row["actor"]) + (f", by {surface}" if surface else "")
    words, reason = event(row["event_type"], row["actor"], headlines), row["reason"] or ""
    return Step(moment(row["at"]), words, by, visible(reason) if ours or not reason else said(reason, ALL))


def left_out(events: Sequence[Record]) -> tuple[Step, ...]:
    """Return a line about the older events that are not shown, if there are any."""
    more = events[0]["total"] - len(events) if events else 0
    return (Step("", f"{count(more, 'older line is', 'older lines are')} not shown", "", ""),) if more else ()
