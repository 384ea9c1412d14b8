"""The purger of what is over (shared/retention.py): words after their days, rows when nothing needs their fence.

Any Messenger may do it, several at once: what another holds is skipped, and a second time changes nothing. Each batch
is a unit of work of its own, and the database's clock alone says what is old: as it stood a round ago, and only if it
has gone on since as time does. So a clock that is wrong for less than an hour takes nothing away. The purger writes
beside each table's own module, and only what has ended: nothing open or uncertain is touched. Lock order: notification,
delivery, part, pending action.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from butlers.butler import Context
from shared import answers, retention
from shared.db import clock
from shared.db.pool import BRIEFLY, Connection, Database, Record
from shared.errors import ButlersError
from shared.loops import pause
from shared.telemetry.logs import logger
from shared.telemetry.metrics import purged_total

log = logger("messenger.maintenance.purger")
BATCH: Final = 100
# INVARIANT: whoever writes old rows as fast as they are taken away keeps no others from being taken away: of each chore
# so many batches, then the next; and a round ends.
BATCHES: Final = 100
MOST_TIMES: Final = 100
# States of a question that waits, or of which what was asked may still leave; of a call nobody knows until the owner
# has said, and of a message the delivery says whether the owner has.
WAITS: Final = "('pending', 'approved', 'executing')"
OPEN: Final = "('pending', 'approved', 'executing', 'uncertain')"

# A yes may come days after the question, and the audit is compared with what it was given to for as long as with a
# message: from that word, not from the question.
OVER_FOR_LONG: Final = """
a.requested_at < to_timestamp($1::float8) AND coalesce(a.decided_at, a.requested_at) < to_timestamp($1::float8)
"""

# Beginning a message anew writes its row, so that the second look under the lock finds it young.
ENDED: Final = f"""
SELECT n.id FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
WHERE n.wiped_at IS NULL AND n.created_at < to_timestamp($1::float8)
    AND n.updated_at < to_timestamp($1::float8)
    AND (n.status IN ('ok', 'error') OR (n.status = 'uncertain' AND d.status = 'abandoned'))
    AND (d.id IS NULL OR d.status IN ('sent', 'failed', 'refused', 'cancelled', 'expired', 'dead', 'abandoned',
        'bounced'))
    AND NOT EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id
        AND a.status IN {WAITS})
ORDER BY n.created_at LIMIT $2 FOR NO KEY UPDATE OF n SKIP LOCKED
"""
OF_MESSAGES: Final = """
SELECT id FROM messenger.deliveries WHERE notification_id = ANY ($1)
UNION ALL SELECT c.id FROM messenger.deliveries d JOIN messenger.deliveries c ON c.about = d.id
    WHERE d.notification_id = ANY ($1)
UNION ALL SELECT c.id FROM shared.pending_actions a JOIN messenger.deliveries c ON c.action_id = a.id
    WHERE a.notification_id = ANY ($1)
"""
WIPE_PARTS: Final = f"""
UPDATE messenger.parts SET shown = NULL WHERE shown IS NOT NULL AND delivery_id IN ({OF_MESSAGES})
"""
WIPE_ATTEMPTS: Final = f"""
UPDATE messenger.attempts SET detail = NULL WHERE detail IS NOT NULL AND delivery_id IN ({OF_MESSAGES})
"""
WIPE_ACTIONS: Final = """
UPDATE shared.pending_actions SET agent_summary = $2::text, tool_args = jsonb_strip_nulls(jsonb_build_object(
    'channel', tool_args -> 'channel', 'intent', tool_args -> 'intent', 'message', $2::text))
WHERE notification_id = ANY ($1)
"""
# What stays is still an envelope and an answer; of a reaction the emoji, by which an equal one is known as a replay.
WIPE: Final = """
UPDATE shared.notifications SET wiped_at = statement_timestamp(), owner_text = NULL,
    envelope = jsonb_strip_nulls(jsonb_build_object('schema_version', envelope -> 'schema_version',
        'origin_butler', origin_butler, 'delivery', jsonb_build_object('intent', envelope #> '{delivery,intent}',
            'channel', envelope #> '{delivery,channel}', 'message', $2::text,
            'emoji', envelope #> '{delivery,emoji}'))),
    answer = jsonb_strip_nulls(answer - 'note' || jsonb_build_object(
        'message', CASE status WHEN 'uncertain' THEN $4::text END,
        'error', CASE WHEN answer ? 'error' THEN jsonb_build_object('class', answer #> '{error,class}',
            'message', CASE status WHEN 'uncertain' THEN $4::text ELSE $3::text END, 'retryable', false) END))
WHERE id = ANY ($1)
"""
# From here on nothing of a message is needed, not even its key. A butler may ask about it anew at any time.
OVER: Final = f"""
SELECT n.id FROM shared.notifications n
WHERE n.wiped_at IS NOT NULL AND n.created_at < to_timestamp($1::float8)
    AND n.updated_at < to_timestamp($1::float8)
    AND NOT EXISTS (SELECT FROM shared.withdrawals w WHERE w.notification_id = n.id
        AND w.at >= to_timestamp($1::float8))
    AND NOT EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id
        AND (a.status IN {WAITS} OR a.requested_at >= to_timestamp($1::float8)))
ORDER BY n.created_at LIMIT $2 FOR UPDATE OF n SKIP LOCKED
"""
REMOVE: Final = (
    """
DELETE FROM shared.resolutions USING messenger.deliveries d WHERE d.id = delivery_id AND notification_id = ANY ($1)
""",
    """
DELETE FROM messenger.deliveries WHERE class = 'card' AND id IN (
    SELECT c.id FROM messenger.deliveries d JOIN messenger.deliveries c ON c.about = d.id
        WHERE d.notification_id = ANY ($1)
    UNION ALL SELECT c.id FROM shared.pending_actions a JOIN messenger.deliveries c ON c.action_id = a.id
        WHERE a.notification_id = ANY ($1))
""",
    "DELETE FROM messenger.deliveries WHERE notification_id = ANY ($1)",
    """
DELETE FROM messenger.digest_items USING shared.pending_actions a WHERE a.id = action_id AND notification_id = ANY ($1)
""",
    "DELETE FROM shared.withdrawals WHERE notification_id = ANY ($1)",
    "DELETE FROM shared.pending_actions WHERE notification_id = ANY ($1)",
    "DELETE FROM shared.notifications WHERE id = ANY ($1)",
)
# What nobody holds any more but another purger is taken in the order in which it was written.
OTHER_ACTIONS_WIPED: Final = f"""
UPDATE shared.pending_actions SET agent_summary = '{retention.WIPED}', tool_args = '{{}}' WHERE id IN (
    SELECT id FROM shared.pending_actions WHERE notification_id IS NULL AND tool_args <> '{{}}'
        AND status NOT IN {OPEN}
        AND requested_at < to_timestamp($1::float8) AND expires_at < to_timestamp($1::float8)
    ORDER BY requested_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
# A call that ended has no more than its hash; the cards about it show nothing any more.
CALLS_WIPED: Final = f"""
UPDATE shared.tool_calls SET arguments = '{retention.WIPED}', says = '{retention.WIPED}', result = NULL WHERE id IN (
    SELECT c.id FROM shared.tool_calls c JOIN shared.pending_actions a USING (id)
    WHERE c.says <> '{retention.WIPED}' AND a.status NOT IN {OPEN}
        AND {OVER_FOR_LONG} AND a.expires_at < to_timestamp($1::float8)
    ORDER BY a.requested_at LIMIT $2 FOR UPDATE OF c SKIP LOCKED)
"""
CARDS_OF_CALLS_WIPED: Final = f"""
UPDATE messenger.parts SET shown = NULL WHERE shown IS NOT NULL AND delivery_id IN (
    SELECT d.id FROM messenger.deliveries d JOIN shared.tool_calls c ON c.id = d.action_id
    WHERE d.class = 'card' AND c.says = '{retention.WIPED}'
        AND d.created_at < to_timestamp($1::float8)
        AND EXISTS (SELECT FROM messenger.parts p WHERE p.delivery_id = d.id AND p.shown IS NOT NULL)
    ORDER BY d.created_at LIMIT $2)
"""
ATTEMPTS_OF_CALLS_WIPED: Final = f"""
UPDATE messenger.attempts SET detail = NULL WHERE detail IS NOT NULL AND delivery_id IN (
    SELECT d.id FROM messenger.deliveries d JOIN shared.tool_calls c ON c.id = d.action_id
    WHERE d.class = 'card' AND c.says = '{retention.WIPED}'
        AND d.created_at < to_timestamp($1::float8)
        AND EXISTS (SELECT FROM messenger.attempts a WHERE a.delivery_id = d.id AND a.detail IS NOT NULL)
    ORDER BY d.created_at LIMIT $2)
"""
CARDS_OF_CALLS: Final = f"""
DELETE FROM messenger.deliveries WHERE id IN (
    SELECT d.id FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
    JOIN shared.tool_calls c ON c.id = a.id
    WHERE d.class = 'card' AND a.notification_id IS NULL AND a.status NOT IN {OPEN}
        AND {OVER_FOR_LONG}
    ORDER BY a.requested_at LIMIT $2)
"""
CALLS: Final = f"""
DELETE FROM shared.tool_calls WHERE id IN (
    SELECT c.id FROM shared.tool_calls c JOIN shared.pending_actions a USING (id)
    WHERE a.status NOT IN {OPEN} AND {OVER_FOR_LONG}
        AND NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.action_id = a.id)
    ORDER BY a.requested_at LIMIT $2 FOR UPDATE OF c SKIP LOCKED)
"""
# A call that its butler holds, and is still there therefore, keeps its own action alone.
OTHER_ACTIONS: Final = f"""
WITH over AS (
    SELECT a.id FROM shared.pending_actions a WHERE a.notification_id IS NULL
        AND a.status NOT IN {OPEN}
        AND {OVER_FOR_LONG}
        AND NOT EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = a.id)
        AND NOT EXISTS (SELECT FROM messenger.deliveries c WHERE c.action_id = a.id)
    ORDER BY a.requested_at LIMIT $2 FOR UPDATE SKIP LOCKED),
listed AS (DELETE FROM messenger.digest_items WHERE action_id IN (SELECT id FROM over))
DELETE FROM shared.pending_actions WHERE id IN (SELECT id FROM over)
"""
CARDS_ALONE: Final = """
DELETE FROM messenger.deliveries WHERE id IN (
    SELECT id FROM messenger.deliveries
    WHERE class = 'card' AND action_id IS NULL AND about IS NULL AND digest_id IS NULL
        AND status IN ('sent', 'failed', 'refused', 'cancelled', 'expired', 'dead', 'abandoned')
        AND settled_at < to_timestamp($1::float8)
    ORDER BY settled_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
ATTEMPTS_OF_DIGESTS: Final = """
UPDATE messenger.attempts SET detail = NULL WHERE detail IS NOT NULL AND delivery_id IN (
    SELECT d.id FROM messenger.deliveries d WHERE d.digest_id IS NOT NULL
        AND d.settled_at < to_timestamp($1::float8)
        AND EXISTS (SELECT FROM messenger.attempts a WHERE a.delivery_id = d.id AND a.detail IS NOT NULL)
    ORDER BY d.digest_id LIMIT $2)
"""
CARDS_OF_DIGESTS: Final = """
DELETE FROM messenger.deliveries WHERE class = 'card' AND digest_id IN (
    SELECT g.id FROM messenger.digests g WHERE g.opened_at < to_timestamp($1::float8)
        AND NOT EXISTS (SELECT FROM messenger.digest_items i WHERE i.digest_id = g.id)
    ORDER BY g.opened_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
DIGESTS: Final = """
DELETE FROM messenger.digests WHERE id IN (
    SELECT g.id FROM messenger.digests g WHERE g.opened_at < to_timestamp($1::float8)
        AND NOT EXISTS (SELECT FROM messenger.digest_items i WHERE i.digest_id = g.id)
        AND NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.digest_id = g.id)
    ORDER BY g.opened_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
UPDATES: Final = """
DELETE FROM messenger.updates WHERE (bot, update_id) IN (
    SELECT bot, update_id FROM messenger.updates WHERE handled_at < to_timestamp($1::float8)
    ORDER BY bot, update_id LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
PAIRINGS: Final = """
DELETE FROM messenger.pairings WHERE code_sha IN (
    SELECT code_sha FROM messenger.pairings WHERE expires_at < to_timestamp($1::float8)
    ORDER BY code_sha LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
STRANGERS: Final = """
DELETE FROM messenger.strangers WHERE (channel, sender) IN (
    SELECT channel, sender FROM messenger.strangers WHERE first_at < to_timestamp($1::float8)
    ORDER BY channel, sender LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
REQUEST_WINDOWS: Final = """
DELETE FROM shared.request_windows WHERE (origin_butler, request_sha) IN (
    SELECT origin_butler, request_sha FROM shared.request_windows WHERE first_at < to_timestamp($1::float8)
    ORDER BY origin_butler, request_sha LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
TOKENS: Final = """
DELETE FROM shared.client_tokens WHERE jti IN (
    SELECT jti FROM shared.client_tokens WHERE expires_at < to_timestamp($1::float8)
    ORDER BY jti LIMIT $2)
"""
SESSIONS: Final = """
DELETE FROM shared.sessions WHERE id IN (
    SELECT id FROM shared.sessions WHERE ended_at < to_timestamp($1::float8) AND butler = $3
    ORDER BY ended_at LIMIT $2)
"""
WHOSE_SESSIONS: Final = "SELECT DISTINCT butler FROM shared.sessions"
NOTICES: Final = """
DELETE FROM shared.notices WHERE id IN (
    SELECT id FROM shared.notices WHERE created_at < to_timestamp($1::float8) AND butler = $3
    ORDER BY created_at LIMIT $2)
"""
WHOSE_NOTICES: Final = "SELECT DISTINCT butler FROM shared.notices"
ATTACHMENTS: Final = """
DELETE FROM shared.attachments WHERE (message_id, number, piece) IN (SELECT message_id, number, piece
    FROM shared.attachments WHERE fetched_at < to_timestamp($1::float8) ORDER BY fetched_at LIMIT $2)
"""
OCCURRENCES: Final = """
DELETE FROM shared.occurrences WHERE id IN (
    SELECT id FROM shared.occurrences WHERE ended_at < to_timestamp($1::float8) AND butler = $3
    ORDER BY ended_at LIMIT $2)
"""
WHOSE_OCCURRENCES: Final = "SELECT DISTINCT butler FROM shared.occurrences"
# The occurrences of one that is over go before it.
SCHEDULES: Final = """
DELETE FROM shared.schedules WHERE id IN (
    SELECT id FROM shared.schedules s WHERE source = 'tool' AND next_due_at IS NULL
        AND once_at < to_timestamp($1::float8) AND created_at < to_timestamp($1::float8) AND butler = $3
        AND NOT EXISTS (SELECT FROM shared.occurrences WHERE schedule_id = s.id) ORDER BY id LIMIT $2)
"""
WHOSE_SCHEDULES: Final = "SELECT DISTINCT butler FROM shared.schedules"
CARDS_OF_QUESTIONS: Final = """
DELETE FROM messenger.deliveries WHERE id IN (
    SELECT d.id FROM messenger.deliveries d JOIN shared.questions q ON q.id = d.about
    WHERE d.card_kind = 'question' AND q.status <> 'open' AND q.closed_at < to_timestamp($1::float8)
    ORDER BY q.closed_at LIMIT $2)
"""
QUESTIONS: Final = """
DELETE FROM shared.questions WHERE id IN (
    SELECT id FROM shared.questions q WHERE status <> 'open' AND closed_at < to_timestamp($1::float8)
        AND origin_butler = $3 AND NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.about = q.id)
    ORDER BY closed_at LIMIT $2)
"""
WHOSE_QUESTIONS: Final = "SELECT DISTINCT origin_butler FROM shared.questions"
ROUTES: Final = """
DELETE FROM switchboard.routes WHERE id IN (
    SELECT id FROM switchboard.routes WHERE at < to_timestamp($1::float8) ORDER BY at LIMIT $2)
"""
# Closed or not: what it quotes is wiped with the message.
CARDS_OF_STRANGERS: Final = """
DELETE FROM messenger.deliveries WHERE id IN (
    SELECT id FROM messenger.deliveries WHERE card_kind = 'stranger'
        AND status IN ('sent', 'failed', 'refused', 'cancelled', 'expired', 'dead', 'abandoned')
        AND created_at < to_timestamp($1::float8)
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
INBOX_WIPED: Final = f"""
UPDATE switchboard.inbox SET text = '{retention.WIPED}', request_context = '{{}}',
    display_name = NULL, attachments = NULL, quoted = NULL, route_until = NULL WHERE id IN (
    SELECT id FROM switchboard.inbox WHERE request_context <> '{{}}'
        AND received_at < to_timestamp($1::float8)
    ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
INBOX: Final = """
DELETE FROM switchboard.inbox WHERE id IN (
    SELECT id FROM switchboard.inbox WHERE received_at < to_timestamp($1::float8)
    ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Chore:
    """One statement that takes away up to $2 rows from before $1 (seconds since 1970), and does nothing else.

    Where a butler may hold its own rows, `butlers` lists whose rows there are, and $3 is one of these.
    """

    table: str
    how: retention.How
    after: timedelta
    text: str
    butlers: str = ""


CHORES: Final = (
    Chore("shared.pending_actions", "wiped", retention.WORDS, OTHER_ACTIONS_WIPED),
    Chore("shared.tool_calls", "wiped", retention.WORDS, CALLS_WIPED),
    Chore("messenger.parts", "wiped", retention.WORDS, CARDS_OF_CALLS_WIPED),
    Chore("messenger.attempts", "wiped", retention.WORDS, ATTEMPTS_OF_CALLS_WIPED),
    Chore("messenger.deliveries", "removed", retention.FENCES, CARDS_OF_CALLS),
    Chore("shared.tool_calls", "removed", retention.FENCES, CALLS),
    Chore("shared.pending_actions", "removed", retention.FENCES, OTHER_ACTIONS),
    Chore("messenger.deliveries", "removed", retention.WORDS, CARDS_ALONE),
    Chore("messenger.attempts", "wiped", retention.WORDS, ATTEMPTS_OF_DIGESTS),
    Chore("messenger.deliveries", "removed", retention.FENCES, CARDS_OF_DIGESTS),
    Chore("messenger.digests", "removed", retention.FENCES, DIGESTS),
    Chore("messenger.updates", "removed", retention.UPDATES, UPDATES),
    Chore("messenger.strangers", "removed", retention.STRANGERS, STRANGERS),
    Chore("messenger.pairings", "removed", retention.PAIRINGS, PAIRINGS),
    Chore("shared.request_windows", "removed", retention.REQUEST_WINDOWS, REQUEST_WINDOWS),
    Chore("shared.client_tokens", "removed", retention.TOKENS, TOKENS),
    Chore("shared.sessions", "removed", retention.WORDS, SESSIONS, WHOSE_SESSIONS),
    Chore("shared.notices", "removed", retention.WORDS, NOTICES, WHOSE_NOTICES),
    Chore("shared.attachments", "removed", retention.FETCHED, ATTACHMENTS),
    Chore("shared.occurrences", "removed", retention.WORDS, OCCURRENCES, WHOSE_OCCURRENCES),
    Chore("shared.schedules", "removed", retention.WORDS, SCHEDULES, WHOSE_SCHEDULES),
    Chore("messenger.deliveries", "removed", retention.WORDS, CARDS_OF_QUESTIONS),
    Chore("shared.questions", "removed", retention.WORDS, QUESTIONS, WHOSE_QUESTIONS),
    Chore("switchboard.routes", "removed", retention.ROUTES, ROUTES),
    Chore("messenger.deliveries", "removed", retention.WORDS, CARDS_OF_STRANGERS),
    Chore("switchboard.inbox", "wiped", retention.WORDS, INBOX_WIPED),
    Chore("switchboard.inbox", "removed", retention.FENCES, INBOX),
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds until the first round and between rounds, each lengthened by up to a half so that Messengers spread."""

    first: float = 60.0
    every: float = 3600.0


async def run(
    context: Context,
    jitter: float,
    stopping: asyncio.Event,
    pace: Pace = Pace(),
    ticks: Callable[[], float] = clock.boot,
) -> None:
    """Take away what is over, round by round; `jitter` is between 0 and 1, `ticks` are seconds that never jump."""
    earlier: clock.Reading | None = None
    wait = pace.first
    while not await pause(stopping, wait * (1 + jitter / 2)):
        wait = pace.every
        earlier = await round_after(context.db, earlier, ticks, stopping)


async def round_after(
    db: Database, earlier: clock.Reading | None, ticks: Callable[[], float], stopping: asyncio.Event
) -> clock.Reading | None:
    """Take away what was over by the reading before, unless the clock was set since.

    Return the reading for the next round.
    """
    try:
        async with db.work() as connection:
            later = await clock.reading(connection, ticks)
    except ButlersError as failed:
        log.warning("the clock was not read, nothing is purged", why=failed.message)
        return earlier
    if earlier is not None and earlier.went_along(later):
        await purge(db, earlier.database, stopping)
    elif earlier is not None:
        log.warning("the database's clock was set, nothing is purged before the next round")
    return later


async def purge(db: Database, by: float, stopping: asyncio.Event, batch: int = BATCH) -> int:
    """Wipe or remove what was over at `by` (seconds since 1970), in batches, until nothing is left, or often enough.

    Return how many rows that were.
    """
    done = 0
    for _ in range(MOST_TIMES):
        rows = await _once(db, by, stopping, batch)
        done += rows
        if not rows:
            break
    return done


async def _once(db: Database, by: float, stopping: asyncio.Event, batch: int) -> int:
    """Do some batches of everything; return how many rows that were."""
    done = await _through("shared.notifications", partial(wipe_messages, db, by, batch), stopping)
    done += await _through("shared.notifications", partial(remove_messages, db, by, batch), stopping)
    for chore in CHORES:
        for whose in await _butlers(db, chore) if chore.butlers else [()]:
            done += await _through(chore.table, partial(do, chore, db, by, batch, *whose), stopping)
    return done


async def _through(table: str, step: Callable[[], Awaitable[int]], stopping: asyncio.Event) -> int:
    """Do some batches, one after the other; what stops one step must not keep all others from being done."""
    done = 0
    try:
        for _ in range(BATCHES):
            if stopping.is_set() or not (rows := await step()):
                break
            done += rows
    except ButlersError as failed:
        log.warning("not purged", table=table, why=failed.message)
    return done


async def _butlers(db: Database, chore: Chore) -> Sequence[Record]:
    """Return whose rows there are, each as the rest of the statement's arguments."""
    try:
        async with db.work() as connection:
            return await connection.fetch(chore.butlers)
    except ButlersError as failed:
        log.warning("not purged", table=chore.table, why=failed.message)
        return []


async def wipe_messages(db: Database, by: float, batch: int) -> int:
    """Wipe the words of messages that ended long ago, and of everything that was said about them.

    Return how many messages that were.
    """
    async with db.work() as connection:
        ids = await _ids(connection, ENDED, by - retention.WORDS.total_seconds(), batch)
        if ids:
            await connection.execute(WIPE_PARTS, ids)
            await connection.execute(WIPE_ATTEMPTS, ids)
            await connection.execute(WIPE_ACTIONS, ids, retention.WIPED)
            await connection.execute(WIPE, ids, retention.WIPED, answers.WIPED, answers.LEFT)
    purged_total.labels(table="shared.notifications", how="wiped").inc(len(ids))
    return len(ids)


async def remove_messages(db: Database, by: float, batch: int) -> int:
    """Remove messages whose fence nobody needs any more, with their deliveries and questions.

    Return how many messages that were.
    """
    async with db.work() as connection:
        ids = await _ids(connection, OVER, by - retention.FENCES.total_seconds(), batch)
        for text in REMOVE if ids else ():
            await connection.execute(text, ids)
    purged_total.labels(table="shared.notifications", how="removed").inc(len(ids))
    return len(ids)


async def do(chore: Chore, db: Database, by: float, batch: int, *whose: str) -> int:
    """Take away one batch of a chore, for a butler that is named of its rows; return how many rows."""
    async with db.work(BRIEFLY) as connection:
        done = await connection.execute(chore.text, by - chore.after.total_seconds(), batch, *whose)
    rows = int(done.rpartition(" ")[2])
    purged_total.labels(table=chore.table, how=chore.how).inc(rows)
    return rows


async def _ids(connection: Connection, text: str, before: float, batch: int) -> Sequence[UUID]:
    return [row["id"] for row in await connection.fetch(text, before, batch)]
