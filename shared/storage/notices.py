"""Notices: what happened, for the agent of a butler, from the moment it is added until the agent has been shown it.

The only writer of shared.notices. A notice is `queued`, then `shown` in one session with one of its calls, then `done`.
The table itself bounds what comes: of the owner's nothing is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from shared.contracts import NotifyResponse
from shared.db.decoding import storable
from shared.db.pool import Connection, Record, tell
from shared.display.quotes import in_marks
from shared.display.visible import shortened
from shared.hashing import id_in
from shared.model import Priority, Trust
from shared.storage import notifications
from shared.storage.session_list import BY_OWNER, TELLS

TOPIC: Final = "notices"
LONGEST: Final = 4000
LONGEST_KEY: Final = 200
KEPT: Final = timedelta(hours=24)
OWNERS_KEPT: Final = timedelta(days=7)
# The cause of a session that a notice began.
CAUSE: Final = "notice"


@dataclass(frozen=True, slots=True)
class Notice:
    """What an agent is to be told: from where (`source`), of what kind, about what (`key`), and whose words they are.

    `wakes` begins a session of the butler where none runs. With an `id` it is added once, however often that is tried.
    """

    source: str
    kind: str
    text: str
    key: str = ""
    trust: Trust = "internal"
    priority: Priority = "normal"
    wakes: bool = False
    # Only this session is shown it.
    session_id: str | None = None
    id: str | None = None


ADD = """
INSERT INTO shared.notices (id, butler, session_id, source, kind, key, text, trust, priority, wakes, expires_at)
VALUES (coalesce($1, gen_random_uuid()), $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::interval)
ON CONFLICT DO NOTHING
"""


async def add(connection: Connection, butler: str, notice: Notice) -> None:
    """Put a notice in the queue of this butler, and wake who shows it; a text that is too long is cut."""
    text = shortened(storable(notice.text), LONGEST)
    await connection.execute(
        ADD,
        UUID(notice.id) if notice.id else None,
        butler,
        UUID(notice.session_id) if notice.session_id else None,
        notice.source,
        notice.kind,
        storable(notice.key)[:LONGEST_KEY],
        text.strip() or "(empty)",
        notice.trust,
        notice.priority,
        notice.wakes,
        OWNERS_KEPT if notice.trust == "owner" else KEPT,
    )
    await tell(connection, TOPIC, butler)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a notice begins a session: after time to gather, so far apart from the last, and so often in an hour."""

    gather: timedelta = timedelta(seconds=5)
    apart: timedelta = timedelta(seconds=60)
    an_hour: int = 12


@dataclass(frozen=True, slots=True)
class Reader:
    """Who is shown notices: a session or a client's token, by its id; the word that marks them as genuine, if any."""

    id: str
    nonce: str = ""
    # Whether the owner's words may reach it here, instead of beginning a session of their own.
    hears: bool = False
    # Whether what the owner answered or decided may reach it here.
    is_owners: bool = False


# INVARIANT: what the owner wrote, answered or decided reaches no session that works for somebody else, or that an agent
# set for itself: that could pass it on, and would leave it undone.
OWNERS: Final = f"(cause = '{CAUSE}' OR {BY_OWNER})"
IS_OWNERS = f"SELECT EXISTS (SELECT FROM shared.sessions WHERE id = $1 AND butler = $2 AND {OWNERS})"


async def is_owners(connection: Connection, butler: str, session_id: str) -> bool:
    """Return whether what the owner answered or decided may reach this session."""
    return bool(await connection.fetchval(IS_OWNERS, id_in(session_id), butler))


# INVARIANT: the end of a session waits until this unit of work is over, and one whose end is written, or that the owner
# stops, is shown nothing; whoever claims sessions waits for neither. A program of the owner's need not see to what its
# results bring.
READER = f"""
SELECT coalesce(nonce, '') AS nonce, hears, runtime IS DISTINCT FROM 'command' AND {OWNERS} AS is_owners
FROM shared.sessions
WHERE id = $1 AND butler = $2 AND status = 'running' AND stop_asked_at IS NULL AND nonce IS NOT NULL FOR KEY SHARE
"""
CLIENT = """
SELECT '' AS nonce, false AS hears, true AS is_owners FROM shared.client_tokens
WHERE jti = $1 AND butler = $2 AND notices AND revoked_at IS NULL AND expires_at > clock_timestamp()
"""


async def reader(connection: Connection, butler: str, who: str, kind: str) -> Reader | None:
    """Return the reader that a caller of that id is, or None: a session that we run, or a token made for notices."""
    row = await (
        connection.fetchrow(READER, id_in(who), butler)
        if kind == "session"
        else connection.fetchrow(CLIENT, who, butler)
    )
    return Reader(who, **row) if row is not None else None


READ = """
UPDATE shared.notices SET state = 'done' WHERE butler = $1 AND state = 'shown' AND shown_in = $2
    AND shown_at < clock_timestamp() - make_interval(secs => $3)
"""


async def note_read(connection: Connection, butler: str, by: str) -> None:
    """Note as done what this reader was shown."""
    await connection.execute(READ, butler, by, 0.0)


# What another call takes at this moment is not waited for. What the owner wrote waits for a session of its own, unless
# this reader hears it; what that session is asked by now is what the owner has made of it since. INVARIANT: of a
# session that a message began, since who asks another butler chooses the id of what it asks.
WAITING = f"""
WITH read AS ({READ})
SELECT id::text, source, kind, key, coalesce((SELECT left(s.prompt, 4000) FROM shared.sessions s
        WHERE s.id = notices.id AND s.butler = $1 AND s.cause = 'message' AND s.status = 'waiting'), text) AS text,
    trust, priority, created_at, more, again FROM shared.notices
WHERE butler = $1 AND state = 'queued' AND expires_at > clock_timestamp()
    AND (session_id IS NULL OR session_id::text = $2) AND ($4 OR NOT (source = 'owner' AND kind = 'message'))
    AND ($5 OR trust <> 'owner')
ORDER BY created_at LIMIT 500 FOR UPDATE SKIP LOCKED
"""


async def to_show(connection: Connection, butler: str, by: Reader, ago: float | None = None) -> Sequence[Record]:
    """Return what waits for this reader, locked, the oldest first.

    What it was shown before a call of its that began so many seconds `ago` is noted as done by the same statement.
    """
    return await connection.fetch(WAITING, butler, by.id, ago, by.hears, by.is_owners)


SHOWN = """
UPDATE shared.notices SET state = 'shown', shown_in = $2, shown_at = clock_timestamp(),
    shown_call = coalesce((SELECT steps FROM shared.sessions s WHERE s.id = $4 AND s.butler = $1), 0)
WHERE butler = $1 AND id = ANY ($3) AND state = 'queued'
"""


async def shown(connection: Connection, butler: str, by: str, ids: Sequence[str]) -> None:
    """Note that this reader is shown these with the call that it makes now."""
    await connection.execute(SHOWN, butler, by, [UUID(one) for one in ids], id_in(by))


AS_IT_WAS = """
UPDATE shared.notices SET state = 'queued', shown_in = NULL, shown_call = NULL, shown_at = NULL
WHERE butler = $1 AND state = 'shown' AND shown_in = $2
"""


async def as_if_unshown(connection: Connection, butler: str, by: str) -> None:
    """Put back what a session was shown that is begun again, as if it had not been."""
    await connection.execute(AS_IT_WAS, butler, by)


# A session has read what it was shown before its last call began, by whichever process and beside whatever other calls.
READ_BEFORE = """
UPDATE shared.notices n SET state = 'done' FROM shared.sessions s
WHERE s.id = $3 AND s.butler = $1 AND n.butler = $1 AND n.state = 'shown' AND n.shown_in = $2 AND n.shown_call < s.steps
"""
# What the owner wrote begins a session of its own instead, and what the owner stopped is not done after all.
UNREAD = """
WITH unread AS (
    SELECT id, source = 'owner' AND kind = 'message' AS words, EXISTS (SELECT FROM shared.sessions s
            WHERE s.id = $3 AND s.butler = $1 AND s.stop_asked_at IS NOT NULL) AS stopped
    FROM shared.notices WHERE butler = $1 AND state = 'shown' AND shown_in = $2 FOR UPDATE)
UPDATE shared.notices n SET state = CASE WHEN again OR words OR stopped THEN 'done' ELSE 'queued' END, again = true,
    shown_in = CASE WHEN again OR words OR stopped THEN shown_in END, shown_at = NULL,
    shown_call = CASE WHEN stopped AND words THEN shown_call END
FROM unread u WHERE u.id = n.id
RETURNING n.id::text, words AND NOT stopped AS begins, n.state = 'done' AND trust = 'owner' AND NOT words AS given_up,
    text
"""


async def unread(connection: Connection, butler: str, by: str) -> Sequence[Record]:
    """Put back what a session was shown last that broke off, once; return id, text, `begins` and `given_up` of each.

    The owner's words begin a session of their own again; given up is what the owner decided or answered, the second
    time or where the owner stopped the session.
    """
    await connection.execute(READ_BEFORE, butler, by, id_in(by))
    rows = await connection.fetch(UNREAD, butler, by, id_in(by))
    await tell(connection, TOPIC, butler)
    return rows


# What the owner said, answered or decided while it ran. Words are answered by a call that began after they were shown;
# what was put back has no call it was shown with. The owner's words are named as the owner has changed them since.
HEARD = f"""
SELECT coalesce((SELECT left(s.prompt, 200) FROM shared.sessions s
        WHERE s.id = n.id AND s.butler = $1 AND s.cause = 'message'), left(n.text, 200)) AS text,
    n.kind = 'message' AND NOT EXISTS (SELECT FROM shared.session_steps t
        WHERE t.session_id = $3 AND t.butler = $1 AND t.seq > n.shown_call AND {TELLS}) AS unanswered
FROM shared.notices n WHERE n.butler = $1 AND n.source = 'owner' AND n.state = 'done' AND n.shown_in = $2
    AND n.shown_call IS NOT NULL
ORDER BY unanswered DESC, n.created_at LIMIT $4
"""


async def heard(connection: Connection, butler: str, by: str, most: int) -> Sequence[Record]:
    """Return so much of the owner's that a session read by its end, what it left unanswered first."""
    return await connection.fetch(HEARD, butler, by, id_in(by), most)


WITHDRAW = """
UPDATE shared.notices SET state = 'done' WHERE id IN (
    SELECT id FROM shared.notices WHERE id = ANY ($2) AND butler = $1 AND state = 'queued' FOR UPDATE SKIP LOCKED)
"""


async def withdraw(connection: Connection, butler: str, ids: Sequence[str]) -> None:
    """End what has to be shown no more, such as the owner's words whose own session begins; wait for nobody."""
    await connection.execute(WITHDRAW, butler, [UUID(one) for one in ids])


# Whoever would begin a session for it locks the same row. What waited in a backup that was put back begins none, since
# the agent may have been told of it; it is shown in the next session. A brake written by a clock that was ahead speaks
# of nothing that was added after the owner lifted it. INVARIANT: what begins a session is shown in it.
WAKING = """
SELECT trust = 'owner' FROM shared.notices WHERE butler = $1 AND state = 'queued' AND expires_at > clock_timestamp()
    AND created_at < clock_timestamp() - $2::interval AND (wakes OR (again AND trust = 'owner'))
    AND session_id IS NULL AND NOT (source = 'owner' AND kind = 'message')
    AND NOT EXISTS (SELECT FROM shared.brakes b
        WHERE b.reason = 'restored' AND least(b.made_at, b.lifted_at) >= notices.created_at)
ORDER BY trust <> 'owner', created_at, id LIMIT 1 FOR UPDATE
"""
# A session that works for somebody else keeps nothing of the owner's ($5) waiting, as it is not shown that.
IDLE = f"""
SELECT NOT EXISTS (SELECT FROM shared.sessions
        WHERE butler = $1 AND ended_at IS NULL AND prompt IS NOT NULL AND (NOT $5 OR {OWNERS}))
    AND (SELECT count(*) < $4 AND coalesce(max(created_at) < clock_timestamp() - $3::interval, true)
        FROM shared.sessions WHERE butler = $1 AND cause = $2 AND created_at > clock_timestamp() - interval '1 hour')
"""


async def begins_one(connection: Connection, butler: str, pace: Pace) -> bool:
    """Return whether something waits for which a session is begun, and none runs; others wait until this commits."""
    owners: bool | None = await connection.fetchval(WAKING, butler, pace.gather)
    if owners is None:
        return False
    return bool(await connection.fetchval(IDLE, butler, CAUSE, pace.apart, pace.an_hour, owners))


# The owner's words as the owner has changed them since, and whole.
IN_FULL = """
SELECT id::text, source, kind, key, coalesce((SELECT s.prompt FROM shared.sessions s
        WHERE s.id = notices.id AND s.butler = $1 AND s.cause = 'message'), text) AS text,
    trust, priority, created_at, more, again, state FROM shared.notices
"""
# What the owner wrote and nobody was told waits for a session of its own, and is in no list of another's.
LATEST = f"""
{IN_FULL} WHERE butler = $1 AND expires_at > clock_timestamp() AND (session_id IS NULL OR session_id::text = $2)
    AND ((state = 'queued' AND NOT (source = 'owner' AND kind = 'message') AND ($3 OR trust <> 'owner'))
        OR (state = 'shown' AND shown_in = $2))
ORDER BY created_at LIMIT 50
"""


async def unread_by(connection: Connection, butler: str, who: str, *, owners: bool) -> Sequence[Record]:
    """Return what waits, with what the owner answered or decided or without, and what this reader was shown last."""
    return await connection.fetch(LATEST, butler, who, owners)


ONE = f"""
{IN_FULL} WHERE butler = $1 AND shown_in = $2 AND id = $3
"""


async def shown_once(connection: Connection, butler: str, who: str, notice_id: str) -> Sequence[Record]:
    """Return the notice of that id in full, if this reader was shown it, however long ago."""
    return await connection.fetch(ONE, butler, who, id_in(notice_id))


# Whoever asked is told only what its own call has not: that is answered within fourteen seconds, or by the question.
HEARD_SECONDS: Final = 15
NEWS = f"""
SELECT n.origin_butler, n.envelope #>> '{{delivery,channel}}' AS channel, left(coalesce(
        n.owner_text, n.envelope #>> '{{delivery,message}}', n.envelope #>> '{{delivery,emoji}}'), 200) AS words
FROM shared.notifications n WHERE n.id = $1 AND ($2 OR n.created_at < clock_timestamp() - interval '{HEARD_SECONDS} s'
    OR EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id AND a.decided_at IS NOT NULL))
"""


async def add_outcome(
    connection: Connection, notification_id: str, kind: str, said: str, *, always: bool = False, wakes: bool = False
) -> None:
    """Tell a message's butler what became of it, if its call cannot have been answered with that already."""
    row = await connection.fetchrow(NEWS, UUID(notification_id), always)
    if row is not None:
        text = f"Your {row['channel']} message {notification_id} {said} It said: {in_marks(row['words'] or '', 200)}"
        await add(connection, row["origin_butler"], Notice("messenger", kind, text, key=notification_id, wakes=wakes))


async def settle_and_tell(connection: Connection, notification_id: str, answer: NotifyResponse) -> None:
    """Store the answer of what failed or is uncertain, and tell its butler, if its call cannot be answered with it.

    Its words are the house's own, since the butler is told them as such.
    """
    await notifications.settle(connection, notification_id, answer)
    kind, why = "failed" if answer.status == "error" else answer.status, answer.error.message if answer.error else ""
    await add_outcome(connection, notification_id, kind, f"has ended as {answer.status}: {why}")
