"""Proof of who answers for the database, by SCRAM or by the process that holds the socket, before it is believed.

asyncpg gives a server whatever it asks for, even the password itself, and has no option against that. It looks up its
protocol class anew for each connection. Ours takes that class's place for the whole process and reads along until the
login is done: a process that takes the port of a server that is gone gets no password, and is not taken for the
database.
"""

import asyncio
import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import asyncpg
from asyncpg.protocol import protocol

from shared.errors import Misconfigured

if TYPE_CHECKING:
    from asyncpg.connect_utils import _ConnectionParameters

# Codes of an authentication message: it has ended well, or a step of SCRAM (SASL, SASLContinue, SASLFinal).
ENDED: Final = 0
SCRAM: Final = (10, 11, 12)
# Authentication, an error, a notice, the version of the protocol: all that may come before the login is done.
BEFORE: Final = b"RENv"
HEAD: Final = struct.Struct("!cii")
LONGEST_MESSAGE: Final = 65_536
# PostgreSQL's default is 4,096 rounds. Nothing else can be done while they are computed.
ROUNDS: Final = re.compile(rb",i=([0-9]{1,10})")
MOST_ROUNDS: Final = 100_000
PEER: Final = struct.Struct("3i")


class Unproved(Misconfigured):
    """The error where the process that answers in the database's place has not proved that it is the database."""


class Proving(protocol.Protocol):
    """The wire protocol of one connection.

    INVARIANT: nothing is answered but SCRAM, and no end of it is believed without proof.
    """

    def __init__(
        self,
        addr: "tuple[str, int] | str",
        connected: "asyncio.Future[object]",
        parameters: "_ConnectionParameters",
        record_class: type[asyncpg.Record],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(addr, connected, parameters, record_class, loop)
        self._where = addr if isinstance(addr, str) else ":".join(map(str, addr[:2]))
        self._connected = connected
        self._wire: asyncio.Transport | None = None
        self._unread = b""
        self._steps = 0
        # Without a password none can be given away and SCRAM asks for none; of a socket the kernel knows who holds it.
        self._needs_proof = bool(parameters.password)
        self._done = False

    def connection_made(self, transport: object) -> None:
        """Check whose process listens before anything is sent."""
        self._wire = cast("asyncio.Transport", transport)
        holder = _holder(self._wire)
        # INVARIANT: what is judged is the place that was dialled; the other end may call itself what it likes.
        if holder is not None and holder not in {Path(self._where).parent.stat().st_uid, os.geteuid(), 0}:
            self._refuse(
                f"What answers on {self._where} runs as the user with id {holder}, who does not own that folder.",
                "Stop that process, then start the database.",
            )
            return
        self._needs_proof &= holder not in {0, os.geteuid()}
        super().connection_made(transport)

    def data_received(self, data: object) -> None:
        """Pass on each message of the login once it is whole and allowed; after the login, pass on everything."""
        rest = data if self._done else self._through_login(cast("bytes", data))
        if rest:
            super().data_received(rest)

    def _through_login(self, data: bytes) -> bytes:
        """Pass on the messages of the login, and return what comes after it."""
        self._unread += data
        while message := self._next():
            super().data_received(message)
            if self._done:
                rest, self._unread = self._unread, b""
                return rest
        return b""

    def _next(self) -> bytes:
        """Take the next message of the login from the unread bytes; return none where it is incomplete or refused."""
        if len(self._unread) < HEAD.size - 4:
            return b""
        kind, length, code = HEAD.unpack(self._unread[: HEAD.size].ljust(HEAD.size, b"\0"))
        if kind not in BEFORE or not 4 <= length <= LONGEST_MESSAGE or (kind == b"R" and length < 8):  # noqa: PLR2004
            return self._refuse(f"What answers on {self._where} is not PostgreSQL.", "Correct DATABASE_URL.")
        if len(self._unread) <= length:
            return b""
        message, self._unread = self._unread[: 1 + length], self._unread[1 + length :]
        return message if kind != b"R" or self._believes(code, message) else b""

    def _believes(self, code: int, message: bytes) -> bool:
        """Return whether this step of the login is the next of SCRAM, or an end of the login that may be believed.

        An end is believed after all steps of SCRAM, or after none where no proof is needed.
        """
        if self._steps < len(SCRAM) and code == SCRAM[self._steps]:
            self._steps += 1
            rounds = ROUNDS.search(message)
            if rounds is not None and int(rounds[1]) > MOST_ROUNDS:
                self._refuse(
                    f"The database on {self._where} asks for more rounds of hashing than are done.",
                    f"Set its scram_iterations to {MOST_ROUNDS} at most, and the login's password anew.",
                )
                return False
            return True
        if code != ENDED:
            self._refuse(
                f"The database on {self._where} asks for the password itself, or for what gives it away.",
                "Let its pg_hba.conf say scram-sha-256, and set the login's password anew.",
            )
            return False
        if self._steps != len(SCRAM) and (self._needs_proof or self._steps):
            self._refuse(
                f"The database on {self._where} did not show that it knows our password.",
                "Let its pg_hba.conf say scram-sha-256 for Butlers' logins.",
            )
            return False
        self._done = True
        return True

    def _refuse(self, message: str, remedy: str) -> bytes:
        if not self._connected.done():
            self._connected.set_exception(Unproved(message, remedy))
        if self._wire is not None:
            self._wire.abort()
        return b""


def _holder(transport: asyncio.Transport) -> int | None:
    """Return the id of the user whose process listens, where the kernel tells it."""
    wire = transport.get_extra_info("socket")
    if wire is None or wire.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    holder: int
    _, holder, _ = PEER.unpack(wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return holder


asyncpg.protocol.Protocol = Proving  # type: ignore[assignment,misc]  # the class that each connection from here on uses


async def connect(dsn: str, timeout: float) -> "asyncpg.Connection[asyncpg.Record]":
    """Open one connection by this URL, to a server that has proved itself."""
    return await asyncpg.connect(dsn, timeout=timeout)
