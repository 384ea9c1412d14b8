"""The mailbox of what people write in the sandbox: as much of IMAP as a reader of one mailbox speaks (RFC 3501, 2177).

There is no login: it greets whoever connects as known. It can be read and never changed, and a mail's number is its
place in the file.
"""

import asyncio
import re
from datetime import UTC
from typing import Any, Final

from messenger.sandbox.connections import MOST_MAIL
from messenger.sandbox.sandbox import Sandbox
from messenger.sandbox.world import Written

LONGEST_LINE: Final = 8192
IDLE_SECONDS: Final = 1800.0
TAKE_SECONDS: Final = 30.0
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SEARCH: Final = re.compile(r"SEARCH UID (\d{1,9}):\*(?: SINCE \S+)?", re.IGNORECASE | re.ASCII)
NAMED: Final = re.compile(r'SEARCH HEADER MESSAGE-ID "([^"\\]{1,900})"', re.IGNORECASE | re.ASCII)
FETCH: Final = re.compile(r"FETCH (\d{1,9}) \(INTERNALDATE BODY\.PEEK\[\]<0\.(\d{1,9})>\)", re.IGNORECASE | re.ASCII)


class Conversation:
    """One IMAP connection, from the greeting to the end."""

    def __init__(self, sandbox: Sandbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sandbox = sandbox
        self._reader = reader
        self._writer = writer
        # What the answer that goes takes of the sandbox's room.
        self._held = 0

    async def run(self) -> None:
        """Answer until the client logs out or goes away."""
        self._sandbox.endings.add(self._writer.close)
        try:
            self._writer.write(b"* PREAUTH [CAPABILITY IMAP4rev1 IDLE] sandbox\r\n")
            while await self._command(await self._line()):
                async with asyncio.timeout(TAKE_SECONDS):
                    await self._writer.drain()
                self._give()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._give()
            self._sandbox.endings.discard(self._writer.close)
            self._writer.close()

    async def _command(self, line: str) -> bool:
        """Answer one command; return whether there may be another."""
        tag, _, rest = line.partition(" ")
        verb, _, argument = rest.partition(" ")
        match verb.upper():
            case "CAPABILITY":
                self._say("* CAPABILITY IMAP4rev1 IDLE")
            case "NOOP":
                pass
            case "EXAMINE" | "SELECT":
                self._examine()
            case "UID" if (uids := self._searched(argument)) is not None:
                self._say(" ".join(["* SEARCH", *uids]))
            case "UID" if found := FETCH.fullmatch(argument):
                self._fetch(int(found[1]), int(found[2]))
            case "IDLE":
                await self._idle()
            case "LOGOUT":
                self._say("* BYE", f"{tag} OK done")
                return False
            case _:
                self._say(f"{tag} BAD not known here")
                return True
        self._say(f"{tag} OK done")
        return True

    def _searched(self, argument: str) -> list[str] | None:
        """Return the numbers of the mails from one on, or of those with a Message-ID; None if it is no such search."""
        written = self._sandbox.world.written
        if found := SEARCH.fullmatch(argument):
            return [str(mail.uid) for mail in written if mail.uid >= int(found[1])]
        if found := NAMED.fullmatch(argument):
            return [str(mail.uid) for mail in written if mail.message_id == found[1]]
        return None

    def _examine(self) -> None:
        # Another file numbers its mails anew, and its first one came at another time.
        written = self._sandbox.world.written
        validity = int(written[0].at.timestamp()) if written else 1
        self._say(f"* {len(written)} EXISTS", f"* OK [UIDVALIDITY {validity}] x")

    def _fetch(self, uid: int, most: int) -> None:
        written = self._sandbox.world.written
        if not 0 < uid <= len(written):
            return
        mail = written[uid - 1]
        if not self._sandbox.room.take(len(mail.raw)):
            raise ConnectionResetError
        self._held += len(mail.raw)
        piece = mail.raw.encode(errors="surrogateescape")[:most]
        said = f'* {uid} FETCH (UID {uid} INTERNALDATE "{_internal(mail)}" BODY[]<0> {{{len(piece)}}}\r\n'
        self._writer.write(said.encode() + piece + b")\r\n")

    async def _idle(self) -> None:
        """Say when another mail is there, until the client has had enough."""
        known = len(self._sandbox.world.written)
        self._say("+ idling")
        done = asyncio.ensure_future(self._line())
        try:
            while not done.done() and not self._sandbox.stopping.is_set():
                ring = self._sandbox.bell.next_ring()
                if len(self._sandbox.world.written) != known:
                    known = len(self._sandbox.world.written)
                    self._say(f"* {known} EXISTS")
                both: list[asyncio.Future[Any]] = [done, ring]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await done
        finally:
            done.cancel()

    def _give(self) -> None:
        self._sandbox.room.give(self._held)
        self._held = 0

    async def _line(self) -> str:
        line = await asyncio.wait_for(self._reader.readuntil(b"\r\n"), IDLE_SECONDS)
        return line.decode("ascii", "replace").removesuffix("\r\n")

    def _say(self, *lines: str) -> None:
        if self._writer.is_closing():  # some event loops fail to write there as if by a bug
            raise ConnectionResetError
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())


def _internal(mail: Written) -> str:
    at = mail.at.astimezone(UTC)
    return f"{at.day:02d}-{MONTHS[at.month - 1]}-{at:%Y %H:%M:%S} +0000"


async def start_imap(sandbox: Sandbox, host: str, port: int) -> asyncio.Server:
    """Hand out the mails that people write, in the running loop; port 0 takes a free one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(sandbox.endings) >= MOST_MAIL:
            writer.write(b"* BYE Too many connections are open here, try again in a moment\r\n")
            writer.close()
            return
        await Conversation(sandbox, reader, writer).run()

    return await asyncio.start_server(serve, host, port, limit=LONGEST_LINE)
