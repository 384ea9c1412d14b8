"""The owner's word on what may have arrived, or on what did not go: the only writer of shared.resolutions.

A row says what the owner wants; the Messenger, which alone writes deliveries, carries it out and notes what came of it.
"""

from dataclasses import astuple, dataclass
from typing import Final, Literal
from uuid import UUID

from shared.db.pool import Connection, Record, tell
from shared.model import Status

Word = Literal["arrived", "again", "leave", "retry"]
Outcome = Literal["done", "late"]
ANSWERS: Final[tuple[Word, ...]] = ("arrived", "again", "leave")
# The ends after which the owner may have a delivery tried again, if nothing of it can have left.
UNSENT: Final[tuple[Status, ...]] = ("failed", "expired", "dead")
DONE: Final[dict[str, str]] = {
    "arrived": "You confirmed that it arrived.",
    "again": "You had it sent again.",
    "leave": "You left it unconfirmed. It is not sent again.",
    "retry": "It will be tried again if it is still allowed.",
}
LATE: Final = "Nothing was changed: it has already been answered, or its outcome is now known."
NOTED: Final = "Saved. It takes effect as soon as the Messenger runs."

RESTORED: Final = "a backup was restored in which it was waiting to be sent; it may have been sent since."

WHY: Final = {
    "timeout": "the provider gave no answer in time",
    "connection_lost": "the connection was lost before the answer",
    "server_error": "the provider had an internal error",
    "unreadable": "the provider's answer could not be read",
    "lease_lost": "the process that was sending it stopped responding",
    "provider_rejected": "the provider refused it",
    "rate_limited": "the provider asked to wait",
    "unauthorized": "the provider rejected the login",
    "unavailable": "the provider could not be reached or was unavailable",
}


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the owner says of one delivery, as it stood after that attempt, and by which surface."""

    delivery_id: str
    attempt: int
    word: Word
    by: str
    surface: str


ASK: Final = """
INSERT INTO shared.resolutions (delivery_id, attempt, word, by, surface) VALUES ($1, $2, $3, $4, $5) RETURNING id::text
"""


async def ask(connection: Connection, given: Resolution) -> str:
    """Write the owner's word down and wake the Messenger; return the row's id."""
    delivery_id, attempt, word, by, surface = astuple(given)
    made: str = await connection.fetchval(ASK, UUID(delivery_id), attempt, word, UUID(by), surface)
    await tell(connection, "cards")
    return made


WAITING: Final = """
SELECT id::text, delivery_id::text, attempt, word, by::text, surface FROM shared.resolutions
WHERE handled_at IS NULL ORDER BY at, id LIMIT 50
"""


async def waiting(connection: Connection) -> list[Record]:
    """Return the words that nobody has carried out yet, oldest first: id and the fields of a Resolution."""
    return list(await connection.fetch(WAITING))


ONE: Final = """
SELECT id::text, delivery_id::text, attempt, word, by::text, surface FROM shared.resolutions WHERE id = $1
"""


async def one(connection: Connection, resolution_id: str) -> Record:
    """Return the word with this id, which was written before."""
    row = await connection.fetchrow(ONE, UUID(resolution_id))
    assert row is not None  # noqa: S101  # words are never deleted
    return row


HANDLED: Final = """
UPDATE shared.resolutions SET handled_at = clock_timestamp(), outcome = $2 WHERE id = $1 AND handled_at IS NULL
"""


async def handled(connection: Connection, resolution_id: str, outcome: Outcome) -> None:
    """Note what came of the word."""
    await connection.execute(HANDLED, UUID(resolution_id), outcome)


LET_GO: Final = """
UPDATE shared.resolutions SET handled_at = clock_timestamp(), outcome = 'late' WHERE handled_at IS NULL
"""


async def let_go(connection: Connection) -> None:
    """End every word that waits without carrying it out: what it speaks of may have gone on since."""
    await connection.execute(LET_GO)


OUTCOME: Final = "SELECT outcome FROM shared.resolutions WHERE id = $1"


async def outcome(connection: Connection, resolution_id: str) -> Outcome | None:
    """Return what came of the word, or None while no Messenger has looked."""
    found: Outcome | None = await connection.fetchval(OUTCOME, UUID(resolution_id))
    return found


def said(word: str, found: Outcome | None) -> str:
    """Return what the owner is told of the word's outcome."""
    if found is None:
        return NOTED
    return DONE[word] if found == "done" else LATE


def evidence(row: Record) -> str:
    """Say what is known of an attempt.

    The row holds reason (of its delivery), n, parts, tried, marked_at and outcome.
    """
    if row["reason"] == "restored":
        return f"What is known: {RESTORED}"
    if row["marked_at"] is None:
        return "Nothing more is known."
    part = f", part {row['n']} of {row['parts']}" if row["parts"] > 1 else ""
    why = WHY.get(row["outcome"] or "", "it ended without an answer")
    at = f"{row['marked_at']:%Y-%m-%d %H:%M:%S} UTC"
    return f"What is known: attempt {row['tried']}{part} was sent at {at}, and {why}."
