"""How a command reaches a daemon: where it is, whether it is that one, and a token for it."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Final
from urllib.parse import SplitResult, urlsplit

from butlers import fleet
from butlers.cli.terminal import as_owner
from butlers.daemon import discovery, sockets
from butlers.daemon.sockets import OFFSETS
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token
from shared.config.settings import Settings
from shared.db.clock import DatabaseClock
from shared.errors import InvalidInput, Unavailable

# The longest answer that is read, in bytes.
MOST: Final = 4_000_000


async def mint(settings: Settings, name: str, lasts: timedelta, *, notices: bool = False) -> str:
    """Make a fresh client token for one butler, stored by its id so that it counts and can be revoked."""
    demand_butler(settings, name)
    clock = DatabaseClock(time.monotonic)
    signer = Signer(keystore.OWNER, keystore.read(settings.home, keystore.OWNER).private_pem, clock)
    async with as_owner(settings) as connection:
        await clock.read(connection)
        made = mint_client_token(signer, name, lasts)
        await discovery.keep_token(connection, made.jti, name, lasts, notices=notices)
    return made.token


def demand_butler(settings: Settings, name: str) -> None:
    """Raise InvalidInput if no daemon of that name has tools."""
    names = [*fleet.SERVICES[:2], *(entry.name for entry in fleet.load(settings.fleet, settings.home))]
    if name not in names:
        raise InvalidInput(f"Unknown butler `{name}`.", f"Choose from: {', '.join(names)}.")


async def url_of(settings: Settings, name: str) -> str:
    """Return where that daemon is: its own port on this computer if it answers there, else where it is registered.

    What is registered is the Switchboard's word, which could lead a token astray.
    """
    if await answers_as(name, url := own_url(settings, name)):
        return url
    async with as_owner(settings) as connection:
        daemons = await discovery.daemons(connection)
    for row in daemons:
        if row["name"] == name and row["ready"]:
            return str(row["url"])
    raise Unavailable(f"{name} is not running.", "Start it with `butlers up`.")


def own_url(settings: Settings, name: str) -> str:
    """Return where a daemon of this computer is, by the settings alone."""
    entries = [] if name in OFFSETS else fleet.load(settings.fleet, settings.home)
    return sockets.url_of(settings, sockets.default_port(settings, entries, name), together=True)


async def answers_as(name: str, url: str) -> bool:
    """Return whether the server at that URL says that it is this daemon.

    It is told no secret, so its certificate is not checked.
    """
    try:
        told = (await exchange(f"{url}/healthz", is_checked=False, seconds=5)).told
    except Unavailable:
        return False
    return told.get("name") == name


@dataclass(frozen=True, slots=True)
class Answered:
    """A daemon's answer: its status, and the JSON object it holds, which is empty if it holds none."""

    status: int
    told: Mapping[str, object]


async def exchange(
    url: str,
    *,
    given: Mapping[str, object] | None = None,
    bearer: str = "",
    is_checked: bool = True,
    seconds: float = 30,
) -> Answered:
    """Get a daemon's page, or post it an object, without a proxy and without a redirect; raise Unavailable else.

    By hand, since to import an HTTP client takes longer than all the rest of a command.
    """
    to = urlsplit(url)
    body = b"" if given is None else json.dumps(given).encode()
    lines = [
        f"{'GET' if given is None else 'POST'} {to.path} HTTP/1.1",
        f"Host: {to.netloc}",
        "Connection: close",
        "Accept: application/json",
        *([f"Authorization: Bearer {bearer}"] if bearer else []),
        *([f"Content-Length: {len(body)}", "Content-Type: application/json"] if given is not None else []),
    ]
    asked = "\r\n".join([*lines, "", ""]).encode("ascii") + body
    try:
        async with asyncio.timeout(seconds):
            return _read(await _sent(to, asked, is_checked=is_checked))
    except (OSError, HTTPException, TimeoutError, ValueError):
        raise Unavailable(f"Nothing answers at {url}.", "Start it with `butlers up`.") from None


async def _sent(to: SplitResult, asked: bytes, *, is_checked: bool) -> bytes:
    """Write the request, and return everything that comes until the end."""
    secure = None
    if to.scheme == "https":
        secure = ssl.create_default_context()
        if not is_checked:
            secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    port = to.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(to.hostname, port, ssl=secure)
    try:
        writer.write(asked)
        await writer.drain()
        found = b""
        while len(found) < MOST and (more := await reader.read(MOST)):
            found += more
        return found
    finally:
        writer.close()


class _Whole:
    """An answer that is here already, as the parser of the standard library wants it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._answer)


def _read(answer: bytes) -> Answered:
    parsed = HTTPResponse(_Whole(answer))  # type: ignore[arg-type]  # it asks for a file alone
    parsed.begin()
    try:
        told = json.loads(parsed.read())
    except (ValueError, RecursionError):
        told = None
    return Answered(parsed.status, told if isinstance(told, dict) else {})
