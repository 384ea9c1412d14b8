"""The sandbox's own API under /api: the journal, the faults, and acting as a person."""

import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from dataclasses import astuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from messenger.sandbox.botapi.checks import MAX_TEXT_UNITS
from messenger.sandbox.botapi.methods import ALL_METHODS
from messenger.sandbox.botapi.shapes import units
from messenger.sandbox.mail.writing import Draft, written
from messenger.sandbox.sandbox import Sandbox, Saying, Upload
from messenger.sandbox.world import Message
from shared.channels.email import SPEC as EMAIL
from shared.errors import InvalidInput

LARGEST_BODY = 1024 * 1024
# Of a journal, in letters.
PIECE = 64 * 1024
LARGEST_NUMBER = (1 << 53) - 1
LONGEST_NAME = 64
NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
KIND = re.compile(r"[a-z]{1,40}/[A-Za-z0-9.+-]{1,80}", re.ASCII)


class NotThere(InvalidInput):
    """What was asked for does not exist."""


class Api:
    """The answers of /api for one sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def routes(self) -> list[Route]:
        """Return the routes of the API."""
        return [
            Route("/api/journal", self.journal),
            Route("/api/faults", self.faults, methods=["GET", "POST", "DELETE"]),
            Route("/api/say", self.say, methods=["POST"]),
            Route("/api/press", self.press, methods=["POST"]),
            Route("/api/react", self.react, methods=["POST"]),
            Route("/api/people", self.people, methods=["POST"]),
        ]

    async def journal(self, request: Request) -> Response:
        """Return the journal's lines with an n above `after`, as JSON lines."""
        after = request.query_params.get("after", "0")
        if not after.isascii() or not after.isdecimal():
            raise InvalidInput("'after' is not a whole number.", "Give the n of the last line you have, or 0.")
        return StreamingResponse(_pieces(self._sandbox, int(after)), media_type="application/x-ndjson")

    async def faults(self, request: Request) -> Response:
        """Arm a fault, list what is armed, or disarm all."""
        board = self._sandbox.faults
        if request.method == "DELETE":
            return JSONResponse({"deleted": board.clear()})
        if request.method == "POST":
            fault = board.arm(await _object(request), ALL_METHODS)
            return JSONResponse(fault.shape(), status_code=201)
        return JSONResponse({"faults": [fault.shape() for fault in board.armed()]})

    async def say(self, request: Request) -> Response:
        """Write a message as a person, or a mail to the butlers."""
        asked = await _object(request)
        if asked.get("channel") == "email":
            mail = self._sandbox.write(writing(self._sandbox, asked))
            return JSONResponse({"message_id": mail.message_id, "uid": mail.uid})
        message = self._sandbox.say(saying(self._sandbox, asked))
        return JSONResponse({"message_id": message.message_id, "update_id": self._last_update()})

    async def press(self, request: Request) -> Response:
        """Press a button as a person, or forge such a press."""
        asked = await _object(request)
        callback_id = self._sandbox.press(on(self._sandbox, asked), _person(asked), _short(asked, "data"))
        return JSONResponse({"callback_query_id": callback_id, "update_id": self._last_update()})

    async def react(self, request: Request) -> Response:
        """Set a reaction as a person."""
        asked = await _object(request)
        self._sandbox.react(on(self._sandbox, asked), _person(asked), _short(asked, "emoji"))
        return JSONResponse({"update_id": self._last_update()})

    async def people(self, request: Request) -> Response:
        """Take the names of people by their numbers."""
        asked = (await _object(request)).get("people")
        if not isinstance(asked, dict) or not all(_is_person(who, name) for who, name in asked.items()):
            raise InvalidInput("'people' is no object of names by number.", 'Send {"people": {"42": "Anna"}}.')
        self._sandbox.name({int(who): name[:LONGEST_NAME] for who, name in asked.items()})
        return JSONResponse({"people": len(asked)})

    def _last_update(self) -> int:
        return self._sandbox.world.next_update_id - 1


def saying(sandbox: Sandbox, asked: Mapping[str, object]) -> Saying:
    """Check and return what a person writes; a private chat has the number of its person, who alone writes there."""
    who, file = _person(asked), sent_along(asked)
    text = _text(asked, "text", "" if file else None)
    chat = _number(asked, "chat", who)
    if chat > 0 and chat != who:
        raise InvalidInput(f"Chat {chat} is private to person {chat}.", "Leave 'chat' out, or use a group's number.")
    if not (text.strip() or file) or units(text) > MAX_TEXT_UNITS:
        raise InvalidInput(f"A message has 1 to {MAX_TEXT_UNITS} characters.", "Change 'text'.")
    reply_to = _number(asked, "reply_to") if asked.get("reply_to") is not None else None
    if reply_to is not None and sandbox.world.message(chat, reply_to) is None:
        raise NotThere(f"There is no message {reply_to} in chat {chat}.", "Look at the journal for its number.")
    token_id, name = _text(asked, "token_id", ""), _text(asked, "name", "")
    return Saying(who, chat, text, reply_to, token_id, name[:LONGEST_NAME], file)


def sent_along(asked: Mapping[str, object]) -> Upload | None:
    """Check and return the file that comes with what a person writes, if one does."""
    given = asked.get("file")
    if given is None:
        return None
    try:
        about = given if isinstance(given, dict) else {}
        name, kind = _text(about, "name"), _text(about, "type", "application/octet-stream")
        body = b64decode(_text(about, "base64"), validate=True)
    except ValueError:
        raise InvalidInput("'base64' is not base64.", "Encode the file's bytes.") from None
    if not NAME.fullmatch(name) or not KIND.fullmatch(kind):
        raise InvalidInput("The file has no usable name or type.", 'Send {"name": "a.pdf", "type": "application/pdf"}.')
    return Upload(name, kind, body)


def writing(sandbox: Sandbox, asked: Mapping[str, object]) -> Mapping[str, str]:
    """Check and return the mail that somebody writes, to the butlers if it does not say to whom."""
    file = sent_along(asked)
    draft = Draft(
        sender=_text(asked, "from"),
        to=_text(asked, "to", EMAIL.sandbox_sender),
        subject=_text(asked, "subject", ""),
        text=_text(asked, "text"),
        name=_text(asked, "name", ""),
        answers=_text(asked, "answers", ""),
        authenticated=asked.get("authenticated") is not False,
        file=astuple(file) if file is not None else None,
    )
    return written(draft, sandbox.clock(), len(sandbox.world.written) + 1)


def on(sandbox: Sandbox, asked: Mapping[str, object]) -> Message:
    """Return the message that a press or a reaction is on."""
    chat, message_id = _number(asked, "chat", _person(asked)), _number(asked, "message_id")
    found = sandbox.world.message(chat, message_id)
    if found is None:
        raise NotThere(f"There is no message {message_id} in chat {chat}.", "Look at the journal for its number.")
    return found


async def _pieces(sandbox: Sandbox, after: int) -> AsyncIterator[str]:
    """Yield the journal's lines in pieces, so that no answer holds them all."""
    piece = ""
    for n in range(after, len(sandbox.lines)):
        piece += json.dumps(sandbox.lines[n]) + "\n"
        if len(piece) > PIECE:
            yield piece
            piece = ""
    yield piece


async def refuse(_request: Request, error: Exception) -> Response:
    """Answer with both sentences of an InvalidInput, as 404 or 400."""
    return JSONResponse({"error": str(error)}, status_code=404 if isinstance(error, NotThere) else 400)


async def _object(request: Request) -> Mapping[str, object]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise InvalidInput("The body is too large.", "Send less than 1 MB.")
    try:
        asked = json.loads(bytes(body))
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise InvalidInput("The body is no JSON object.", "Send one, as application/json.")
    return asked


def _is_person(who: object, name: object) -> bool:
    digits = isinstance(who, str) and who.isascii() and who.isdecimal() and len(who) <= len(str(LARGEST_NUMBER))
    return digits and isinstance(name, str) and bool(name.strip())


def _person(asked: Mapping[str, object]) -> int:
    who = _number(asked, "as")
    if who <= 0:
        raise InvalidInput("'as' is not a person's number.", "People have positive numbers.")
    return who


def _number(asked: Mapping[str, object], key: str, default: int | None = None) -> int:
    value = asked.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value == 0 or abs(value) > LARGEST_NUMBER:
        raise InvalidInput(f"'{key}' is not a whole number.", "Give one, as a JSON number.")
    return value


def _short(asked: Mapping[str, object], key: str) -> str:
    value = _text(asked, key)
    if len(value) > MAX_TEXT_UNITS:
        raise InvalidInput(f"'{key}' is too long.", f"Give at most {MAX_TEXT_UNITS} characters.")
    return value


def _text(asked: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = asked.get(key, default)
    if not isinstance(value, str):
        raise InvalidInput(f"'{key}' is not a text.", "Give one, as a JSON string.")
    return value
