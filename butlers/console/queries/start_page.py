"""What the start page and the list of questions show, read by SELECT only; hidden characters are written out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from butlers.console.labels import ago, answered, count, excerpt, mapping, span, text
from butlers.console.queries.questions import Listed, open_questions
from shared.channels import CHANNELS
from shared.config.timings import STANDARD
from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.display.fates import fate
from shared.display.tool_call import named_values
from shared.display.visible import in_line, shortened, visible
from shared.storage.addressees import addressee
from shared.storage.keyring import HAS_KEY
from shared.storage.readable import ARGUMENTS, ENVELOPE, LONGEST_MESSAGE, message, question, shown

ON_A_PAGE: Final = 50
# So much of each text; the page of one shows it whole.
BEGINNING: Final = 1000


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending action, with the beginning of its text."""

    action_id: str
    butler: str
    tool: str
    intent: str
    channel: str
    name: str
    address: str
    missing: bool
    sandbox: bool
    subject: str
    text: str
    asked: str
    left: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class Paused:
    """One channel that has paused itself: what is wrong, what helps, and what its provider said."""

    title: str
    remedy: str
    detail: str
    since: str


@dataclass(frozen=True, slots=True)
class Uncertain:
    """One delivery that may or may not have arrived."""

    delivery_id: str
    butler: str
    channel: str
    name: str
    address: str
    excerpt: str
    since: str


@dataclass(frozen=True, slots=True)
class DoubtfulCall:
    """One call of a tool that may or may not have run."""

    action_id: str
    butler: str
    tool: str
    says: str
    since: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance of a daemon; `state` is ready, silent, starting, draining or gone."""

    name: str
    kind: str
    url: str
    state: str
    seen: str


@dataclass(frozen=True, slots=True)
class Told:
    """One notification and what became of it."""

    notification_id: str
    butler: str
    channel: str
    name: str
    address: str
    excerpt: str
    status: str
    words: str
    detail: str
    when: str


@dataclass(frozen=True, slots=True)
class Start:
    """The start page: what needs the owner, which daemons are there, what was told last."""

    # Where no other channel is, nothing else tells the owner.
    paused: tuple[Paused, ...]
    waiting: tuple[Waiting, ...]
    waiting_total: int
    # Of butlers, to the owner.
    questions: tuple[Listed, ...]
    uncertain: tuple[Uncertain, ...]
    uncertain_total: int
    doubtful: tuple[DoubtfulCall, ...]
    # What was let out and did not go, in the last day.
    not_delivered: int
    daemons: tuple[Seen, ...]
    told: tuple[Told, ...]

    @property
    def silent(self) -> int:
        """How many daemons said nothing for half a minute, nor that they leave."""
        return sum(daemon.state == "silent" for daemon in self.daemons)

    @property
    def needs(self) -> tuple[str, ...]:
        """What needs the owner, a phrase each; empty on a quiet day."""
        phrases = (
            (len(self.paused), "channel is not working", "channels are not working"),
            (self.waiting_total, "message needs your approval", "messages need your approval"),
            (len(self.questions), "question for you", "questions for you"),
            (self.uncertain_total, "delivery is unconfirmed", "deliveries are unconfirmed"),
            (len(self.doubtful), "tool call may or may not have run", "tool calls may or may not have run"),
            (self.not_delivered, "message was not delivered", "messages were not delivered"),
            (self.silent, "daemon is not responding", "daemons are not responding"),
        )
        return tuple(count(*phrase) for phrase in phrases if phrase[0])


@dataclass(frozen=True, slots=True)
class Page:
    """One page of what waits; `asking` holds of each butler the name as shown, its questions, and the name as it is."""

    waiting: tuple[Waiting, ...]
    total: int
    number: int
    butler: str | None
    asking: tuple[tuple[str, int, str], ...]

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // ON_A_PAGE))

    def at(self, number: int) -> str:
        """Return the link to another page of the same list."""
        return f"/approvals?{urlencode({'page': number} | ({'butler': self.butler} if self.butler else {}))}"


PAUSED = """
SELECT channel, reason, detail, extract(epoch FROM clock_timestamp() - since)::float8 AS age
FROM messenger.circuit_breakers WHERE since IS NOT NULL ORDER BY channel
"""
WAITING = f"""
SELECT a.id::text, a.origin_butler, a.tool_name, {ARGUMENTS} AS tool_args, a.notification_id,
    {ENVELOPE} AS envelope, n.owner_text, n.whom, h.realm, c.says, c.arguments,
    {EXPIRES} AS expires_at,
    extract(epoch FROM clock_timestamp() - a.requested_at)::float8 AS age,
    extract(epoch FROM {EXPIRES} - clock_timestamp())::float8 AS remaining, count(*) OVER () AS total
FROM shared.pending_actions a
    LEFT JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN shared.channels h ON h.channel = n.envelope #>> '{{delivery,channel}}'
    LEFT JOIN shared.tool_calls c ON c.id = a.id
WHERE a.status = 'pending' AND a.expires_at > clock_timestamp() AND ($1::text IS NULL OR a.origin_butler = $1)
ORDER BY a.requested_at, a.id LIMIT {ON_A_PAGE} OFFSET $2
"""
UNCERTAIN = f"""
SELECT d.id::text, d.channel, d.address, coalesce(n.origin_butler, d.origin_butler, '') AS origin_butler,
    coalesce(n.owner_text, left(n.envelope #>> '{{delivery,message}}', {LONGEST_MESSAGE})) AS message, c.name,
    count(*) OVER () AS total,
    extract(epoch FROM clock_timestamp() - coalesce(d.settled_at, d.created_at))::float8 AS age
FROM messenger.deliveries d
    LEFT JOIN shared.notifications n ON n.id = d.notification_id
    LEFT JOIN shared.contact_info i ON i.type = d.channel AND i.lookup = lower(d.address COLLATE "C")
    LEFT JOIN shared.contacts c ON c.id = i.contact_id
WHERE d.status = 'uncertain' AND d.class <> 'card'
ORDER BY d.created_at DESC, d.id LIMIT 20
"""
DOUBTFUL = f"""
SELECT a.id::text, a.origin_butler, a.tool_name, c.says,
    extract(epoch FROM clock_timestamp() - coalesce(a.decided_at, a.requested_at))::float8 AS age
FROM shared.pending_actions a JOIN shared.tool_calls c USING (id)
WHERE a.status = 'uncertain' ORDER BY a.requested_at DESC, a.id LIMIT {ON_A_PAGE}
"""
NOT_DELIVERED = """
SELECT count(*) FROM messenger.deliveries d
WHERE d.class <> 'card' AND d.status IN ('failed', 'expired', 'dead', 'bounced')
    AND d.settled_at > clock_timestamp() - $1::interval
"""
# What neither says that it is there nor said that it leaves is silent, unless it was retired or another took its place.
DAEMONS = f"""
SELECT name, url, kind, CASE WHEN status = 'gone' OR last_seen_at > clock_timestamp() - $1::interval THEN status
        WHEN {HAS_KEY} AND NOT EXISTS (SELECT FROM switchboard.butlers other
            WHERE other.name = b.name AND other.last_seen_at > b.last_seen_at) THEN 'silent' ELSE 'gone' END AS state,
    extract(epoch FROM clock_timestamp() - LEAST(last_seen_at, clock_timestamp()))::float8 AS age
FROM switchboard.butlers b
WHERE status <> 'gone' AND {HAS_KEY} OR last_seen_at > clock_timestamp() - $2::interval
ORDER BY array_position(ARRAY['switchboard', 'messenger', 'console', 'sandbox', 'butler'], kind), name, url
LIMIT 100
"""
TOLD = f"""
SELECT n.id::text, n.origin_butler, {ENVELOPE} AS envelope, n.owner_text, n.status, n.answer, n.whom,
    d.address AS sent_to,
    extract(epoch FROM clock_timestamp() - n.created_at)::float8 AS age
FROM (SELECT * FROM shared.notifications ORDER BY created_at DESC LIMIT 10) n
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
ORDER BY n.created_at DESC
"""


async def start(connection: Connection) -> Start:
    """Read everything the start page shows, as of now."""
    paused = await connection.fetch(PAUSED)
    waiting = await connection.fetch(WAITING, None, 0)
    uncertain = await connection.fetch(UNCERTAIN)
    doubtful = await connection.fetch(DOUBTFUL)
    not_delivered = await connection.fetchval(NOT_DELIVERED, STANDARD.end_counted)
    daemons = await connection.fetch(DAEMONS, STANDARD.instance_counts, STANDARD.gone_forgotten)
    told = await connection.fetch(TOLD)
    return Start(
        paused=tuple(map(_paused, paused)),
        waiting=tuple([await _waiting(connection, row) for row in waiting]),
        waiting_total=waiting[0]["total"] if waiting else 0,
        questions=await open_questions(connection),
        uncertain=tuple(map(_uncertain, uncertain)),
        uncertain_total=uncertain[0]["total"] if uncertain else 0,
        doubtful=tuple(map(_doubtful, doubtful)),
        not_delivered=not_delivered,
        daemons=tuple(map(_seen, daemons)),
        told=tuple([await _told(connection, row) for row in told]),
    )


ASKING = """
SELECT origin_butler, count(*) AS questions FROM shared.pending_actions
WHERE status = 'pending' AND expires_at > clock_timestamp() GROUP BY origin_butler ORDER BY origin_butler
"""


async def page_of_waiting(connection: Connection, butler: str | None, number: int) -> Page:
    """Read a page of what waits, oldest first, of one butler or of all; pages are numbered from 1."""
    rows = await connection.fetch(WAITING, butler, (number - 1) * ON_A_PAGE)
    asking = await connection.fetch(ASKING)
    return Page(
        waiting=tuple([await _waiting(connection, row) for row in rows]),
        total=sum(row["questions"] for row in asking if butler in {None, row["origin_butler"]}),
        number=number,
        butler=butler,
        asking=tuple((visible(row["origin_butler"]), row["questions"], row["origin_butler"]) for row in asking),
    )


async def _waiting(connection: Connection, row: Record) -> Waiting:
    if row["says"] is not None:
        asked: Mapping[str, object] = {"message": f"{row['says']}\n{named_values(row['arguments'])}"}
    else:
        asked = shown(question(row), row["id"])
    # A question that is about no message names nobody.
    to = await addressee(connection, row["whom"] or "", str(asked.get("channel")))
    return Waiting(
        action_id=row["id"],
        butler=visible(row["origin_butler"]),
        tool=visible(row["tool_name"]),
        intent=text(asked, "intent") or "send",
        channel=text(asked, "channel"),
        name=in_line(row["tool_name"] if row["says"] is not None else to.name),
        address=in_line(to.address),
        missing=bool(to.contact_id and not to.address),
        sandbox=row["realm"] == "sandbox",
        subject=text(asked, "subject"),
        text=visible(shortened(str(asked.get("message") or asked.get("emoji") or ""), BEGINNING)),
        asked=ago(row["age"]),
        left=span(row["remaining"]),
        expires_at=f"{row['expires_at']:%Y-%m-%d %H:%M} UTC",
    )


def _paused(row: Record) -> Paused:
    title, remedy = CHANNELS[row["channel"]].paused(row["reason"])
    return Paused(title, remedy, visible(row["detail"]), ago(row["age"]))


def _uncertain(row: Record) -> Uncertain:
    return Uncertain(
        delivery_id=row["id"],
        butler=visible(row["origin_butler"]),
        channel=visible(row["channel"]),
        name=in_line(row["name"] or ""),
        address=in_line(row["address"]),
        excerpt=excerpt(row["message"] or ""),
        since=ago(row["age"]),
    )


def _doubtful(row: Record) -> DoubtfulCall:
    return DoubtfulCall(
        action_id=row["id"],
        butler=visible(row["origin_butler"]),
        tool=in_line(row["tool_name"]),
        says=excerpt(row["says"]),
        since=ago(row["age"]),
    )


def _seen(row: Record) -> Seen:
    return Seen(
        name=visible(row["name"]),
        kind=row["kind"],
        url=visible(row["url"]),
        state=row["state"],
        seen=ago(row["age"]),
    )


async def _told(connection: Connection, row: Record) -> Told:
    asked, answer = shown(message(row), row["id"]), mapping(row["answer"])
    to = await addressee(connection, row["whom"], str(asked.get("channel")), row["sent_to"])
    error = str(mapping(answer.get("error")).get("message") or "")
    words = fate(row["status"], error)
    if row["status"] == "ok" and mapping(answer.get("delivery")).get("sandbox"):
        words = f"{words} to the sandbox"
    return Told(
        notification_id=row["id"],
        butler=visible(row["origin_butler"]),
        channel=text(asked, "channel"),
        name=in_line(to.name),
        address=in_line(to.address),
        excerpt=excerpt(str(asked.get("message") or asked.get("emoji") or "")),
        status=row["status"],
        words=words,
        detail=answered(row["origin_butler"], error),
        when=ago(row["age"]),
    )
