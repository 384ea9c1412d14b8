"""The pages: chats as on a phone, and the mails; they work without JavaScript and are live with it."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from messenger.sandbox.botapi.methods import ALL_METHODS
from messenger.sandbox.faults import BREAKAGES
from messenger.sandbox.sandbox import Sandbox
from messenger.sandbox.web import api, views
from shared.errors import InvalidInput

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
HEARTBEAT = 15.0
SEE_OTHER = 303
MOST_TIMES = 100
# No person or group has a number with more digits.
NUMBER = re.compile(r"-?[1-9][0-9]{0,15}", re.ASCII)


class Pages:
    """The pages of one sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route("/", self.home),
            Route("/chats", self.open),
            Route("/chats/{chat}", self.chat),
            Route("/chats/{chat}/say", self.say, methods=["POST"]),
            Route("/chats/{chat}/press", self.press, methods=["POST"]),
            Route("/mail", self.mail),
            Route("/mail/write", self.write, methods=["POST"]),
            Route("/break", self.breakages),
            Route("/break", self.arm, methods=["POST"]),
            Route("/events", self.events),
        ]

    async def home(self, request: Request) -> Response:
        """Show the chats, and on a wide screen the owner's beside them, or that with the newest message."""
        newest = next((message.chat for message in self._sandbox.world.chats()), None)
        return self._thread(request, self._sandbox.owner_chat or newest, "home")

    async def open(self, request: Request) -> Response:
        """Redirect from the form that asks for a number to that chat."""
        return _to_chat(_chat_number(request.query_params.get("chat", "")))

    async def chat(self, request: Request) -> Response:
        """Show one chat as on the phone of its person."""
        return self._thread(request, _chat_number(request.path_params["chat"]), "chat")

    async def say(self, request: Request) -> Response:
        """Write a message as the person."""
        chat = _chat_number(request.path_params["chat"])
        async with request.form() as form:
            asked = {"as": _form_number(form.get("as")) or chat, "chat": chat, "text": _typed(form.get("text"))}
        self._sandbox.say(api.saying(self._sandbox, asked))
        return _to_chat(chat)

    async def press(self, request: Request) -> Response:
        """Press a button as the person."""
        chat = _chat_number(request.path_params["chat"])
        async with request.form() as form:
            who = _form_number(form.get("as")) or chat
            asked = {"as": who, "chat": chat, "message_id": _form_number(form.get("message_id"))}
            data = str(form.get("data", ""))
        self._sandbox.press(api.on(self._sandbox, asked), who, data)
        return _to_chat(chat)

    async def mail(self, request: Request) -> Response:
        """Show the mails, and the form by which somebody writes one."""
        world, asked = self._sandbox.world, request.query_params
        known = {"letters": views.letters(world), "draft": views.draft(world, asked.get("answer", ""))}
        return self._page("mail.html", known | {"place": "mail", "error": asked.get("error", "")})

    async def write(self, request: Request) -> Response:
        """Write a mail as somebody."""
        async with request.form() as form:
            asked = {name: _typed(form.get(name)) for name in ("from", "to", "subject", "text", "name", "answers")}
            vouched = form.get("authenticated") == "yes"
        self._sandbox.write(api.writing(self._sandbox, {**asked, "authenticated": vouched}))
        return RedirectResponse("/mail", status_code=SEE_OTHER)

    async def breakages(self, request: Request) -> Response:
        """Show what a person can break, and what is broken now."""
        armed = views.broken(self._sandbox.faults.armed())
        known = {"place": "break", "error": request.query_params.get("error", ""), "armed": armed}
        return self._page("break.html", known | {"breakages": BREAKAGES, "most": MOST_TIMES})

    async def arm(self, request: Request) -> Response:
        """Break what was chosen, so many times, or repair everything."""
        async with request.form() as form:
            chosen = next((one for one in BREAKAGES if one.key == form.get("what")), None)
            times, board = _form_number(form.get("times")), self._sandbox.faults
            spared = str(self._sandbox.owner_chat or "") if form.get("spared") == "yes" else ""
            repair = form.get("do") == "repair"
        if repair:
            board.clear()
        elif chosen is None or not 0 < times <= MOST_TIMES:
            raise InvalidInput("That breaks nothing.", f"Choose what to break, and 1 to {MOST_TIMES} times.")
        else:
            board.arm(chosen.asked(times, spared), ALL_METHODS)
        self._sandbox.bell.ring()
        return RedirectResponse("/break", status_code=SEE_OTHER)

    async def events(self, _request: Request) -> Response:
        """Stream when a page has to be read again."""
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(_ticks(self._sandbox), media_type="text/event-stream", headers=headers)

    def _thread(self, request: Request, chat: int | None, place: str) -> Response:
        world = self._sandbox.world
        group = chat is not None and chat < 0
        known = {
            "place": place,
            "error": request.query_params.get("error", ""),
            "who": None if chat is None else views.who(world, chat),
            "days": [] if chat is None else views.thread(world, chat),
            "writers": [views.who(world, number) for number in sorted(world.people)] if group else [],
            "current": chat,
        }
        return self._page("chat.html", known)

    def _page(self, template: str, known: Mapping[str, object]) -> Response:
        sandbox, current = self._sandbox, known.get("current")
        chats = views.chat_list(sandbox.world, sandbox.owner_chat, current if isinstance(current, int) else None)
        shown = {
            "chats": chats,
            "mails": len(sandbox.world.mails) + len(sandbox.world.written),
            "faults": len(sandbox.faults.armed()),
            "version": sandbox.version,
            **known,
        }
        html = TEMPLATES.get_template(template).render(shown)
        return HTMLResponse(html, headers={"Cache-Control": "no-store"})


def _typed(value: object) -> str:
    """Return what was typed into a text field; browsers send its line ends as CR LF, here they are LF."""
    return str(value or "").replace("\r\n", "\n")


async def _ticks(sandbox: Sandbox) -> AsyncIterator[str]:
    """Yield the world's version now and whenever it has changed, as server-sent events."""
    shown = -1
    while not sandbox.stopping.is_set():
        ring = sandbox.bell.next_ring()
        yield f"data: {sandbox.version}\n\n" if sandbox.version != shown else ": still here\n\n"
        shown = sandbox.version
        await asyncio.wait({ring}, timeout=HEARTBEAT)


def _to_chat(chat: int) -> Response:
    return RedirectResponse(f"/chats/{chat}", status_code=SEE_OTHER)


def refuse_on_page(request: Request, error: InvalidInput) -> Response:
    """Redirect to the page that the form stood on, with the two sentences."""
    chat = str(request.path_params.get("chat", ""))
    own = {"/break": "/break", "/mail/write": "/mail"}
    place = f"/chats/{chat}" if _is_number(chat) else own.get(request.url.path, "/")
    return RedirectResponse(f"{place}?{urlencode({'error': str(error)})}", status_code=SEE_OTHER)


def _chat_number(text: str) -> int:
    if not _is_number(text):
        raise InvalidInput("That is no chat's number.", "People have positive numbers, groups negative ones.")
    return int(text)


def _form_number(value: object) -> int:
    return int(value) if isinstance(value, str) and _is_number(value) else 0


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip()) is not None
