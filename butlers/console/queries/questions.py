"""What the pages show of butlers' questions, read by SELECT only; every word of others is shown as data."""

from dataclasses import dataclass

from butlers.console.labels import ago, excerpt
from shared.db.pool import Connection, Record
from shared.display import question as display
from shared.display.visible import in_line, visible
from shared.storage import questions


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """One question, as its page shows it."""

    id: str
    butler: str
    head: str
    title: str
    about: str
    text: str
    # What can be chosen, each with its place.
    choices: tuple[tuple[int, str], ...]
    allow_text: bool
    urgency: str
    open: bool
    outcome: str
    asked: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One question, as a list shows it."""

    id: str
    butler: str
    title: str
    excerpt: str
    urgency: str
    asked: str


async def open_questions(connection: Connection) -> tuple[Listed, ...]:
    """Read the questions that wait for the owner's answer, the urgent first."""
    return tuple(map(_listed, await questions.open_questions(connection)))


async def one_question(connection: Connection, question_id: str) -> OpenQuestion | None:
    """Read one question; None if there is none."""
    row = await questions.one(connection, question_id)
    return None if row is None else _shown(row)


def _listed(row: Record) -> Listed:
    return Listed(
        id=row["id"],
        butler=visible(row["origin_butler"]),
        title=in_line(row["title"]),
        excerpt=excerpt(row["question"]),
        urgency=row["urgency"],
        asked=ago(row["age"]),
    )


def _shown(row: Record) -> OpenQuestion:
    return OpenQuestion(
        id=row["id"],
        butler=visible(row["origin_butler"]),
        head=display.asks(row["origin_butler"], row["id"]),
        title=in_line(row["title"]),
        about=in_line(display.place_of(row)),
        text=visible(row["question"]),
        choices=tuple(enumerate(in_line(label) for label in display.labels(row))),
        allow_text=row["allow_text"],
        urgency=row["urgency"],
        open=row["open"],
        outcome="" if row["open"] else display.what_became(row),
        asked=ago(row["age"]),
        expires_at=f"{row['expires_at']:%Y-%m-%d %H:%M} UTC",
    )
