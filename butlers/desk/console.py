"""The desk's way to the console: which questions are open, as they come, and an answer to one.

By hand and over two kinds of connection, since an HTTP client would weigh more than all the rest of a desk.
"""

import asyncio
import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from shared.auth.peer import holders
from shared.auth.tokens import Unauthorized
from shared.errors import InvalidInput, Unavailable

_WITHIN = 10.0
_ROOT = 0
# The console says that it is still there every fifteen seconds.
_SILENCE = 40.0
_LONGEST_LINE = 1 << 24


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is open, as the desk shows it."""

    id: str
    butler: str
    title: str
    question: str
    buttons: Sequence[str]
    allow_text: bool
    urgency: str
    # Whether it opens a window at once, and not when it is asked for.
    popup: bool = False
    # The last exchanges with its butler, for its window: each what the butler said, and what the person replied.
    history: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Console:
    """The console at this address, to which this token opens the desk's door."""

    url: str
    token: str = field(default="", repr=False)
    # The users of this computer one of whom has to hold the other end; none if anybody may, as at another computer.
    users: frozenset[int] = frozenset()

    async def sign_in(self, code: str) -> "Console":
        """Return the console with the token that this code is good for; raise Unauthorized if it is good for none."""
        token = str((await self._post("/desk/sign-in", {"code": code}))["token"])
        try:
            return replace(self, token=token, users=await asyncio.to_thread(self._users))
        except OSError:
            raise self._away() from None

    def _users(self) -> frozenset[int]:
        to = self._parts()
        with socket.create_connection((to.hostname or "", to.port or _port(to)), _WITHIN) as connection:
            return holders(connection)

    def _demand_theirs(self, connection: socket.socket) -> None:
        """Raise Unavailable before anything is sent to another user who took the console's port while it is stopped."""
        found = holders(connection) if self.users else frozenset()
        if self.users and not (found and found <= self.users | {_ROOT}):
            raise Unavailable(
                f"Another user of this computer listens at {self.url}, so nothing was sent there.",
                "Start your butlers. If they run under another user now, pair this desk again: `butlers desk pair`.",
            )

    async def answer(self, question: str, given: Mapping[str, object]) -> bool:
        """Answer; return whether this was the first answer, which alone counts."""
        return (await self._post("/desk/answers", {"id": question, **given})).get("answered") is True

    async def questions(self) -> AsyncGenerator[Sequence[Question], None]:
        """Yield all open questions whenever they change, until the console ends it; raise Unauthorized, Unavailable."""
        to = self._parts()
        try:
            async with asyncio.timeout(_WITHIN):
                reader, writer = await asyncio.open_connection(
                    to.hostname, to.port or _port(to), ssl=_secure(to), limit=_LONGEST_LINE
                )
        except (OSError, TimeoutError):
            raise self._away() from None
        try:
            self._demand_theirs(writer.get_extra_info("socket"))
            # HTTP/1.0 has no chunks: what comes is the events alone.
            lines = (
                f"GET {to.path}/desk/questions HTTP/1.0",
                f"Host: {to.netloc}",
                f"Authorization: Bearer {self.token}",
            )
            writer.write("\r\n".join([*lines, "", ""]).encode("ascii", "replace"))
            await self._demand_ok(reader)
            while line := await asyncio.wait_for(reader.readline(), _SILENCE):
                if line.startswith(b"data: "):
                    yield _read(line[6:])
        except (OSError, TimeoutError, ValueError, LookupError, TypeError):
            raise self._away() from None
        finally:
            writer.close()

    async def _demand_ok(self, reader: asyncio.StreamReader) -> None:
        status = await asyncio.wait_for(reader.readline(), _WITHIN)
        while (await asyncio.wait_for(reader.readline(), _WITHIN)).strip():
            pass
        self._demand(int(status.split()[1]))

    def _demand(self, status: int, said: str = "") -> None:
        if status in {401, 403}:
            why = said or "The console does not accept this desk's token: it was revoked or has expired."
            raise Unauthorized(why, "Pair this desk again: `butlers desk pair` at home, `butlers desk sign-in` here.")
        if status in {400, 404, 413}:
            raise InvalidInput(said or f"{self.url} is no console that knows desks.", "Correct the address.")
        if status != http.HTTPStatus.OK:
            raise self._away()

    async def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        try:
            status, answered = await asyncio.to_thread(self._exchange, path, json.dumps(body).encode())
            found = json.loads(answered)
        except (OSError, http.client.HTTPException):
            raise self._away() from None
        except ValueError:
            status, found = 404, {}
        said = found if isinstance(found, dict) else {}
        self._demand(status, str(said.get("error", "")))
        return said

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        to = self._parts()
        port = to.port or _port(to)
        secure = _secure(to)
        connection = (
            http.client.HTTPSConnection(to.hostname or "", port, timeout=_WITHIN, context=secure)
            if secure
            else http.client.HTTPConnection(to.hostname or "", port, timeout=_WITHIN)
        )
        try:
            headers = {"Content-Type": "application/json", "Origin": f"{to.scheme}://{to.netloc}"}
            headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.connect()
            self._demand_theirs(connection.sock)
            connection.request("POST", f"{to.path}{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_LONGEST_LINE)
        finally:
            connection.close()

    def _parts(self) -> SplitResult:
        return _parted(self.url)

    def _away(self) -> Unavailable:
        return Unavailable(f"The console at {self.url} does not answer.", "Is it running, and is the address right?")


def is_private(url: str) -> bool:
    """Return whether nobody on the way can read what is said to this address: it is encrypted, or on this computer."""
    to = _parted(url)
    with suppress(ValueError):
        return to.scheme == "https" or ipaddress.ip_address(to.hostname or "").is_loopback
    return to.hostname == "localhost"


def _parted(url: str) -> SplitResult:
    """Take an address apart; raise InvalidInput for what is none of a console."""
    with suppress(ValueError):
        to = urlsplit(url.rstrip("/"))
        if to.scheme in {"http", "https"} and to.hostname and to.port != 0:
            return to
    raise InvalidInput(f"{url} is no address of a console.", "Give the one that `butlers desk pair` printed.")


def _port(to: SplitResult) -> int:
    return 443 if to.scheme == "https" else 80


def _secure(to: SplitResult) -> ssl.SSLContext | None:
    return ssl.create_default_context() if to.scheme == "https" else None


def _read(data: bytes) -> Sequence[Question]:
    return [
        Question(
            str(one["id"]),
            str(one["butler"]),
            str(one["title"]),
            str(one["question"]),
            [str(button) for button in one["buttons"]],
            one["allow_text"] is True,
            str(one["urgency"]),
            one.get("popup") is True,
            [(str(said), str(replied)) for said, replied in one.get("history", ())],
        )
        for one in json.loads(data)["questions"]
    ]
