"""The page of a butler's question: the owner reads it and answers. No answer approves anything."""

from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.console.pages.approvals import owner_id
from butlers.console.queries.questions import one_question
from butlers.console.session import House, Session, demand_csrf, demand_id, page, read_form
from shared.db.pool import after_commit
from shared.display.question import own_words
from shared.errors import InvalidInput
from shared.storage import questions
from shared.storage.questions import Given

LONGEST_NUMBER: Final = 2
LATE: Final = "Nothing was changed: this is how it stands."


async def show(house: House, request: Request, session: Session) -> Response:
    """Show one question, whole."""
    return await _page(house, request, session)


async def submit(house: House, request: Request, session: Session) -> Response:
    """Write the owner's answer, if it is the first, or show how the question stands instead."""
    form = await read_form(request)
    demand_csrf(house, session, form)
    question_id, given = demand_id(request), _given(form.get("choice", ""), form.get("text", ""))
    context = house.context
    async with context.db.work() as connection:
        counts = await questions.answer(connection, question_id, given, "console", await owner_id(connection))
        for topic, key in (("cards", ""), ("settled", question_id)) if counts else ():
            after_commit(connection, partial(context.wakes[topic], key))
    if counts:
        return RedirectResponse(f"/questions/{question_id}", status_code=303)
    return await _page(house, request, session, notice=LATE)


def _given(choice: str, text: str) -> Given:
    """Return what the form answers; raise InvalidInput for what is no answer."""
    if choice == "dismiss":
        return Given()
    if choice == "text" and (words := own_words(text)):
        return Given(text=words)
    if choice.isdecimal() and len(choice) <= LONGEST_NUMBER:
        return Given(int(choice))
    raise InvalidInput("The form holds no answer.", "Write one, or choose one of those offered.")


async def _page(house: House, request: Request, session: Session, *, notice: str = "") -> Response:
    async with house.context.db.work() as connection:
        question = await one_question(connection, demand_id(request))
    if question is None:
        raise HTTPException(404)
    status = 409 if notice else 200
    return await page(house, request, session, "question.html", status=status, question=question, notice=notice)
