"""Whoever takes the place of a database that is gone: it listens there, and asks for what it would like to have.

`python -m tests.rig.usurper PLACE SCRIPT` does it in a process of its own, for another user: it says `listens`, or
why it cannot, and at the end of its input all that it heard, in hex.
"""

import asyncio
import ssl
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ENCRYPT: Final = struct.pack("!II", 8, 80877103)
READY: Final = b"K" + struct.pack("!III", 12, 1, 1) + b"Z" + struct.pack("!I", 5) + b"I"
VERSION: Final = b"server_version\x0017.0\x00"
NONCE: Final = b"x" * 18


def request(code: int, more: bytes = b"") -> bytes:
    """What PostgreSQL says of authentication (PostgreSQL documentation, 55.7 Message Formats)."""
    return b"R" + struct.pack("!II", 8 + len(more), code) + more


WELCOME: Final = request(0) + b"S" + struct.pack("!I", 4 + len(VERSION)) + VERSION + READY
SASL: Final = request(10, b"SCRAM-SHA-256\0\0")
# What is said in turn, each after the client has said something.
SCRIPTS: Final = {
    "cleartext": (request(3), WELCOME),
    "md5": (request(5, b"salt"), WELCOME),
    "kerberos": (request(7), WELCOME),
    "sspi": (request(9), WELCOME),
    "trust": (WELCOME,),
    "scram without its end": (SASL, WELCOME),
    "scram with endless rounds": (SASL, b"endless", WELCOME),
    "scram with half its end": (SASL, b"continue", WELCOME),
    "scram with a wrong end": (SASL, b"continue", request(12, b"v=" + b"A" * 43 + b"=") + WELCOME),
    "cleartext after scram has begun": (SASL, request(3), WELCOME),
    "cleartext after a notice": (b"N" + struct.pack("!I", 5) + b"\0" + request(3), WELCOME),
    "cleartext in a message that is too short": (b"R" + struct.pack("!II", 3, 3), WELCOME),
    "cleartext in a message of negative length": (b"N" + struct.pack("!i", -5) + request(3), WELCOME),
    "ready without a login": (READY,),
}
# What stands for SCRAM's second word, by the rounds of hashing that it asks for.
ROUNDS: Final = {b"continue": b"4096", b"endless": b"2147483647"}


@dataclass(slots=True)
class Usurper:
    """A server of our own making."""

    script: str
    tls: ssl.SSLContext | None = None
    # Send each byte alone.
    dribbles: bool = False
    heard: bytes = b""
    visits: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def listen(self, place: "int | Path") -> None:
        if isinstance(place, Path):
            self._server = await asyncio.start_unix_server(self._meet, place)
            place.chmod(0o777)
            return
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", place)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        try:
            first = await reader.read(65536)
            if first == ENCRYPT:
                writer.write(b"S" if self.tls else b"N")
                if self.tls:
                    await writer.start_tls(self.tls)
                first = await reader.read(65536)
            self.heard += first
            for words in SCRIPTS[self.script]:
                await self._say(writer, continued(self.heard, ROUNDS[words]) if words in ROUNDS else words)
                said = await reader.read(65536)
                if not said:
                    break
                self.heard += said
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _say(self, writer: asyncio.StreamWriter, words: bytes) -> None:
        for piece in (words[n : n + 1] for n in range(len(words))) if self.dribbles else (words,):
            writer.write(piece)
            await writer.drain()
            if self.dribbles:
                await asyncio.sleep(0.001)


def continued(heard: bytes, rounds: bytes) -> bytes:
    """SCRAM's second word, which holds the client's nonce and how often it is to hash."""
    nonce = heard.rpartition(b",r=")[2]
    return request(11, b"r=" + nonce + NONCE + b",s=c2FsdHNhbHRzYWx0c2FsdA==,i=" + rounds)


async def _main(place: str, script: str) -> None:
    usurper = Usurper(script)
    try:
        await usurper.listen(int(place) if place.isdigit() else Path(place))
    except OSError as refused:
        print(f"cannot: {refused.strerror}", flush=True)
        return
    print("listens", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(usurper.heard.hex(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:3]))
