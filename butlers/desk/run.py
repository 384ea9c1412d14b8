"""The desk at work: open questions stand as notifications, and what is answered elsewhere goes away again."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

from butlers.desk.console import Console, Question
from butlers.desk.desktop import MOST_BUTTONS, Closed, Note, Notifier, Urgency
from butlers.desk.popup import Popup, PopupEnd, Popups
from shared.auth.tokens import Unauthorized
from shared.display.question import LONGEST_ANSWER
from shared.errors import InvalidInput, Unavailable

WRITE: Final = "Write an answer"
_BREATH: Final = 1.0
_LONGEST_BREATH: Final = 30.0


class Asked(Protocol):
    """Where questions come from and answers go: the console."""

    @property
    def url(self) -> str:
        """Its address, for a person."""

    def questions(self) -> AsyncGenerator[Sequence[Question], None]:
        """Yield all open questions whenever they change."""

    async def answer(self, question: str, given: Mapping[str, object]) -> bool:
        """Answer; return whether this was the first answer."""


class Following:
    """The questions that stand on this screen, each with what waits for its answer."""

    def __init__(self, console: Asked, notifier: Notifier, popups: Popups, say: Callable[[str], None]) -> None:
        self._console = console
        self._notifier = notifier
        self._popups = popups
        self._say = say
        self._standing: dict[str, asyncio.Task[None]] = {}
        self._typing = asyncio.Lock()

    async def run(self) -> None:
        """Follow the console until we are cancelled; raise Unauthorized once it does not know this desk."""
        breath = _BREATH
        try:
            while True:
                try:
                    async for found in self._console.questions():
                        breath = _BREATH
                        await self._stand(found)
                except Unavailable as away:
                    self._say(str(away))
                await asyncio.sleep(breath)
                breath = min(breath * 2, _LONGEST_BREATH)
        finally:
            await self._stand(())
            await self._notifier.close()

    async def _stand(self, found: Sequence[Question]) -> None:
        """Show what is new, and take away what is open no longer."""
        open_now = {one.id for one in found}
        for question, task in list(self._standing.items()):
            if question not in open_now:
                # Where we are cancelled here, we come again; to cancel it twice would leave its window behind.
                if not task.cancelling():
                    task.cancel()
                await asyncio.wait([task])
                del self._standing[question]
        for one in found:
            if one.id not in self._standing:
                self._standing[one.id] = asyncio.create_task(self._ask(one))

    async def _ask(self, question: Question) -> None:
        """Show one question until it is answered here; where nothing can be shown, try again later."""
        breath = _BREATH
        while True:
            try:
                given = await self._answer_to(question)
                if given is not None and await self._delivered(question, given):
                    return None
            except Unavailable as away:
                self._say(str(away))
            except Unauthorized as refused:
                return self._say(str(refused))
            await asyncio.sleep(breath)
            breath = min(breath * 2, _LONGEST_BREATH)

    async def _answer_to(self, question: Question) -> Mapping[str, object] | None:
        """Return what the person answered, or None for nothing yet."""
        if question.popup and (given := popped(await self._window(question))) is not None:
            return given
        buttons = [*question.buttons, *([WRITE] if question.allow_text else [])]
        try:
            closed = await self._notifier.show(note_of(question, buttons, self._console.url))
        except asyncio.CancelledError:
            await asyncio.shield(self._notifier.withdraw(question.id))
            raise
        if closed.how in {"plain", "expired"}:
            await asyncio.Event().wait()  # it was seen, and stays open elsewhere
        if closed.how == "pressed" and question.allow_text and closed.button == len(buttons) - 1:
            return await self._typed(question)
        return given_by(closed)

    async def _typed(self, question: Question) -> Mapping[str, object] | None:
        """Ask in a popup, one at a time; a person who closes it has not answered."""
        ended = await self._window(question)
        return {"text": ended.text} if ended.how == "submitted" else None

    async def _window(self, question: Question) -> PopupEnd:
        async with self._typing:
            title = f"{question.butler}: {question.title}"
            shown = Popup(question.question, title, history=question.history, question=True, longest=LONGEST_ANSWER)
            return await self._popups.show(shown)

    async def _delivered(self, question: Question, given: Mapping[str, object]) -> bool:
        """Bring the answer to the console until it has it, or refuses it: nobody is asked to say it twice."""
        while True:
            try:
                counted = await self._console.answer(question.id, given)
            except InvalidInput as refused:
                self._say(str(refused))
                return False
            except Unavailable as away:
                self._say(str(away))
                await asyncio.sleep(_BREATH)
                continue
            if not counted:
                self._say(f"The question `{question.title}` was answered elsewhere or is over.")
            return True


def note_of(question: Question, buttons: Sequence[str], console: str) -> Note:
    """Return the notification of a question: its title names the butler and says that it is a question."""
    where = f"Answer at {console}/questions/{question.id} or in Telegram."
    if len(buttons) > MOST_BUTTONS:
        where = f"{' | '.join(question.buttons)}\n{where}"
    urgency = cast("Urgency", question.urgency if question.urgency in {"low", "normal", "high"} else "normal")
    return Note(
        question.id, f"Question from {question.butler}: {question.title}", question.question, buttons, where, urgency
    )


def given_by(closed: Closed) -> Mapping[str, object] | None:
    """Return the answer that this end is: a button, or that it was waved away; nothing where nobody did anything."""
    if closed.how == "pressed":
        return {"option_index": closed.button}
    return {"dismissed": True} if closed.how == "dismissed" else None


def popped(ended: PopupEnd) -> Mapping[str, object] | None:
    """Return the answer that is the end of a popup which opened by itself; None where no window could stand."""
    match ended.how:
        case "submitted":
            return {"text": ended.text}
        case "empty":  # its one button is OK: the house lets no other popup in
            return {"option_index": 0}
        case "cancelled" | "dismissed":
            return {"dismissed": True}
        case _:
            return None


async def follow(console: Console, notifier: Notifier, say: Callable[[str], None]) -> None:
    """Run the desk of one screen."""
    popups = Popups()
    try:
        await Following(console, notifier, popups, say).run()
    finally:
        with suppress(OSError):
            await popups.close("superseded")
