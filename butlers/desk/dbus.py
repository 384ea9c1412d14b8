"""Notifications on Linux, by the session bus (Desktop Notifications Specification 1.2), told apart by how they end."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Final

from butlers.desk.desktop import MOST_BUTTONS, Closed, Ending, Note, full_text
from shared.display.visible import in_line, shortened
from shared.errors import Unavailable

if TYPE_CHECKING:
    from dbus_fast import Message
    from dbus_fast.aio import MessageBus

NAME: Final = "org.freedesktop.Notifications"
PATH: Final = "/org/freedesktop/Notifications"
_DBUS: Final = "org.freedesktop.DBus"
# The reason of NotificationClosed; whatever else a server says tells nothing.
REASONS: Final[Mapping[int, Ending]] = {1: "expired", 2: "dismissed", 3: "withdrawn"}
_URGENCY: Final = {"low": 0, "normal": 1, "high": 2}
_WITHIN: Final = 2.0
# Endings that came before we knew the number of the notification they are of.
_MOST_EARLY: Final = 64
_LONGEST_TITLE: Final = 200
_LONGEST_BODY: Final = 2000
_LONGEST_LABEL: Final = 60


class Dbus:
    """The notifications of one session; connects when the first is shown, and again after the bus was lost."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._bus: MessageBus | None = None
        self._can = frozenset[str]()
        self._server = ""
        self._open: dict[int, asyncio.Future[Closed]] = {}
        self._numbers: dict[str, int] = {}
        self._early: OrderedDict[int, Closed] = OrderedDict()
        self._turn = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def show(self, note: Note) -> Closed:
        """Show it and wait for its end, by the server's word or by our own clock; raise Unavailable where none is."""
        number = await self._notify(note)
        ended = self._open[number] = asyncio.get_running_loop().create_future()
        self._numbers[note.key] = number
        if (early := self._early.pop(number, None)) is not None:
            ended.set_result(early)
        try:
            return await asyncio.wait_for(asyncio.shield(ended), note.timeout)
        except TimeoutError:
            return Closed("expired")
        finally:
            self._open.pop(number, None)
            if self._numbers.get(note.key) == number:
                del self._numbers[note.key]
            if not ended.done():
                await asyncio.shield(self._close(number))

    async def withdraw(self, key: str) -> None:
        """Close it, if it is there still."""
        number = self._numbers.get(key)
        if number is not None:
            self._settle(number, Closed("withdrawn"))
            await self._close(number)

    async def close(self) -> None:
        """Let go of the bus."""
        if self._bus is not None:
            self._bus.disconnect()
        if self._watching is not None:
            await asyncio.wait([self._watching], timeout=_WITHIN)

    async def _notify(self, note: Note) -> int:
        from dbus_fast import Variant  # noqa: PLC0415  # only a desk has it

        await self._connect()
        has_buttons = "actions" in self._can and len(note.buttons) <= MOST_BUTTONS
        body = shortened(full_text(note, has_buttons=has_buttons), _LONGEST_BODY)
        pressed = [part for n, label in enumerate(note.buttons) for part in (str(n), label[:_LONGEST_LABEL])]
        [number] = await self._call(
            "Notify",
            "susssasa{sv}i",
            "Butlers",
            0,
            "",
            shortened(in_line(note.title), _LONGEST_TITLE),
            escape(_plain(body), quote=False) if "body-markup" in self._can else _plain(body),
            [in_line(one) for one in pressed] if has_buttons else [],
            {"urgency": Variant("y", _URGENCY[note.urgency])},
            0 if note.timeout is None else int(note.timeout * 1000),
        )
        if not isinstance(number, int):
            raise _unavailable("it answers with no number")
        return number

    async def _close(self, number: int) -> None:
        with suppress(Unavailable):
            await self._call("CloseNotification", "u", number)

    async def _connect(self) -> None:
        from dbus_fast import AuthError, DBusError  # noqa: PLC0415  # only a desk has it
        from dbus_fast.aio import MessageBus  # noqa: PLC0415  # the same

        async with self._turn:
            if self._bus is not None and self._bus.connected:
                return
            try:
                async with asyncio.timeout(_WITHIN):
                    self._bus = await MessageBus(bus_address=self._address).connect()
            except (OSError, ValueError, EOFError, AuthError, DBusError) as refused:
                raise _unavailable(str(refused) or type(refused).__name__) from None
            bus = self._bus
            bus.add_message_handler(self._heard)
            for rule in (f"type='signal',sender='{NAME}'", f"type='signal',sender='{_DBUS}',arg0='{NAME}'"):
                await self._call("AddMatch", "s", rule, to=_DBUS, path="/org/freedesktop/DBus")
            [can] = await self._call("GetCapabilities", "")
            self._can = frozenset(can if isinstance(can, list) else ())
            self._watching = asyncio.create_task(self._watch(bus))

    async def _call(self, member: str, signature: str, *body: object, to: str = NAME, path: str = PATH) -> list[object]:
        from dbus_fast import Message, MessageType  # noqa: PLC0415  # only a desk has it

        if self._bus is None or not self._bus.connected:
            raise _unavailable("the connection is lost")
        asked = Message(destination=to, path=path, interface=to, member=member, signature=signature, body=list(body))
        try:
            async with asyncio.timeout(_WITHIN):
                answer = await self._bus.call(asked)
        except (TimeoutError, OSError, EOFError) as lost:
            raise _unavailable(f"it does not answer {member} ({type(lost).__name__})") from None
        if answer.message_type is not MessageType.METHOD_RETURN:
            raise _unavailable(str(answer.error_name))
        if to == NAME:
            self._server = str(answer.sender)
        return list(answer.body) or [None]

    def _heard(self, message: "Message") -> None:
        """Take a signal: a button, an end, or that the server itself has gone."""
        if message.member == "NameOwnerChanged" and message.sender == _DBUS and message.body[1] and self._bus:
            self._all_gone()
            self._bus.disconnect()  # the next notification asks the new one what it can
        if message.sender != self._server:
            return
        match (message.member, *message.body):
            case ("ActionInvoked", int(number), str(key)):
                if key.isascii() and key.isdecimal() and int(key) < MOST_BUTTONS:
                    self._settle(number, Closed("pressed", int(key)))
            case ("NotificationClosed", int(number), int(reason)):
                self._settle(number, Closed(REASONS.get(reason, "gone")))

    def _settle(self, number: int, closed: Closed) -> None:
        """Keep the first that is said of it: a press is followed by a close."""
        ended = self._open.get(number)
        if ended is not None and not ended.done():
            ended.set_result(closed)
        elif ended is None:
            self._early.setdefault(number, closed)
            while len(self._early) > _MOST_EARLY:
                self._early.popitem(last=False)

    def _all_gone(self) -> None:
        self._early.clear()
        for ended in self._open.values():
            if not ended.done():
                ended.set_result(Closed("gone"))

    async def _watch(self, bus: "MessageBus") -> None:
        with suppress(OSError, EOFError):
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        self._all_gone()


def _plain(text: str) -> str:
    """Return the text as the bus takes it: no NUL, no half of a character."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"The desktop shows no notifications: {why}.", "Answer on the console or in Telegram.")
