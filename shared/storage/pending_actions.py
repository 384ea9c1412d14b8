"""Pending actions, the decisions on them, and their audit: the only writer of those tables."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal
from uuid import UUID

import asyncpg

from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.hashing import that_begin
from shared.storage.audit_bindings import ADDRESS, WORDS
from shared.storage.deliveries import BEGUN
from shared.storage.tool_calls import NewCall

# The line of a third party's marker, in its own statement: what left, in hashes that seals cover as rows are not,
# and by which authority: the yes to which question, or which rule, and which of its uses this is.
MARKED = f"""
    INSERT INTO shared.approval_events (event_type, rule_id, notification_id, actor, reason, detail)
    SELECT 'marked', $7::uuid, n.id, 'messenger',
        CASE WHEN use.number IS NOT NULL THEN 'By rule ' || $7::text || ', use ' || use.number || '.'
            WHEN $9::text IS NOT NULL THEN 'By your approval of ' || $9::text || '.' END,
        jsonb_strip_nulls(jsonb_build_object('yes', $9::text, 'use', use.number)) || jsonb_build_object(
        'part', p.n, 'attempt', $4::int,
        'asked', n.content_sha, 'content', $6::text, 'wire', $5::text, 'address', {ADDRESS}, 'words', {WORDS})
    FROM d JOIN p ON true JOIN shared.notifications n ON n.id = d.notification_id
    LEFT JOIN LATERAL (SELECT count(*) + 1 AS number FROM shared.rule_uses u
        WHERE u.rule_id = $7 AND u.notification_id <> n.id) use ON $7::uuid IS NOT NULL
    WHERE d.class = 'third_party'
"""


@dataclass(frozen=True, slots=True)
class Why:
    """Who moves an action, and for what reason: no action is moved without one."""

    actor: str
    reason: str | None
    rule_id: str | None = None
    # Of the owner's word: by which surface, and which contact the owner is.
    surface: str | None = None
    contact: str | None = None

    def line(self, event_type: str) -> tuple[str, UUID | None, str, str | None, dict[str, str]]:
        """Return what the action's line in the audit says, as WRITTEN takes it."""
        named = {"surface": self.surface, "contact": self.contact}
        detail = {name: value for name, value in named.items() if value is not None}
        return event_type, UUID(self.rule_id) if self.rule_id else None, self.actor, self.reason, detail


@dataclass(frozen=True, slots=True)
class Parked:
    """A pending action to be made: what was asked, and why it waits."""

    action_id: str
    notification_id: str
    origin: str
    tool_args: Mapping[str, object]
    content_sha: str | None
    summary: str
    session: str | None = None


MOST_WAITING: Final = 1_000
"""The most messages and calls of one butler that wait for a yes; the database refuses further ones."""


TOO_MANY: Final = f"{MOST_WAITING:,} of your messages and calls wait for the owner already."


@contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except asyncpg.ProgramLimitExceededError:
        raise InvalidInput(TOO_MANY, "Wait for the owner, or withdraw some.") from None


WAITING = """
SELECT count(*) FROM (SELECT FROM shared.pending_actions a LEFT JOIN shared.notifications n ON n.id = a.notification_id
    WHERE a.origin_butler = $1 AND a.status = 'pending' AND coalesce(n.admitted_by, $1) = $2 LIMIT $3) waiting
"""


async def too_many_wait(connection: Connection, origin: str, admitted_by: str) -> bool:
    """Return whether the most that may wait in this butler's name do, of those that the same admitted."""
    return bool(await connection.fetchval(WAITING, origin, admitted_by, MOST_WAITING) == MOST_WAITING)


# The login that parks may not read what is parked, so nothing is returned here.
PARK = """
WITH parked AS (
    INSERT INTO shared.pending_actions (id, origin_butler, tool_args, content_sha, agent_summary, notification_id,
        expires_at, session_id)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7, $9))
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
VALUES ('parked', $1, $6, $8, $5, '{"revision": 1}')
"""


async def park(connection: Connection, parked: Parked, ttl: timedelta, by: str) -> None:
    """Make the pending action, which the owner can answer for `ttl`; raise InvalidInput if too many wait.

    The caller's transaction holds its notification too, and is undone then.
    """
    args = (UUID(parked.action_id), parked.origin, parked.tool_args, parked.content_sha, parked.summary)
    with _bounded():
        await connection.execute(PARK, *args, UUID(parked.notification_id), ttl, by, parked.session)


PARK_CALL = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, agent_summary, expires_at,
    session_id, status, rule_id)
VALUES ($1, $2, $3, '{}', $4, '', clock_timestamp() + $5, $6, CASE WHEN $7::uuid IS NULL THEN 'pending'
    ELSE 'approved' END, $7::uuid) ON CONFLICT DO NOTHING
"""


async def park_call(connection: Connection, new: NewCall, ttl: timedelta, rule_id: str | None) -> bool:
    """Make the pending action of a tool call: for the owner, or let through by a rule.

    Return False if the same call waits or runs already; then nothing was written. Raises InvalidInput if too many wait.
    """
    rule = UUID(rule_id) if rule_id else None
    args = (UUID(new.id), new.origin, new.tool_name, new.content_sha, ttl, new.session, rule)
    with _bounded():
        return (await connection.execute(PARK_CALL, *args)).endswith(" 1")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit: what happened to what, by whom and why."""

    event_type: str
    actor: str
    action_id: str | None = None
    rule_id: str | None = None
    notification_id: str | None = None
    reason: str | None = None


EVENT = """
INSERT INTO shared.approval_events (event_type, action_id, rule_id, notification_id, actor, reason, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def record(connection: Connection, event: Event, **detail: object) -> None:
    """Append a line to approval_events about an event that moves no pending action."""
    ids = [UUID(value) if value else None for value in (event.action_id, event.rule_id, event.notification_id)]
    await connection.execute(EVENT, event.event_type, *ids, event.actor, event.reason, detail)


# A transaction that begins with it holds the authority still as long as it lasts: what the owner changed before this
# counts; what comes after is too late.
LOCK_AUTHORITY = "SET LOCAL lock_timeout = '2s'; LOCK TABLE shared.authority IN SHARE MODE"


LOCK_RULE = "SELECT id FROM shared.approval_rules WHERE id = $1 FOR UPDATE"


async def lock_rule(connection: Connection, rule_id: str) -> None:
    """Make others who want to spend this rule wait, so that the count of its uses stays true."""
    await connection.execute(LOCK_RULE, UUID(rule_id))


SPEND = "INSERT INTO shared.rule_uses (rule_id, notification_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"


async def spend(connection: Connection, rule_id: str, notification_id: str) -> None:
    """Count one use of the rule, once per notification; the caller holds the rule's row (lock_rule)."""
    await connection.execute(SPEND, UUID(rule_id), UUID(notification_id))


# Only a use that could be one too many has a number, for which another butler waits that takes the same.
SPEND_ON_CALL = """
INSERT INTO shared.rule_uses (rule_id, notification_id, n)
SELECT id, $2, CASE WHEN num_nonnulls(max_uses, max_per_day) > 0 THEN
    (SELECT coalesce(max(u.n), 0) + 1 FROM shared.rule_uses u WHERE u.rule_id = r.id) END
FROM shared.approval_rules r WHERE id = $1 ON CONFLICT DO NOTHING
"""


async def spend_on_call(connection: Connection, rule_id: str, call_id: str) -> bool:
    """Count one use of the rule by a tool call; return False if another call took the same use meanwhile."""
    return (await connection.execute(SPEND_ON_CALL, UUID(rule_id), UUID(call_id))).endswith(" 1")


GIVE_BACK = f"DELETE FROM shared.rule_uses WHERE notification_id = $1 AND NOT ({BEGUN})"


async def give_back(connection: Connection, notification_id: str) -> None:
    """Undo the rule's use by a message, unless something of it may have left."""
    await connection.execute(GIVE_BACK, UUID(notification_id))


OPEN_ACTION = f"""
SELECT a.id::text, a.origin_butler, a.tool_args, a.content_sha, a.revision, a.status, a.agent_summary, n.admitted_by,
    a.notification_id::text, a.requested_at, a.decided_at, a.decision_reason, n.envelope, n.owner_text, n.whom,
    n.realm, n.created_at,
    {EXPIRES} AS expires_at, a.status = 'pending' AND a.expires_at > clock_timestamp() AS open
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id WHERE a.id = $1
"""


async def open_action(connection: Connection, action_id: str) -> Record | None:
    """Return the action with its notification's envelope, or None."""
    return await connection.fetchrow(OPEN_ACTION, UUID(action_id))


OPEN_OF = """
SELECT id::text, revision, status FROM shared.pending_actions
WHERE notification_id = $1 AND status IN ('pending', 'approved', 'executing')
"""


async def open_of(connection: Connection, notification_id: str) -> Record | None:
    """Return the one open action of a notification: id, revision, status."""
    return await connection.fetchrow(OPEN_OF, UUID(notification_id))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The owner's word on one revision of one action."""

    action_id: str
    revision: int
    status: Literal["approved", "denied"]
    by: str
    surface: str
    reason: str | None = None
    wire_shas: tuple[str, ...] | None = None
    # What its line in the audit holds besides (shared/storage/audit_bindings.py).
    bound: Mapping[str, str] = field(default_factory=dict)


# The line that each move writes in its own statement: $1 to $5 say what happened, by which rule, who, why and where.
WRITTEN = """RETURNING id, notification_id, revision),
written AS (
    INSERT INTO shared.approval_events (event_type, action_id, rule_id, notification_id, actor, reason, detail)
    SELECT $1, id, $2::uuid, notification_id, $3, $4, $5::jsonb || jsonb_build_object('revision', revision) FROM moved)
"""
DECIDE = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET status = $1, decided_by = $8, decided_at = clock_timestamp(),
        decision_reason = $4, wire_shas = $9
    WHERE id = $6 AND status = 'pending' AND revision = $7 AND expires_at > clock_timestamp()
    {WRITTEN}
SELECT notification_id::text FROM moved
"""


async def _decide(connection: Connection, verdict: Verdict) -> Record | None:
    shas = list(verdict.wire_shas) if verdict.wire_shas is not None else None
    what = {"surface": verdict.surface, "contact": verdict.by, **verdict.bound}
    args = (
        verdict.status,
        None,
        "owner",
        verdict.reason,
        what,
        UUID(verdict.action_id),
        verdict.revision,
        UUID(verdict.by),
        shas,
    )
    return await connection.fetchrow(DECIDE, *args)


async def decide(connection: Connection, verdict: Verdict) -> str | None:
    """Write the verdict; return the notification's id if it decided, None if it came second or too late."""
    moved = await _decide(connection, verdict)
    return None if moved is None else moved["notification_id"]


async def decide_call(connection: Connection, verdict: Verdict) -> bool:
    """Write the verdict on a tool call; return False if it came second or too late."""
    return await _decide(connection, verdict) is not None


# Of a call that may have run: an open call with the same content would be a second one beside it.
RESOLVE_CALL = f"""
WITH moved AS (
    UPDATE shared.pending_actions a SET status = $1,
        decided_by = CASE $1 WHEN 'approved' THEN $8 ELSE decided_by END,
        decided_at = CASE $1 WHEN 'approved' THEN clock_timestamp() ELSE decided_at END
    WHERE id = $6 AND status = 'uncertain' AND notification_id IS NULL
        AND EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = a.id AND c.attempt = $7)
        AND ($1 <> 'approved' OR NOT EXISTS (SELECT FROM shared.pending_actions o
            WHERE o.origin_butler = a.origin_butler AND o.content_sha = a.content_sha AND o.notification_id IS NULL
                AND o.status IN ('pending', 'approved', 'executing')))
    {WRITTEN}
SELECT id FROM moved
"""


async def resolve_call(
    connection: Connection, call_id: str, attempt: int, to: str, why: Why, bound: Mapping[str, str]
) -> bool:
    """Write what the owner says of an attempt that may have run; return False if it came second or cannot be."""
    event_type, rule, actor, reason, named = why.line(to)
    args = (event_type, rule, actor, reason, {**named, **bound}, UUID(call_id), attempt, UUID(why.contact or ""))
    return await connection.fetchval(RESOLVE_CALL, *args) is not None


@dataclass(frozen=True, slots=True)
class Revision:
    """The replacement of a revision that nobody may say yes to any more."""

    action_id: str
    replaces: int
    # None as long as there is no address.
    content_sha: str | None
    # None to keep what is there.
    tool_args: Mapping[str, object] | None
    ttl: timedelta
    # Why it is asked, where that has changed.
    summary: str | None = None
    # What its line in the audit is called.
    event: Literal["revised", "edited", "identifier_added"] = "revised"


REVISE = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET revision = revision + 1, content_sha = $8, wire_shas = NULL,
        tool_args = coalesce($9::jsonb, tool_args) || CASE WHEN tool_args ? 'as_called'
            THEN jsonb_build_object('as_called', tool_args -> 'as_called') ELSE '{{}}' END,
        status = 'pending', decided_by = NULL, decided_at = NULL, decision_reason = NULL,
        expires_at = clock_timestamp() + $10, agent_summary = coalesce($11, agent_summary)
    WHERE id = $6 AND revision = $7 AND status IN ('pending', 'approved', 'executing')
    {WRITTEN}
SELECT revision FROM moved
"""


async def revise(connection: Connection, new: Revision, why: Why) -> int | None:
    """Replace the revision and return the new one's number; None if the action moved on.

    The same action asks again, with fresh buttons.
    """
    args = (UUID(new.action_id), new.replaces, new.content_sha, new.tool_args, new.ttl, new.summary)
    number: int | None = await connection.fetchval(REVISE, *why.line(new.event), *args)
    return number


# Not the owner's word: without content it can never count as a yes.
BY_RULE = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET status = $1, rule_id = $2, content_sha = NULL, wire_shas = NULL
    WHERE id = $6 AND revision = $7 AND status = 'pending' {WRITTEN}
SELECT id FROM moved
"""


async def let_go(connection: Connection, action_id: str, revision: int, why: Why) -> bool:
    """Answer a question that no longer needs the owner's yes; return False if somebody answered it before."""
    return await connection.fetchval(BY_RULE, *why.line("approved"), UUID(action_id), revision) is not None


LAST_OF = "SELECT status FROM shared.pending_actions WHERE notification_id = $1 ORDER BY requested_at DESC LIMIT 1"


async def last_of(connection: Connection, notification_id: str) -> str | None:
    """Return the status of the latest question about a notification, or None if there was none."""
    found: str | None = await connection.fetchval(LAST_OF, UUID(notification_id))
    return found


MOVE = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET status = $1, execution_result = coalesce($8, execution_result)
    WHERE notification_id = $6 AND status = ANY ($7::text[]) AND status <> $1 {WRITTEN}
SELECT id::text FROM moved
"""


async def move(
    connection: Connection,
    notification_id: str,
    come_from: Sequence[str],
    to: str,
    why: Why,
    result: Mapping[str, object] | None = None,
) -> str | None:
    """Move the open action along with its delivery; return its id, or None if there is none in those states."""
    args = (UUID(notification_id), list(come_from), result)
    moved: str | None = await connection.fetchval(MOVE, *why.line(to), *args)
    return moved


MOVE_CALL = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET status = $1
    WHERE id = $6 AND notification_id IS NULL AND status = ANY ($7::text[]) {WRITTEN}
SELECT id FROM moved
"""


async def move_call(connection: Connection, call_id: str, come_from: Sequence[str], to: str, why: Why) -> bool:
    """Move a tool call on; return False if it was in none of those states, so that of several one alone moves it."""
    return await connection.fetchval(MOVE_CALL, *why.line(to), UUID(call_id), list(come_from)) is not None


# Butlers take turns; the order of what is returned is that of locks.
UNANSWERED = """
SELECT id::text, notification_id::text FROM (
    SELECT id, notification_id, row_number() OVER (PARTITION BY origin_butler ORDER BY expires_at) AS turn
    FROM shared.pending_actions WHERE status = 'pending' AND expires_at <= clock_timestamp()
    ORDER BY turn LIMIT 100) unanswered
ORDER BY notification_id NULLS LAST
"""


async def unanswered(connection: Connection) -> list[Record]:
    """Return some questions whose time is over: id and notification, those about no message last."""
    return list(await connection.fetch(UNANSWERED))


EXPIRE = f"""
WITH moved AS (
    UPDATE shared.pending_actions SET status = $1
    WHERE id = $6 AND status = 'pending' AND expires_at <= clock_timestamp() {WRITTEN}
SELECT id FROM moved
"""


async def expire(connection: Connection, action_id: str, why: Why) -> bool:
    """Close a question that nobody answered in time; return False if somebody did."""
    return await connection.fetchval(EXPIRE, *why.line("expired"), UUID(action_id)) is not None


BEGINS = "SELECT id::text FROM shared.pending_actions a WHERE id BETWEEN $1 AND $2 ORDER BY a.id LIMIT 2"


async def ids_of(connection: Connection, begins: str) -> list[str]:
    """Return the ids of actions that begin so, two at most."""
    between = that_begin(begins)
    return [] if between is None else [row["id"] for row in await connection.fetch(BEGINS, *between)]


ABOUT = "SELECT id::text FROM shared.pending_actions WHERE notification_id = ANY ($1) LIMIT 2"


async def ids_about(connection: Connection, notification_ids: Sequence[str]) -> list[str]:
    """Return the ids of actions about these notifications, two at most."""
    return [row["id"] for row in await connection.fetch(ABOUT, [UUID(one) for one in notification_ids])]


ROW = f"""
SELECT a.id::text, a.origin_butler, a.tool_args, a.status, a.agent_summary, a.revision, a.requested_at, a.decided_at,
    {EXPIRES} AS expires_at, a.decision_reason, a.notification_id::text, a.content_sha, n.envelope, n.owner_text,
    n.whom, coalesce(d.channel, n.envelope #>> '{{delivery,channel}}', '') AS channel, d.address AS sent_to,
    d.id::text AS delivery_id, a.tool_name, c.arguments, c.says, c.risk, c.result
FROM shared.pending_actions a LEFT JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id LEFT JOIN shared.tool_calls c ON c.id = a.id
"""
ONE = f"{ROW} WHERE a.id = $1"


async def one(connection: Connection, action_id: str) -> Record | None:
    """Return one action as the list has it, or None."""
    return await connection.fetchrow(ONE, UUID(action_id))


LIST = "SELECT id::text FROM shared.pending_actions WHERE $1::text IS NULL OR status = $1 ORDER BY requested_at"


async def list_actions(connection: Connection, status: str | None) -> AsyncIterator[Record]:
    """Yield the pending actions, or those of one status, oldest first, each read by itself.

    Each may be as large as its butler made it; together they would be more than is read in time.
    """
    for row in await connection.fetch(LIST, status):
        found = await one(connection, row["id"])
        if found is not None:
            yield found
