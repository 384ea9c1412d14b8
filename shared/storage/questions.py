"""Questions of butlers to the owner, and the answers: the only writer of shared.questions.

The row is the truth, whichever surface shows it. It is answered by one statement on a row that is open, so that of
several answers the first one counts. An answer is text for its butler: no rule, approval or gated tool reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal
from uuid import UUID

from shared.db.pool import Connection, Record, tell
from shared.hashing import id_in, that_begin
from shared.storage.pending_actions import Event, record
from shared.storage.tool_calls import REALM

Urgency = Literal["low", "normal", "high"]
Surface = Literal["telegram", "console", "cli", "desk"]
MOST_OPEN: Final = 100
"""The most open questions of one butler; the database leaves out further ones."""

# Where it may be asked is said of the house, as no message is behind it; whose popups open, the owner's files say.
ROW: Final = f"""
SELECT id::text, origin_butler, title, question, options, action_label, allow_text, urgency, about, asked_at, show_at,
    popup AND EXISTS (SELECT FROM shared.popups p WHERE p.butler = origin_butler) AS popup, remind_at, until,
    expires_at, choice, option_index, typed, surface, closed_at, told, {REALM} AS realm,
    CASE WHEN status = 'open' AND expires_at <= clock_timestamp() THEN 'expired' ELSE status END AS status,
    status = 'open' AND expires_at > clock_timestamp() AS open, show_at <= clock_timestamp() AS shown,
    extract(epoch FROM clock_timestamp() - asked_at)::float8 AS age,
    coalesce(surface IS NOT NULL AND closed_at > until, false) AS late
FROM shared.questions
"""


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """What a butler asks; without options its one button says `action_label`."""

    id: str
    origin: str
    title: str
    question: str
    options: Sequence[str] = ()
    action_label: str = "OK"
    allow_text: bool = False
    urgency: Urgency = "normal"
    about: Mapping[str, str] = field(default_factory=dict)
    # Whether a desk opens a popup for it at once.
    popup: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """How long a question lasts, is heard and is held back, how long its caller waits, and when it comes again."""

    lasts: timedelta
    heard: timedelta
    waits: timedelta | None = None
    reminds: timedelta | None = None
    held: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Given:
    """What the owner answered: the button of that place, words of the owner's own, or neither, which dismisses it."""

    option_index: int | None = None
    text: str | None = None


ASK: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, allow_text, urgency, about,
    expires_at, until, heard_until, remind_at, show_at, popup)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp() + $10::interval, clock_timestamp() + $11::interval,
    CASE WHEN $11::interval IS NOT NULL THEN clock_timestamp() + $12::interval END,
    clock_timestamp() + $13::interval, clock_timestamp() + $14::interval, $15)
"""


async def ask(connection: Connection, new: NewQuestion, times: Times) -> bool:
    """Write the question down and wake whoever shows it; return False if its butler has too many open."""
    words = (new.title, new.question, list(new.options), new.action_label, new.allow_text, new.urgency, new.about)
    spans = (times.lasts, times.waits, times.heard, times.reminds, times.held, new.popup)
    if not (await connection.execute(ASK, UUID(new.id), new.origin, *words, *spans)).endswith(" 1"):
        return False
    await record(connection, Event("question_asked", new.origin), question=new.id)
    await tell(connection, "cards")
    return True


# Of two options the second is what closing means. Without options there is one button, and its place is the first.
ANSWER: Final = """
UPDATE shared.questions SET closed_at = clock_timestamp(), surface = $4, answered_by = $5, typed = $3::text IS NOT NULL,
    option_index = CASE WHEN cardinality(options) > 0 THEN $2::int END,
    choice = CASE WHEN $3::text IS NOT NULL THEN $3::text WHEN $2::int IS NULL THEN NULL
        WHEN cardinality(options) = 0 THEN action_label ELSE options[$2::int + 1] END,
    status = CASE WHEN $3::text IS NULL AND ($2::int IS NULL OR ($2::int = 1 AND cardinality(options) = 2))
        THEN 'dismissed' ELSE 'accepted' END
WHERE id = $1 AND status = 'open' AND expires_at > clock_timestamp()
    AND ($2::int IS NULL OR ($3::text IS NULL AND $2::int BETWEEN 0 AND greatest(cardinality(options), 1) - 1))
    AND ($3::text IS NULL OR allow_text)
RETURNING status, origin_butler
"""


async def answer(connection: Connection, question_id: str, given: Given, surface: Surface, by: str) -> bool:
    """Write the owner's answer, if nobody has answered yet and it is one of those offered; return whether this did.

    `by` is the owner's contact id. Whoever waits in this process is to be woken when this is committed: by
    `wakes["cards"]()` and `wakes["settled"](question_id)`.
    """
    row = await connection.fetchrow(ANSWER, UUID(question_id), given.option_index, given.text, surface, UUID(by))
    if row is None:
        return False
    event = Event("question_answered", "owner")
    await record(connection, event, question=question_id, surface=surface, contact=by, response=row["status"])
    await tell(connection, "cards")
    return True


WITHDRAW: Final = """
UPDATE shared.questions SET status = 'withdrawn', closed_at = clock_timestamp()
WHERE id = $1 AND origin_butler = $2 AND status = 'open' AND expires_at > clock_timestamp() RETURNING id
"""


async def withdraw_question(connection: Connection, question_id: str, butler: str) -> bool:
    """Take back this butler's question, if it is open; return whether this did."""
    if await connection.fetchval(WITHDRAW, id_in(question_id), butler) is None:
        return False
    await record(connection, Event("question_withdrawn", butler), question=question_id)
    await tell(connection, "cards")
    return True


WITHDRAW_ALL: Final = """
UPDATE shared.questions SET status = 'withdrawn', closed_at = clock_timestamp()
WHERE origin_butler = $1 AND status = 'open' AND expires_at > clock_timestamp() RETURNING id::text
"""


async def withdraw_all(connection: Connection, butler: str) -> int:
    """Take back the open questions of a butler that is gone for good, in the owner's name; return how many."""
    found = await connection.fetch(WITHDRAW_ALL, butler)
    for row in found:
        await record(connection, Event("question_withdrawn", "owner"), question=row["id"])
    await tell(connection, "cards")
    return len(found)


ONE: Final = f"{ROW} WHERE id = $1"


async def one(connection: Connection, question_id: str) -> Record | None:
    """Return a question as it stands; None for what is none."""
    return await connection.fetchrow(ONE, id_in(question_id))


async def own_question(connection: Connection, question_id: str, butler: str) -> Record | None:
    """Return a question of this butler; None for any other's, and for what is none."""
    found = await one(connection, question_id)
    return found if found is not None and found["origin_butler"] == butler else None


# INVARIANT: butlers take turns, so that no number of questions of one hides another's.
OPEN: Final = f"""
SELECT * FROM (SELECT q.*, row_number() OVER (PARTITION BY origin_butler
        ORDER BY NOT shown, array_position(ARRAY['high', 'normal', 'low'], urgency), asked_at, id) AS turn
    FROM ({ROW} WHERE status = 'open' AND expires_at > clock_timestamp()) q) turns
WHERE turn <= $2
ORDER BY turn, array_position(ARRAY['high', 'normal', 'low'], urgency), asked_at, id LIMIT $1
"""


async def open_questions(connection: Connection, most: int = 100, of_each: int = MOST_OPEN) -> list[Record]:
    """Return what waits for the owner's answer, each butler's first, then its second; of one's own the urgent first.

    What is not `shown` yet is to make no sound.
    """
    return list(await connection.fetch(OPEN, most, of_each))


# Popups beyond that number are not read, however many somebody asks for.
HELD_BACK: Final = """
SELECT q.id::text FROM shared.questions q
WHERE q.id = ANY ($1) AND (q.asked_at <= clock_timestamp() - $3::interval OR EXISTS (
    SELECT FROM shared.questions earlier WHERE earlier.origin_butler = q.origin_butler AND earlier.popup
        AND earlier.status <> 'accepted' AND earlier.asked_at > q.asked_at - $3::interval
        AND (earlier.asked_at, earlier.id) < (q.asked_at, q.id) OFFSET $2 - 1))
"""


async def held_back(connection: Connection, ids: Sequence[str], burst: int, window: timedelta) -> Sequence[str]:
    """Return which of these popups open no window any more, or are one too many for their butler.

    The first were asked before the window; before the others `burst` were asked within it, and not answered.
    """
    return [row["id"] for row in await connection.fetch(HELD_BACK, [UUID(one) for one in ids], burst, window)]


BEGINS: Final = "SELECT id::text FROM shared.questions q WHERE id BETWEEN $1 AND $2 ORDER BY q.id LIMIT 2"


async def ids_of(connection: Connection, begins: str) -> list[str]:
    """Return the ids of questions that begin so, two at most."""
    between = that_begin(begins)
    return [] if between is None else [row["id"] for row in await connection.fetch(BEGINS, *between)]


LATEST: Final = f"{ROW} ORDER BY asked_at DESC, id LIMIT $1"


async def latest_questions(connection: Connection, most: int = 100) -> list[Record]:
    """Return questions however they stand, the newest first."""
    return list(await connection.fetch(LATEST, most))


HEARD: Final = """
UPDATE shared.questions SET heard_until = clock_timestamp() + $3::interval
WHERE id = ANY ($1) AND origin_butler = $2 AND status = 'open'
"""


async def heard(connection: Connection, ids: Sequence[str], butler: str, lasts: timedelta) -> None:
    """Note that somebody waits for the answers to these questions of this butler."""
    await connection.execute(HEARD, [UUID(one) for one in ids], butler, lasts)


HEARD_OUT: Final = """
UPDATE shared.questions SET heard_until = NULL, told = told OR ($3 AND surface IS NOT NULL)
WHERE id = $1 AND origin_butler = $2
"""


async def heard_out(connection: Connection, question_id: str, butler: str, *, taken: bool) -> None:
    """Note that a call waits no more; an answer that it has `taken` becomes no notice."""
    await connection.execute(HEARD_OUT, UUID(question_id), butler, taken)


ANSWERED: Final = """
SELECT id::text FROM shared.questions
WHERE id = ANY ($1) AND origin_butler = $2 AND (status <> 'open' OR expires_at <= clock_timestamp())
"""


async def closed_of(connection: Connection, ids: Sequence[str], butler: str) -> list[str]:
    """Return which of these questions of this butler are not open any more."""
    return [row["id"] for row in await connection.fetch(ANSWERED, [UUID(one) for one in ids], butler)]


# Here and below butlers take turns, and what one holds is left for later. A `heard_until` further off than it is ever
# set was written by a clock that was wrong.
UNTOLD: Final = """
UPDATE shared.questions SET told = true WHERE id IN (
    SELECT q.id FROM (
        SELECT id, row_number() OVER (PARTITION BY origin_butler ORDER BY closed_at) AS turn FROM shared.questions
        WHERE surface IS NOT NULL AND NOT told
            AND coalesce(heard_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + $1::interval, true)) answered
    JOIN shared.questions q USING (id) WHERE NOT q.told ORDER BY turn LIMIT 50 FOR UPDATE OF q SKIP LOCKED)
RETURNING id::text, origin_butler, title, question, status, choice, typed
"""


async def untold(connection: Connection, heard_for: timedelta) -> list[Record]:
    """Take the answers that nobody waits for, each once: they are for the caller to make notices of."""
    return list(await connection.fetch(UNTOLD, heard_for))


EXPIRE: Final = """
UPDATE shared.questions SET status = 'expired', closed_at = clock_timestamp()
WHERE id IN (
    SELECT q.id FROM (
        SELECT id, row_number() OVER (PARTITION BY origin_butler ORDER BY expires_at) AS turn FROM shared.questions
        WHERE status = 'open' AND expires_at <= clock_timestamp()) late
    JOIN shared.questions q USING (id) WHERE q.status = 'open' ORDER BY turn LIMIT 100 FOR UPDATE OF q SKIP LOCKED)
"""


async def expire_questions(connection: Connection) -> None:
    """End the questions whose time has passed."""
    await connection.execute(EXPIRE)
