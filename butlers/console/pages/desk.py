"""The desk's door: a program on the owner's own screen signs in once, hears which questions are open, and answers.

INVARIANT: a desk's token opens these three addresses and nothing else, and what it answers is an answer to a question:
it approves, allows and changes nothing.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from butlers.console.live import LONGEST_STREAM, to_its_end
from butlers.console.pages.approvals import owner_id
from butlers.console.session import House
from butlers.console.storage import sessions
from butlers.daemon import discovery
from butlers.daemon.directory import Desks
from shared.auth.tokens import CONSOLE, Caller, Unauthorized, mint_desk_token
from shared.db.pool import Record
from shared.display.conversation import exchanges
from shared.display.question import own_words
from shared.errors import InvalidInput, Unavailable
from shared.loops import either
from shared.storage import questions as rows
from shared.storage.turns import with_owner
from shared.telemetry.logs import logger

log = logger("butlers.console")
TOKEN_LASTS: Final = timedelta(days=365)
_LONGEST_BODY: Final = 64 * 1024
_STILL_HERE: Final = 15.0
# So many questions of one butler stand on a screen at a time; the next comes when one of them is over.
AT_ONCE: Final = 3
# So much of what was said before stands in a popup.
MOST_EXCHANGES: Final = 5
Shown = Mapping[str, object]
_SPENT: Final = (
    "This code has been used or has expired. Look at the console's page /settings whether there is a desk that is not "
    "yours, and get a new code with `butlers desk pair`."
)


def _refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status, headers={"WWW-Authenticate": "Bearer"} if status == 401 else None)  # noqa: PLR2004


def _desks(house: House) -> Desks:
    if house.desks is None:
        raise HTTPException(404)
    return house.desks


async def _caller(house: House, request: Request) -> Caller:
    """Return the desk whose token this is; raise Unauthorized for any other token, and for none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    caller = await _desks(house).verifier.verify(token if scheme.lower() == "bearer" else "")
    if caller.kind != "desk":
        raise Unauthorized("This token is not a desk's.")
    return caller


async def _object(request: Request) -> Mapping[str, object]:
    """Return the JSON object that was posted; raise InvalidInput for anything else, or too much of it."""
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > _LONGEST_BODY:
            raise HTTPException(413)
    try:
        found = json.loads(taken)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("This is no JSON object.")
    return found


async def sign_in(house: House, request: Request) -> Response:
    """Give the desk that brings a good code its token, which is shown to nobody else and stored nowhere here."""
    desks = _desks(house)
    try:
        code = (await _object(request)).get("code")
    except InvalidInput as wrong:
        return _refusal(400, wrong.message)
    made = mint_desk_token(desks.signer, TOKEN_LASTS)
    async with house.context.db.work() as connection:
        good = isinstance(code, str) and await sessions.use_link(connection, code, "desk")
        if good:
            await discovery.keep_token(connection, made.jti, CONSOLE, TOKEN_LASTS, kind="desk")
    if not good:
        log.warning("desk code refused")
        return _refusal(403, _SPENT)
    return JSONResponse({"token": made.token})


async def questions(house: House, request: Request) -> Response:
    """Stream the open questions to a desk: all of them, whenever they are others than before."""
    try:
        await _caller(house, request)
    except Unauthorized as refused:
        return _refusal(401, refused.message)
    stream = _changes(house, request)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _changes(house: House, request: Request) -> AsyncIterator[str]:
    """Yield an event for each change, and a sign of life in between, until the token or the console ends."""
    begun = told = house.clock()
    seen: Sequence[Shown] | None = None
    try:
        while house.clock() - begun < LONGEST_STREAM and not house.stopping.is_set():
            ticket = house.context.wakes["cards"].ticket()
            await to_its_end(_caller(house, request))
            found = await to_its_end(_open(house))
            if found != seen:
                seen, told = found, house.clock()
                data = json.dumps({"questions": await to_its_end(_told(house, found))})
                yield f"event: questions\ndata: {data}\n\n"
            elif house.clock() - told >= _STILL_HERE:
                told = house.clock()
                yield ": still here\n\n"
            await either(house.watch.pace, ticket, house.stopping)
    except (Unauthorized, Unavailable):
        return


async def _open(house: House) -> Sequence[Shown]:
    settings = house.context.settings
    async with house.context.db.work() as connection:
        found = await rows.open_questions(connection, of_each=AT_ONCE)
        popups = [row["id"] for row in found if row["popup"]]
        held = await rows.held_back(connection, popups, settings.card_burst, settings.timings.burst_window)
    return [_shown(row, opens=row["id"] not in held) for row in found if row["shown"]]


async def _told(house: House, found: Sequence[Shown]) -> Sequence[Shown]:
    """Return the questions, each whose window may open with what its butler and the owner said last, wherever."""
    told = list[Shown]()
    async with house.context.db.work() as connection:
        for one in found:
            said = list[tuple[str, str]]()
            if one["popup"] or one["allow_text"]:
                turns = await with_owner(connection, str(one["butler"]), str(one["id"]))
                said = exchanges(turns, MOST_EXCHANGES)
            told.append({**one, "history": said})
    return told


def _shown(row: Record, *, opens: bool) -> Shown:
    """Return what a desk is told of a question; a popup that may not open is a notification."""
    return {
        "id": row["id"],
        "butler": row["origin_butler"],
        "title": row["title"],
        "question": row["question"],
        "buttons": list(row["options"]) or [row["action_label"]],
        "allow_text": row["allow_text"],
        "urgency": row["urgency"],
        "popup": row["popup"] and opens,
    }


async def submit(house: House, request: Request) -> Response:
    """Write a desk's answer; say whether it was the first, which alone counts."""
    try:
        await _caller(house, request)
        said = await _object(request)
        given = _given(said)
    except Unauthorized as refused:
        return _refusal(401, refused.message)
    except InvalidInput as wrong:
        return _refusal(400, wrong.message)
    question = str(said.get("id"))
    async with house.context.db.work() as connection:
        if await rows.one(connection, question) is None:
            return _refusal(404, "There is no such question.")
        counted = await rows.answer(connection, question, given, "desk", await owner_id(connection))
    if counted:
        house.context.wakes["cards"]()
        house.context.wakes["settled"](question)
    return JSONResponse({"answered": counted})


def _given(said: Mapping[str, object]) -> rows.Given:
    """Return the answer in what was posted: a button, a text, or that the question was dismissed."""
    match (said.get("option_index"), said.get("text"), said.get("dismissed")):
        case (int(place), None, None) if not isinstance(place, bool) and 0 <= place < 10:  # noqa: PLR2004  # the table's bound
            return rows.Given(option_index=place)
        case (None, str(text), None) if words := own_words(text):
            return rows.Given(text=words)
        case (None, None, True):
            return rows.Given()
    raise InvalidInput("Give `option_index`, `text` or `dismissed`, and one of them only.")
