"""The answers to questions that no waiting call took: each is told its butler once."""

from datetime import timedelta

from shared.db.pool import Connection
from shared.display import question
from shared.storage import notices, questions
from shared.storage.notices import Notice


async def tell_answers(connection: Connection, heard_for: timedelta) -> None:
    """End the questions that nobody answered in time, and tell butlers the answers that none of their calls took.

    The notice has the question's id, so that there is one, however often this is tried.
    """
    await questions.expire_questions(connection)
    for row in await questions.untold(connection, heard_for):
        told = Notice(
            "owner", "answer", question.told_of_answer(row), row["id"], "owner", "high", wakes=True, id=row["id"]
        )
        await notices.add(connection, row["origin_butler"], told)
