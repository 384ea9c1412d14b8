"""Sessions: the runs of runtime instances, from the queue to their end; a session's row ends it, and its token with it.

The only writer of shared.sessions. Who runs a session holds a lease by the database's clock, and its attempt is the
fencing token: a holder whose lease ran out writes nothing more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias
from uuid import UUID

from shared.contracts import AskedSession
from shared.db.decoding import storable
from shared.db.pool import Connection, Record, tell
from shared.errors import Forbidden, InvalidInput
from shared.storage.session_list import BY_OTHERS, BY_OWNER, TELLS, WAS_ASKED

TOPIC: Final = "sessions"
# The cause of a session that the owner began by writing to the bot.
MESSAGE: Final = "message"
# The cause of a session that another butler asked begins with this, and ends with that butler's name.
BUTLER: Final = "butler:"
# Words beyond this are cut off; the process that says more is ended by its runtime.
MOST_SAID: Final = 100_000
LONGEST_OUTCOME: Final = 4000
LONGEST_PROMPT: Final = 20_000
MOST_ATTEMPTS: Final = 3
# How many sessions of one butler a chain of prompts may begin that butlers pass on to each other.
MOST_IN_CHAIN: Final = 5
Ending: TypeAlias = Literal["done", "failed", "stopped", "limit", "lost"]


ENQUEUE = """
INSERT INTO shared.sessions (id, butler, cause, prompt, request_context, occurrence_id) VALUES ($1, $2, $3, $4, $5, $6)
"""


async def enqueue(  # noqa: PLR0913  # what a session is made of
    connection: Connection,
    *,
    session_id: str,
    butler: str,
    cause: str,
    prompt: str,
    request_context: Mapping[str, object] | None = None,
    occurrence_id: str | None = None,
) -> None:
    """Put a session in the queue of its butler; raise InvalidInput if the prompt is empty or too long."""
    _demand_prompt(prompt)
    occurrence = UUID(occurrence_id) if occurrence_id else None
    await connection.execute(ENQUEUE, UUID(session_id), butler, cause, prompt, request_context, occurrence)
    await tell(connection, TOPIC, butler)


def _demand_prompt(prompt: str) -> None:
    if not prompt.strip() or len(prompt) > LONGEST_PROMPT or storable(prompt) != prompt:
        raise InvalidInput(
            f"A prompt has 1 to {LONGEST_PROMPT} characters, none of them incomplete or NUL.",
            "Say in plain text what to do.",
        )


IN_CHAIN = "SELECT count(*) FROM shared.sessions WHERE butler = $1 AND chain = $2 AND id <> $3"
# INVARIANT: it is put in now, or is that very one already: whoever knows the session that asks, and the words, knows
# the id. Of one asker the caller takes one after the other.
ENQUEUE_ASKED = """
WITH put AS (INSERT INTO shared.sessions (id, butler, cause, prompt, occurrence_id, asked_by, chain, depth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING id)
SELECT EXISTS (SELECT FROM put)
    OR EXISTS (SELECT FROM shared.sessions WHERE id = $1 AND butler = $2 AND asked_by = $6)
"""


async def enqueue_asked(connection: Connection, asked: AskedSession, butler: str, prompt: str) -> None:
    """Put what another butler asks into the queue of this one, once.

    Raises Forbidden where its chain is too long, and where another session has that id already.
    """
    _demand_prompt(prompt)
    if await connection.fetchval(IN_CHAIN, butler, asked.chain, asked.session_id) >= MOST_IN_CHAIN:
        raise Forbidden(
            f"{butler} was asked {MOST_IN_CHAIN} times for one and the same matter already.", "End with what you know."
        )
    about = (f"{BUTLER}{asked.asked_by}", prompt, asked.occurrence_id, asked.asked_by, asked.chain, asked.depth)
    if not await connection.fetchval(ENQUEUE_ASKED, asked.session_id, butler, *about):
        raise Forbidden(f"A session of that id is none that {asked.asked_by} asked of {butler}.", "Ask in other words.")
    await tell(connection, TOPIC, butler)


# The message's id is the session's, so that it begins one, however often it is handed over.
ENQUEUE_MESSAGE = """
INSERT INTO shared.sessions (id, butler, cause, prompt, request_context, owners_words)
VALUES ($1, $2, 'message', $3, $4, $5) ON CONFLICT DO NOTHING
"""


async def enqueue_message(
    connection: Connection,
    message_id: str,
    butler: str,
    text: str,
    request_context: Mapping[str, object],
    owners_words: str | None,
) -> None:
    """Put what the owner, or None somebody else, wrote in the queue of its butler, once; a text too long is cut."""
    await connection.execute(
        ENQUEUE_MESSAGE, UUID(message_id), butler, text[:LONGEST_PROMPT], request_context, owners_words
    )
    await tell(connection, TOPIC, butler)


TOLD_INSTEAD = """
UPDATE shared.sessions SET status = 'done', outcome = $3, ended_at = clock_timestamp()
WHERE id = $1 AND butler = $2 AND status = 'waiting' AND stop_asked_at IS NULL RETURNING id
"""


async def told_instead(connection: Connection, butler: str, message_id: str, session_id: str) -> bool:
    """End the session that waits for the owner's words, told to one that runs; return false if it waits no more."""
    said = f"It was told to the session {session_id} while that ran."
    return await connection.fetchval(TOLD_INSTEAD, UUID(message_id), butler, said) is not None


TOLD_IN_VAIN = """
UPDATE shared.sessions SET status = 'waiting', outcome = NULL, ended_at = NULL
WHERE butler = $1 AND id = ANY ($2) AND cause = 'message' AND status = 'done' AND attempt = 0
"""


async def told_in_vain(connection: Connection, butler: str, message_ids: Sequence[str]) -> None:
    """Let the owner's words begin their own session after all: the one that was told them broke off."""
    await connection.execute(TOLD_IN_VAIN, butler, [UUID(one) for one in message_ids])
    await tell(connection, TOPIC, butler)


CHANGE = """
UPDATE shared.sessions SET prompt = $2 WHERE id = $1 AND status = 'waiting' AND cause = 'message' AND attempt = 0
"""


async def change_prompt(connection: Connection, message_id: str, text: str) -> bool:
    """Have a session that has not begun asked what its message says now, if that is anything; return whether it is."""
    changes = bool(text.strip())
    return changes and await connection.execute(CHANGE, UUID(message_id), text[:LONGEST_PROMPT]) == "UPDATE 1"


@dataclass(frozen=True, slots=True)
class Needs:
    """What of a butler's sessions has to be seen to: some wait, some are held by nobody, some are to be told of."""

    waiting: bool
    lapsed: bool
    untold: bool
    # Something waits for which a session may be begun.
    noticed: bool = False
    # In so many seconds words are heard out that are not yet.
    soon: float | None = None


# Its holder writes its lease; one that ends further off was written while the database's clock was ahead. What runs
# without one, no honest process has begun. Without a prompt it is a program's outside, which holds nothing.
UNHELD = """status = 'running' AND prompt IS NOT NULL
    AND (lease_until BETWEEN clock_timestamp() AND clock_timestamp() + 2 * $3::interval) IS NOT TRUE"""
# Whoever writes may change it at once, or forward what it speaks of: a session hears that too before it begins.
FRESH = "cause = 'message' AND created_at BETWEEN clock_timestamp() - $2::interval AND clock_timestamp()"
NEEDS = f"""
SELECT coalesce(bool_or(status = 'waiting'), false) AS waiting,
    extract(epoch FROM min(created_at) FILTER (WHERE status = 'waiting' AND {FRESH}) + $2::interval
        - clock_timestamp())::float8 AS soon,
    coalesce(bool_or({UNHELD}), false) AS lapsed,
    coalesce(bool_or(untold IS NOT NULL), false) AS untold,
    EXISTS (SELECT FROM shared.notices WHERE butler = $1 AND state = 'queued' AND (wakes OR again)
        AND expires_at > clock_timestamp()) AS noticed
FROM shared.sessions WHERE butler = $1 AND (ended_at IS NULL OR untold IS NOT NULL)
"""


async def needs(connection: Connection, butler: str, together: timedelta, lease: timedelta) -> Needs:
    """Return what has to be seen to; one look, whatever there is. What somebody wrote is heard out for `together`."""
    row = await connection.fetchrow(NEEDS, butler, together, lease)
    return Needs(**row) if row else Needs(waiting=False, lapsed=False, untold=False)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a butler's sessions are run: by what, how many at once, and within which limits."""

    runtime: str
    holder: str
    at_once: int
    lease: timedelta
    limits: Mapping[str, float]
    dollars_per_day: float
    # Marks what is genuine of the notices that the session is shown; it is shown none without.
    nonce: str | None = None
    # Whether the runtime reads them, and whether it may be told the owner's words there.
    hears: bool = False
    is_told: bool = True
    # Whether nothing is claimed but what the owner wrote or asked, and whose that is to be.
    owners_only: bool = False
    # How long what somebody wrote is heard out before it is claimed.
    together: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session that we run: what it is asked, our attempt, its limits now, and what earlier attempts used."""

    id: str
    butler: str
    cause: str
    prompt: str
    attempt: int
    limits: Mapping[str, float]
    used: Mapping[str, float]
    nonce: str | None = None
    hears: bool = False


# The owner's words before those of whom the owner lets ask, these before all that butlers and schedules ask; and first
# of all whose they are to be.
TURN: Final = """
cause <> 'classify', cause NOT IN ('message', 'ask', 'notice'), NOT (cause = 'ask' OR owners_words IS NOT NULL),
    created_at, id
"""
# Whoever claims locks the same rows in the same order, which nothing changes: processes take turns, and each counts
# what the others run.
OPEN = f"""
SELECT id, status, stop_asked_at IS NOT NULL AS stopped, hears,
    cause IN ('ask', 'classify') OR owners_words IS NOT NULL AS owners, {FRESH} AS fresh,
    {BY_OTHERS} AS others,
    cause = 'message' AND EXISTS (SELECT FROM shared.notices n WHERE n.id = sessions.id AND n.butler = sessions.butler
        AND n.state = 'queued' AND n.source = 'owner') AS offered
FROM shared.sessions
WHERE butler = $1 AND ended_at IS NULL AND prompt IS NOT NULL AND (status = 'running' OR id IN (
    SELECT id FROM shared.sessions WHERE butler = $1 AND status = 'waiting' AND prompt IS NOT NULL
    ORDER BY {TURN} LIMIT 50))
ORDER BY {TURN} FOR NO KEY UPDATE
"""
# INVARIANT: the owner's newest words are never refused, whoever filled the queue, and others' end none of them. The
# owner is told once a day. As many at once as one look has time for; nobody else's locks are waited for. What the
# classifier was asked a minute ago nobody waits for.
CROWDED = """
WITH left_out AS (SELECT id, created_at, cause FROM shared.sessions WHERE status = 'waiting' AND id IN (
        SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY owners_words IS NULL
                ORDER BY created_at DESC, id DESC) AS place
            FROM shared.sessions WHERE butler = $1 AND status = 'waiting' AND cause = 'message') newest_first
        WHERE place > 100
        UNION ALL SELECT id FROM shared.sessions WHERE butler = $1 AND status = 'waiting' AND cause = 'classify'
            AND created_at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp())
    LIMIT 20000 FOR NO KEY UPDATE SKIP LOCKED),
ended AS (UPDATE shared.sessions s SET status = 'stopped', ended_at = clock_timestamp(),
    outcome = CASE o.cause WHEN 'message' THEN $2 ELSE 'It was asked too long ago.' END,
    untold = CASE WHEN s.id = (SELECT id FROM left_out WHERE cause = 'message'
            ORDER BY created_at DESC, id DESC LIMIT 1)
        AND NOT EXISTS (SELECT FROM shared.sessions e WHERE e.butler = $1 AND e.outcome = $2
            AND e.ended_at > clock_timestamp() - interval '1 day') THEN $2 END
    FROM left_out o WHERE s.id = o.id AND s.butler = $1 RETURNING s.id)
SELECT EXISTS (SELECT FROM ended)
"""


async def _in_turn(connection: Connection, butler: str, together: timedelta) -> Sequence[Record]:
    """Return what runs and what waits, locked, the next first; nothing while the oldest of too many messages end."""
    rows = await connection.fetch(OPEN, butler, together)
    said = f"More than 100 messages waited for {butler}, so the oldest began no session."
    return [] if await connection.fetchval(CROWDED, butler, said) else rows


# INVARIANT: what runs has its place whenever it began; what is over counts for one day, and none that lies ahead. Of a
# day's dollars ($3) half is left to what the owner began; the rest ($2) has the other half.
LEFT_TO_SPEND = f"""
SELECT least(a_day - coalesce(sum(spent), 0),
        CASE WHEN $2 THEN a_day / 2 - coalesce(sum(spent) FILTER (WHERE theirs), 0) END)::float8,
    least(a_day - coalesce(sum(promised), 0),
        CASE WHEN $2 THEN a_day / 2 - coalesce(sum(promised) FILTER (WHERE theirs), 0) END)::float8,
    count(*) FILTER (WHERE running)
FROM (SELECT $3::float8::numeric AS a_day) day LEFT JOIN (
    SELECT CASE WHEN status <> 'running' THEN round((used ->> 'dollars')::numeric, 9) END AS spent,
        round(((CASE WHEN status = 'running' THEN limits ELSE used END) ->> 'dollars')::numeric, 9) AS promised,
        status = 'running' AND prompt IS NOT NULL AS running, {BY_OTHERS} AS theirs
    FROM shared.sessions WHERE butler = $1 AND ((ended_at IS NULL AND status = 'running' AND prompt IS NOT NULL)
        OR began_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp())) counted ON true
GROUP BY a_day
"""
# INVARIANT: only a session that works for the owner is told the owner's words in place of one of their own: one that
# works for somebody else, or that an agent set for itself, could make something else of them. A session that classifies
# is told nothing but its question.
CLAIM = f"""
UPDATE shared.sessions SET status = 'running', began_at = clock_timestamp(), runtime = $3, holder = $4,
    lease_until = clock_timestamp() + $5::interval, limits = $6, attempt = attempt + 1, nonce = coalesce(nonce, $7),
    hears = $8::boolean AND $9::boolean AND {BY_OWNER}
WHERE id = $1 AND butler = $2
RETURNING id::text, butler, cause, prompt, attempt, limits, used, nonce, $8::boolean AND cause <> 'classify' AS hears
"""
# Of what spent dollars keep from beginning the owner is told once a day, and each time of words of the owner's own.
OVER = f"""
UPDATE shared.sessions SET status = $3, outcome = $4, ended_at = clock_timestamp(),
    untold = CASE WHEN cause IN ('message', 'ask') OR NOT EXISTS (SELECT FROM shared.sessions e WHERE e.butler = $2
        AND e.status = 'limit' AND e.began_at IS NULL AND e.outcome = $4
        AND e.ended_at > clock_timestamp() - interval '1 day')
        THEN left($5::text || {WAS_ASKED}, 1000) END
WHERE id = $1 AND butler = $2 AND status = 'waiting'
"""


async def claim_waiting(connection: Connection, butler: str, terms: Terms) -> Claimed | None:
    """Claim the session whose turn it is, if fewer than `at_once` run; None if there is none for now.

    What was stopped while it waited ends here, and so do the oldest of too many messages, and what finds the dollars
    of the day spent, of which half is for what the owner began. The owner's words stay where they are while a session
    runs that may be told them.
    """
    rows = await _in_turn(connection, butler, terms.together)
    for row in rows:
        if row["status"] == "waiting" and row["stopped"]:
            await connection.execute(OVER, row["id"], butler, "stopped", "It was stopped before it began.", None)
    heard = any(row["status"] == "running" and row["hears"] for row in rows)
    waiting = [
        row
        for row in rows
        if row["status"] == "waiting" and not row["stopped"] and not row["fresh"] and not (heard and row["offered"])
        if row["owners"] or not terms.owners_only
    ]
    # Counted after the lock, as what came and was begun since the look may not be among its rows.
    theirs = bool(waiting) and waiting[0]["others"]
    unspent, unpromised, running = await connection.fetchrow(LEFT_TO_SPEND, butler, theirs, terms.dollars_per_day) or (
        0.0,
        0.0,
        0,
    )
    if not waiting or running >= terms.at_once:
        return None
    if unspent <= 0:
        why = f"The {terms.dollars_per_day:g} dollars a day of {butler} are spent" + (
            ", as far as what you did not begin may." if theirs else "."
        )
        await connection.execute(OVER, waiting[0]["id"], butler, "limit", why, f"{why} A session was not begun.")
        return None
    if unpromised <= 0:
        return None
    limits = {**terms.limits, "dollars": min(terms.limits["dollars"], unpromised)}
    held = (terms.runtime, terms.holder, terms.lease, limits, terms.nonce, terms.hears, terms.is_told)
    found = await connection.fetchrow(CLAIM, waiting[0]["id"], butler, *held)
    return Claimed(**found) if found else None


RENEW = """
UPDATE shared.sessions SET lease_until = clock_timestamp() + $4::interval
WHERE id = $1 AND butler = $2 AND attempt = $3 AND lease_until > clock_timestamp()
RETURNING stop_asked_at IS NOT NULL AS stopped
"""


async def keep_lease(connection: Connection, claimed: Claimed, lease: timedelta) -> Literal["ours", "stop", "gone"]:
    """Renew the lease; return `stop` if somebody asked for that, and `gone` if the session is not ours any more."""
    stopped = await connection.fetchval(RENEW, UUID(claimed.id), claimed.butler, claimed.attempt, lease)
    return "gone" if stopped is None else "stop" if stopped else "ours"


NOTE = f"""
UPDATE shared.sessions SET used = $4,
    said = left(said || CASE WHEN said = '' OR $5 = '' THEN '' ELSE E'\\n' END || $5, {MOST_SAID})
WHERE id = $1 AND butler = $2 AND attempt = $3 AND status = 'running'
"""


async def note(connection: Connection, claimed: Claimed, used: Mapping[str, float], said: str = "") -> None:
    """Write what the session has used by now, and add what it said, which begins a line."""
    await connection.execute(NOTE, UUID(claimed.id), claimed.butler, claimed.attempt, used, storable(said))


@dataclass(frozen=True, slots=True)
class Course:
    """How a session went: whether a person asked it, in a terminal or by a message, and whether it told anybody."""

    by_hand: bool
    asked: bool
    spoke: bool
    steps: int
    told: bool

    @property
    def told_nobody(self) -> bool:
        """Return whether somebody who asked is left without an answer."""
        answered = self.told or (self.by_hand and self.spoke)
        return (self.by_hand or self.asked) and not answered


COUNT = """
UPDATE shared.sessions SET steps = steps + 1 WHERE id = $1 AND butler = $2 AND status = 'running' RETURNING steps
"""


async def count_step(connection: Connection, butler: str, session_id: str) -> int:
    """Return the number of the session's next call, before that begins; raise Forbidden if the session has ended.

    INVARIANT: this locks the row in which a session is ended or put back. So one whose end is written calls nothing
    more, and one that has begun a call is never begun again.
    """
    number: int | None = await connection.fetchval(COUNT, UUID(session_id), butler)
    if number is None:
        raise Forbidden("This session has ended.", "It calls nothing more.")
    return number


TOLD = f"""
SELECT s.cause = 'ask' AS by_hand, s.request_context IS NOT NULL AS asked, s.said <> '' AS spoke, s.steps,
    EXISTS (SELECT FROM shared.session_steps t WHERE t.session_id = s.id AND t.butler = s.butler AND {TELLS}) AS told
FROM shared.sessions s WHERE s.id = $1 AND s.butler = $2 AND s.attempt = $3 AND s.status = 'running' FOR UPDATE
"""


async def course(connection: Connection, claimed: Claimed) -> Course | None:
    """Return how our session went, locked for its end; None if it is not ours any more."""
    row = await connection.fetchrow(TOLD, UUID(claimed.id), claimed.butler, claimed.attempt)
    return Course(**row) if row else None


@dataclass(frozen=True, slots=True)
class Finish:
    """How a session ends, and what the owner has to be told of it."""

    status: Ending
    outcome: str
    untold: str | None = None
    told_nobody: bool = False


FINISH = """
UPDATE shared.sessions SET status = $4, outcome = $5, untold = $6, told_nobody = $7, ended_at = clock_timestamp(),
    holder = NULL, lease_until = NULL
WHERE id = $1 AND butler = $2 AND attempt = $3 AND status = 'running' RETURNING cause
"""


async def finish(connection: Connection, claimed: Claimed, as_: Finish) -> None:
    """End our session, and its token with it."""
    ended = (
        as_.status,
        storable(as_.outcome)[:LONGEST_OUTCOME],
        as_.untold and storable(as_.untold)[:1000],
        as_.told_nobody,
    )
    if await connection.fetchval(FINISH, UUID(claimed.id), claimed.butler, claimed.attempt, *ended) == "classify":
        # The Switchboard waits for what a classifier says.
        await tell(connection, "inbox")


UNRUN = f"""
UPDATE shared.sessions SET status = 'failed', outcome = $2, ended_at = clock_timestamp(), holder = NULL,
    lease_until = NULL, untold = left($2 || ' A session was ended.' || {WAS_ASKED}, 1000)
WHERE butler = $1 AND prompt IS NOT NULL AND (status = 'waiting' OR {UNHELD}) RETURNING id
"""


async def end_unrun(connection: Connection, butler: str, why: str, lease: timedelta) -> int:
    """End what waits, and what nobody holds any more, of a butler whose sessions nobody runs; return how many.

    The owner is told.
    """
    return len(await connection.fetch(UNRUN, butler, why, lease))


LAPSED = f"""
SELECT id::text, butler, cause, prompt, attempt, limits, used, nonce, hears FROM shared.sessions
WHERE butler = $1 AND {UNHELD} ORDER BY created_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
"""


async def lapsed(connection: Connection, butler: str, lease: timedelta, most: int = 20) -> Sequence[Claimed]:
    """Return some of the sessions whose holder fell silent, locked."""
    return [Claimed(**row) for row in await connection.fetch(LAPSED, butler, most, lease)]


AGAIN = """
UPDATE shared.sessions SET status = 'waiting', began_at = NULL, holder = NULL, lease_until = NULL, untold = $4
WHERE id = $1 AND butler = $2 AND attempt = $3 AND status = 'running' AND steps = 0 AND stop_asked_at IS NULL
"""


async def put_back(connection: Connection, claimed: Claimed, untold: str | None) -> bool:
    """Put a session back in its place in the queue; return false if it has called a tool, or was tried often.

    INVARIANT: what has called a tool is never begun again by a machine.
    """
    if claimed.attempt >= MOST_ATTEMPTS:
        return False
    ours = (UUID(claimed.id), claimed.butler, claimed.attempt)
    return await connection.execute(AGAIN, *ours, untold and storable(untold)) == "UPDATE 1"


UNTOLD = """
SELECT id::text, attempt, status, untold FROM shared.sessions WHERE butler = $1 AND untold IS NOT NULL
ORDER BY created_at LIMIT 10
"""


async def untold(connection: Connection, butler: str) -> Sequence[Record]:
    """Return what the owner has to be told: id, attempt, status, untold."""
    return await connection.fetch(UNTOLD, butler)


TOLD_NOW = "UPDATE shared.sessions SET untold = NULL WHERE id = $1 AND butler = $2 AND untold = $3"


async def note_told(connection: Connection, butler: str, session_id: str, said: str) -> None:
    """Note that this sentence is a message now."""
    await connection.execute(TOLD_NOW, UUID(session_id), butler, said)


STOP = """
UPDATE shared.sessions SET stop_asked_at = clock_timestamp() WHERE id = $1 AND ended_at IS NULL RETURNING butler
"""


async def ask_to_stop(connection: Connection, session_id: str) -> bool:
    """Ask whoever runs the session to stop it; return false if it has ended."""
    butler = await connection.fetchval(STOP, UUID(session_id))
    if butler is not None:
        await tell(connection, TOPIC, butler)
    return butler is not None
