"""What the verbs of one fleet stand on: its doors, its keys, the owner's session, and what was put into the sandbox."""

import base64
import hashlib
import itertools
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import asyncpg

from shared.auth import keystore
from shared.db.dsn import dsn_as
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import DAEMONS, Fleet
from tests.rig.outside import Entry, Outside

Seen = Mapping[str, object]
Arguments = Mapping[str, object]
COOKIE: Final = re.compile(r"([^=;\s]+)=([^;]+)")
CSRF: Final = re.compile(r'name="csrf" value="([^"]+)"')
LINK: Final = """
INSERT INTO console.sign_in_links (code_sha, expires_at) VALUES ($1, clock_timestamp() + interval '10 minutes')
"""
_numbers = itertools.count(1)


class Remembering(Outside):
    """The sandbox, whose journal is read once: what stands in it never changes."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        super().__init__(url, http)
        self._seen: list[Entry] = []

    async def journal(self, after: int = 0) -> list[Entry]:
        """What was accepted since line `after`."""
        for entry in await super().journal(len(self._seen)):
            if entry.n == len(self._seen) + 1:  # two that read at once bring the same lines
                self._seen.append(entry)
        return self._seen[after:]


@dataclass(slots=True)
class World:
    """One fleet under attack. `known` holds the variables of the attempt under way."""

    fleet: Fleet
    http: aiohttp.ClientSession
    known: dict[str, object] = field(default_factory=dict)
    # Provider ids and bots that are of the engine's making.
    ours: set[str] = field(default_factory=set)
    cookie: tuple[str, str] = ("", "")
    csrf: str = ""
    logins: dict[str, "asyncpg.Connection[asyncpg.Record]"] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def url(self, name: str) -> str:
        """The base URL of a daemon."""
        return self.fleet.url(name)

    def keys(self, name: str) -> keystore.Keys:
        """What a compromised daemon of that name holds."""
        return keystore.read(self.fleet.house.home, name)

    def read_secrets(self) -> tuple[str, ...]:
        """What no answer may hold: keys, passwords and secrets of every daemon, as they could be written."""
        found: list[str] = []
        for name in ("owner", "switchboard", "messenger", "console", "greeter", "health"):
            keys = self.keys(name)
            lines = [line for line in keys.private_pem.decode().splitlines() if not line.startswith("-")]
            encoded = base64.b64encode(keys.secret).decode(), base64.urlsafe_b64encode(keys.secret).decode()
            found += [*lines, keys.password, keys.secret.hex(), *(one.rstrip("=") for one in encoded)]
        return (*found, self.fleet.house.env["BUTLERS_CONSOLE_PASSWORD"])

    async def login(self, name: str) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection by the login of that daemon, to another database with `@` and its name; or the superuser's."""
        if name == "superuser":
            return self.fleet.db
        if name not in self.logins or self.logins[name].is_closed():
            who, _, other = name.partition("@")
            dsn = dsn_as(self.fleet.house.dsn, who, self.keys(who).password)
            self.logins[name] = await asyncpg.connect(dsn, database=other or None, timeout=30, command_timeout=30)
        return self.logins[name]

    async def sign_in(self) -> None:
        """The owner's session in the console, by a link as `butlers up` prints it."""
        code = uuid.uuid4().hex
        await self.fleet.sql(LINK, hashlib.sha256(code.encode()).hexdigest())
        url = f"{self.url('console')}/sign-in"
        origin = {"Origin": self.url("console")}
        async with self.http.post(url, data={"code": code}, headers=origin, allow_redirects=False) as answer:
            found = COOKIE.search(answer.headers.get("Set-Cookie", ""))
            assert answer.status == 303, await answer.text()
            assert found is not None
        self.cookie = found[1], found[2]
        cookie = {"Cookie": f"{found[1]}={found[2]}"}
        async with self.http.get(f"{self.url('console')}/", headers=cookie) as answer:
            page = CSRF.search(await answer.text())
            assert page is not None
            self.csrf = page[1]

    def begin(self, values: Mapping[str, object]) -> None:
        """The variables of a new attempt: people, words and ids that no other attempt has."""
        number = next(_numbers)
        self.known = {
            "owner": str(OWNER),
            "owner_email": OWNER_EMAIL,
            "nonce": f"n{uuid.uuid4().hex[:12]}",
            "uuid": str(uuid.uuid4()),
            "friend": str(fresh.chat()),
            "other": str(fresh.chat()),
            "stranger": str(fresh.chat()),
            "group": str(-fresh.chat()),
            "friend_email": f"friend{number}.{uuid.uuid4().hex[:8]}@example.org",
            "own_csrf": self.csrf,
            "session_sha": hashlib.sha256(self.cookie[1].encode()).hexdigest(),
            "own_session": self.cookie[1],
            "own_cookie": self.cookie[0],
            "now": int(time.time()),
            **{f"{name}_url": self.url(name) for name in DAEMONS},
            **values,
        }

    async def close(self) -> None:
        """Let go of the logins."""
        for connection in self.logins.values():
            connection.terminate()
        await self.http.close()


async def enter(fleet: Fleet) -> World:
    """The world of a fleet that has just been started."""
    http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30), cookie_jar=aiohttp.DummyCookieJar())
    world = World(fleet, http)
    world.secrets = world.read_secrets()
    fleet.outside = Remembering(fleet.outside.url, http)
    for name in ("greeter", "health", "switchboard", "messenger"):
        await fleet.token(name)
    await world.sign_in()
    return world


def seen(status: int, text: str, **more: object) -> Seen:
    """What a step answered; `answer` is its JSON, if it is one."""
    try:
        answer: object = json.loads(text)
    except ValueError:
        answer = None
    return {"status": status, "text": text, "answer": answer, **more}
