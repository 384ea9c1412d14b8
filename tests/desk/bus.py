"""A session bus of its own, and a notification server on it that does as its script says."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from butlers.desk.dbus import NAME, PATH


@contextmanager
def session_bus() -> Iterator[str]:
    """Start a bus; its address."""
    with subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address=1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as daemon:  # fmt: skip
        try:
            assert daemon.stdout is not None
            yield daemon.stdout.readline().strip()
        finally:
            daemon.kill()


@dataclass
class Scripted:
    """A notification server: what it says it can, what it was asked, and what it is made to tell."""

    bus: MessageBus
    can: Sequence[str]
    shown: list[list[object]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    answers: bool = True

    def take(self, message: Message) -> Message | None:
        if message.message_type is not MessageType.METHOD_CALL or message.interface != NAME or not self.answers:
            return None
        if message.member == "GetCapabilities":
            return Message.new_method_return(message, "as", [list(self.can)])
        if message.member == "Notify":
            self.shown.append(list(message.body))
            return Message.new_method_return(message, "u", [len(self.shown)])
        self.closed.append(message.body[0])
        return Message.new_method_return(message)

    def press(self, number: int, key: str) -> None:
        self.bus.send(Message.new_signal(PATH, NAME, "ActionInvoked", "us", [number, key]))

    def end(self, number: int, reason: int) -> None:
        self.bus.send(Message.new_signal(PATH, NAME, "NotificationClosed", "uu", [number, reason]))

    async def until_shown(self, count: int = 1) -> None:
        async with asyncio.timeout(3):
            while len(self.shown) < count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def scripted(address: str, *can: str) -> AsyncIterator[Scripted]:
    bus = await MessageBus(bus_address=address).connect()
    server = Scripted(bus, can)
    bus.add_message_handler(server.take)
    await bus.request_name(NAME)
    try:
        yield server
    finally:
        bus.disconnect()
