"""The mail sink: an SMTP server that accepts every well-formed mail and breaks where a fault says (RFC 5321)."""

import asyncio
import base64
import re
import ssl
from collections.abc import Awaitable, Callable

from messenger.sandbox.connections import MOST_MAIL
from messenger.sandbox.journal import SandboxFull
from messenger.sandbox.mail import text as mailtext
from messenger.sandbox.mail.connection import ConnectionOver, MailConnection
from messenger.sandbox.sandbox import Accepted, Sandbox

NAME = "sandbox.test"
# Many times what the Messenger ever sends: anybody on this computer may write here.
LARGEST_MAIL = 1024 * 1024
LONGEST_LINE = 64 * 1024
MAX_RECIPIENTS = 100
PATH = re.compile(
    r"<(?P<address>[^<>\s@,;:()\[\]\\\"]{1,64}@[^<>\s@,;:()\\\"]{1,255})?>(?P<options>(?: [A-Za-z0-9-]+(?:=\S+)?)*)"
)


class Conversation(MailConnection):
    """One SMTP connection, from the greeting to the end."""

    def __init__(self, sandbox: Sandbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(sandbox, reader, writer)
        self._tls: ssl.SSLContext | None = None
        self._greeted = False
        self._sender: str | None = None
        self._recipients: list[str] = []

    async def run(self, tls: ssl.SSLContext | None) -> None:
        """Talk until the client quits, goes away, or a fault ends it."""
        self._tls = tls
        self._sandbox.endings.add(self._writer.close)
        try:
            if await self._passes("connect", ""):
                await self._say(f"220 {NAME} ESMTP sandbox")
            while True:
                await self._command(await self._line())
        except asyncio.LimitOverrunError:
            self._writer.write(b"500 5.5.6 Line too long\r\n")
        except (ConnectionOver, OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._sandbox.endings.discard(self._writer.close)
            self._writer.close()

    async def _command(self, line: str) -> None:
        verb, _, argument = line.partition(" ")
        verbs: dict[str, Callable[[str], Awaitable[None]]] = {
            "EHLO": self._ehlo,
            "HELO": self._helo,
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._mail,
            "RCPT": self._rcpt,
            "DATA": self._data,
            "RSET": self._rset,
            "NOOP": self._noop,
            "QUIT": self._quit,
        }
        known = verbs.get(verb.upper())
        if known is None:
            await self._say("500 5.5.2 Command not recognized")
        else:
            await known(argument.strip())

    async def _ehlo(self, argument: str) -> None:
        if not argument:
            await self._say("501 5.5.4 Syntax: EHLO hostname")
        elif await self._passes("ehlo", argument):
            self._greeted = True
            self._forget()
            lines = [NAME, f"SIZE {LARGEST_MAIL}", "8BITMIME", "SMTPUTF8", "AUTH PLAIN LOGIN"]
            if self._tls is not None:
                lines.append("STARTTLS")
            for text in lines:
                await self._say(f"250-{text}")
            await self._say("250 HELP")

    async def _helo(self, argument: str) -> None:
        if await self._passes("ehlo", argument):
            self._greeted = True
            self._forget()
            await self._say(f"250 {NAME}")

    async def _starttls(self, argument: str) -> None:
        if self._tls is None or argument:
            await self._say("454 4.7.0 TLS not available")
            return
        await self._say("220 2.0.0 Ready to start TLS")
        await self._writer.start_tls(self._tls)
        self._tls, self._greeted = None, False

    async def _auth(self, argument: str) -> None:
        """Accept any well-formed credentials; keep nothing of them."""
        mechanism, _, initial = argument.partition(" ")
        if mechanism.upper() not in ("PLAIN", "LOGIN") or not self._greeted:
            await self._say("504 5.5.4 Unrecognized authentication type")
            return
        wanted = 1 if mechanism.upper() == "PLAIN" else 2
        answers = [initial] if initial else []
        for prompt in ("VXNlcm5hbWU6", "UGFzc3dvcmQ6")[len(answers) : wanted]:
            await self._say(f"334 {prompt if wanted == 2 else ''}")  # noqa: PLR2004 - LOGIN asks twice
            answers.append(await self._line())
        if not await self._passes("auth", ""):
            return
        try:
            decoded = [base64.b64decode(answer, validate=True) for answer in answers]
        except ValueError:
            await self._say("501 5.5.2 Cannot decode base64")
            return
        fine = decoded[0].count(b"\0") == 2 if wanted == 1 else all(decoded)  # noqa: PLR2004 - RFC 4616
        await self._say("235 2.7.0 Authentication successful" if fine else "535 5.7.8 Credentials invalid")

    async def _mail(self, argument: str) -> None:
        path = PATH.fullmatch(argument[5:].strip()) if argument.upper().startswith("FROM:") else None
        if not self._greeted or self._sender is not None:
            await self._say("503 5.5.1 Bad sequence of commands")
        elif path is None:
            await self._say("501 5.1.7 Syntax: MAIL FROM:<address>")
        elif await self._passes("mail", path["address"] or ""):
            self._sender = path["address"] or ""
            await self._say("250 2.1.0 Sender ok")

    async def _rcpt(self, argument: str) -> None:
        path = PATH.fullmatch(argument[3:].strip()) if argument.upper().startswith("TO:") else None
        if self._sender is None:
            await self._say("503 5.5.1 Bad sequence of commands")
        elif path is None or path["address"] is None:
            await self._say("501 5.1.3 Syntax: RCPT TO:<address>")
        elif len(self._recipients) >= MAX_RECIPIENTS:
            await self._say("452 4.5.3 Too many recipients")
        elif await self._passes("rcpt", path["address"]):
            self._recipients.append(path["address"])
            await self._say("250 2.1.5 Recipient ok")

    async def _data(self, argument: str) -> None:
        if not self._recipients or argument:
            await self._say("503 5.5.1 Bad sequence of commands")
        elif await self._passes("data", ""):
            await self._say("354 End data with <CR><LF>.<CR><LF>")
            try:
                raw = await self._text()
                if raw is not None:
                    await self._dot(raw)
            finally:
                self._give()
            self._forget()

    async def _text(self) -> bytes | None:
        """Return the text up to the lone dot, dots unstuffed; None if it was refused, though it is read to its end."""
        text, refused = bytearray(), False
        while (line := await self._raw_line()) != b".\r\n":
            text += line[1:] if line.startswith(b".") else line
            # One mail for many stands there many times.
            if len(text) * len(self._recipients) > LARGEST_MAIL:
                await self._say("552 5.3.4 Too much mail for the sandbox, send less, or to fewer recipients")
                raise ConnectionOver
            await self._take(len(line))
            if not refused and self._sandbox.faults.waits("email", "text"):
                refused = not await self._passes("text", mailtext.searchable(bytes(text)))
        return None if refused else bytes(text)

    async def _dot(self, raw: bytes) -> None:
        fault = self._sandbox.faults.take("email", "dot", mailtext.searchable(raw))
        if fault is None or fault.fault in ("slow", "accept_reset", "accept_hang"):
            try:
                message_id = self._accept(raw)
            except SandboxFull as full:
                await self._say(f"452 4.3.1 {full}")
                return
            if fault is not None:
                await self._spoil(fault)
            await self._say(f"250 2.0.0 Ok: queued as {message_id}")
        else:
            await self._spoil(fault)

    def _accept(self, raw: bytes) -> str:
        message_id = mailtext.header(raw, "Message-ID") or f"<{len(self._sandbox.lines) + 1}.unnamed@{NAME}>"
        payload = {
            "from": self._sender,
            "raw": raw.decode(errors="surrogateescape"),
            "message_id": message_id,
            "subject": mailtext.header(raw, "Subject"),
        }
        self._sandbox.accept(*(Accepted("email", "", to, payload, message_id) for to in self._recipients))
        return message_id

    async def _rset(self, _argument: str) -> None:
        self._forget()
        await self._say("250 2.0.0 Ok")

    async def _noop(self, _argument: str) -> None:
        await self._say("250 2.0.0 Ok")

    async def _quit(self, _argument: str) -> None:
        await self._say("221 2.0.0 Bye")
        raise ConnectionOver

    def _forget(self) -> None:
        self._sender, self._recipients = None, []


async def start_smtp(sandbox: Sandbox, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
    """Listen for mail in the running loop; port 0 takes a free one, and `tls` offers STARTTLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(sandbox.endings) >= MOST_MAIL:
            writer.write(b"421 4.3.2 Too many connections are open here, try again in a moment\r\n")
            writer.close()
            return
        await Conversation(sandbox, reader, writer).run(tls)

    return await asyncio.start_server(serve, host, port, limit=LONGEST_LINE)
