"""One connection of a mail client: its lines, its share of the sandbox's room, and how a fault breaks it."""

import asyncio

from messenger.sandbox.connections import reset
from messenger.sandbox.faults import Fault
from messenger.sandbox.sandbox import Sandbox

IDLE_SECONDS = 300.0
LONGEST_HANG = 120.0
REPLIES = {
    450: "4.2.0 Mailbox unavailable, try again later",
    451: "4.3.0 Local error in processing, try again later",
    452: "4.3.1 Insufficient system storage",
    421: "4.3.2 Service not available, closing transmission channel",
    535: "5.7.8 Authentication credentials invalid",
    550: "5.1.1 Mailbox unavailable",
    552: "5.2.2 Mailbox full",
    554: "5.7.1 Transaction failed",
}


class ConnectionOver(Exception):
    """The connection is over; nothing more is to be said on it."""


class MailConnection:
    """A connection on which SMTP is spoken."""

    def __init__(self, sandbox: Sandbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sandbox = sandbox
        self._reader = reader
        self._writer = writer
        # What the mail that comes takes of the sandbox's room.
        self._held = 0

    async def _passes(self, stage: str, text: str) -> bool:
        """Return whether the client may go on here; if not, it has been told or cut off."""
        fault = self._sandbox.faults.take("email", stage, text)
        return fault is None or await self._spoil(fault)

    async def _spoil(self, fault: Fault) -> bool:
        match fault.fault:
            case "slow":
                await self._pause(fault.value)
                return True
            case "4xx" | "5xx":
                code = int(fault.value)
                await self._say(f"{code} {REPLIES.get(code, 'As the fault says')}")
                if fault.stage == "connect" or code == 421:  # noqa: PLR2004 - RFC 5321 3.8
                    raise ConnectionOver
                return False
            case "accept_hang":
                await self._pause(LONGEST_HANG)
        if fault.fault == "drop":
            self._writer.transport.abort()
        else:
            reset(self._writer.transport)
        raise ConnectionOver

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._sandbox.stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _take(self, weight: int) -> None:
        """Take so much of the room; end the connection, with a word, if there is not as much."""
        if not self._sandbox.room.take(weight):
            await self._say("421 4.3.1 Too much is sent to the sandbox at once, try again in a moment")
            raise ConnectionOver
        self._held += weight

    def _give(self) -> None:
        """Give back what was taken."""
        self._sandbox.room.give(self._held)
        self._held = 0

    async def _raw_line(self) -> bytes:
        # Only CR LF ends a line: a bare LF before the dot must never end the text (RFC 5321 2.3.8).
        return await asyncio.wait_for(self._reader.readuntil(b"\r\n"), IDLE_SECONDS)

    async def _line(self) -> str:
        return (await self._raw_line()).decode(errors="replace").removesuffix("\r\n")

    async def _say(self, line: str) -> None:
        if self._writer.is_closing():  # some event loops fail to write there as if by a bug
            raise ConnectionResetError
        self._writer.write(line.encode() + b"\r\n")
        await self._writer.drain()
