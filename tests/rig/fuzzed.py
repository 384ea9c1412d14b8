"""A running fleet under inputs that nobody sends by mistake alone, and what it must be afterwards: as before.

Telegram is played by a provider that lies; whatever it is told to send is written down.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from butlers.daemon.connection_limits import MOST_BODY
from shared.auth import keystore
from shared.auth.tokens import Signer
from tests.rig.bench import OWNER_EMAIL, Bench
from tests.rig.fleet import Fleet
from tests.rig.fuzzing import OWNER, Input, Posted, Raw
from tests.rig.surfaces import signed_in

AT_ONCE: Final = 16
# The slowest answer seen took eight.
SECONDS: Final = 60.0
# What all processes together may have grown by, in MB, while the longest bodies were in their hands.
MOST_GROWN: Final = 150
SENDS: Final = {"sendmessage", "setmessagereaction"}
NOTHING_OF: Final = re.compile(rb"Traceback|File \"|asyncpg|site-packages")
# What no input of these may move: who may do what, and who is who.
AUTHORITY: Final = """
SELECT md5((SELECT epoch FROM shared.authority)::text
    || (SELECT string_agg(c::text, ',' ORDER BY id) FROM shared.contacts c)
    || (SELECT string_agg(i::text, ',' ORDER BY id) FROM shared.contact_info i)
    || coalesce((SELECT string_agg(r::text, ',' ORDER BY id) FROM shared.approval_rules r), '')
    || coalesce((SELECT string_agg(b::text, ',' ORDER BY id) FROM shared.brakes b), '')
    || (SELECT string_agg(name || public_key, ',' ORDER BY name, public_key) FROM shared.keyring))
"""
# What the owner writes may name a butler that is not there, and is answered so.
KNOWN: Final = """
SELECT id::text FROM shared.notifications WHERE NOT (origin_butler = 'switchboard'
    AND starts_with(envelope #>> '{delivery,message}', 'No butler is called '))
"""
OPEN: Final = "SELECT count(*) FROM messenger.updates WHERE handled_at IS NULL"
OPEN_BODIES: Final = "SELECT body FROM messenger.updates WHERE handled_at IS NULL ORDER BY update_id"
DECIDED: Final = "SELECT count(*) FROM shared.approval_events WHERE event_type IN ('approved', 'denied', 'edited')"
LIVE_OWNER: Final = """
UPDATE shared.contact_info i SET value = $1 FROM shared.contacts c
WHERE c.id = i.contact_id AND 'owner' = ANY (c.roles) AND i.type = 'telegram'
"""
_ID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Liar:
    """A Bot API that says what it is told to say, and takes what it is given."""

    def __init__(self) -> None:
        self.updates: list[object] = []
        self.sent: list[tuple[str, Mapping[str, object]]] = []
        self._next = 1

    async def answer(self, request: web.Request) -> web.Response:
        """Any method."""
        method = request.path.rpartition("/")[2].lower()
        asked = await request.json()
        if method == "getupdates":
            return web.json_response({"ok": True, "result": await self._said()}, dumps=_dumps)
        self.sent.append((method, asked))
        result = {"message_id": len(self.sent), "date": 1_790_000_000, "chat": {"id": asked.get("chat_id")}}
        return web.json_response({"ok": True, "result": result if method in SENDS else True})

    async def _said(self) -> list[object]:
        if not self.updates:
            await asyncio.sleep(0.1)
        said, self.updates = self.updates[:20], self.updates[20:]
        numbered = []
        for one in said:
            numbered.append({"update_id": self._next, **one} if isinstance(one, dict) else one)
            self._next += 1
        return numbered


def _dumps(shape: object) -> str:
    import json  # noqa: PLC0415  # aiohttp wants a function of one argument

    return json.dumps(shape).replace("NaN", "0").replace("Infinity", "0")


@dataclass(slots=True)
class Told:
    """How many inputs there were of which kind, what was answered, how long the slowest took, and how memory grew."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0
    grown_mb: int = 0
    ids: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Target:
    """The fleet and its liar, what inputs carry, and what became of them."""

    fleet: Fleet
    liar: Liar
    tokens: Mapping[str, str]
    pages: aiohttp.ClientSession
    csrf: str
    strangers: aiohttp.ClientSession
    told: Told = field(default_factory=Told)

    def token(self, one: Posted) -> str:
        """What stands for this in an input."""
        if not one.token.startswith("hop:"):
            return self.tokens.get(one.token, "a.b.c")
        caller = one.token.removeprefix("hop:")
        key = keystore.read(self.fleet.house.home, caller).private_pem
        return Signer(caller, key, time.time).token_for(one.daemon)

    async def send(self, one: Input) -> None:
        """Send it, and hold what is answered to what may be answered."""
        started = time.monotonic()
        async with asyncio.timeout(SECONDS):
            if isinstance(one, Posted):
                status, body = await self._post(one)
            elif isinstance(one, Raw):
                status, body = await self._write(one)
            else:
                self.liar.updates.append(one.body)
                return
        self.told.slowest = max(self.told.slowest, time.monotonic() - started)
        self.told.statuses[status] += 1
        assert status != 500, body[:500]
        assert not NOTHING_OF.search(body), body[:500]
        self.told.ids.update(found.decode() for found in _ID.findall(body))

    async def _post(self, one: Posted) -> tuple[int, bytes]:
        url = self.fleet.url(one.daemon)
        headers = {name: each.replace("{origin}", url) for name, each in one.headers.items()}
        if one.token:
            headers["authorization"] = f"Bearer {self.token(one)}"
        body = one.body.replace(b"csrf=approve", b"csrf=" + self.csrf.encode())
        if len(body) > MOST_BODY:
            headers["connection"] = "close"  # it is cut while it is still read, and nothing else may ride on it
        http = self.pages if one.session else self.strangers
        target = URL(f"{url}{one.path}", encoded=True)
        try:
            async with http.request(
                one.method, target, data=BytesIO(body), headers=headers, allow_redirects=False
            ) as answer:
                if "text/event-stream" in answer.headers.get("content-type", ""):
                    return answer.status, b""
                return answer.status, await answer.read()
        except (aiohttp.ClientError, ConnectionError) as cut:
            if len(body) <= MOST_BODY and _fits(one):
                raise AssertionError(f"{cut!r}: {one.method} {one.path} {one.headers}") from None
            return 0, b""

    async def _write(self, one: Raw) -> tuple[int, bytes]:
        port = self.fleet.url(one.daemon).rpartition(":")[2]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        sent = one.sent.replace(b"{host}", f"127.0.0.1:{port}".encode())
        answer = b""
        with suppress(ConnectionError):
            writer.write(sent.replace(b"{token}", self.tokens.get(one.daemon, "").encode()))
            writer.write_eof()
            answer = await reader.read()
        writer.close()
        found = re.match(rb"HTTP/1.1 (\d{3})", answer)
        return int(found[1]) if found else 0, answer


def _fits(one: Posted) -> bool:
    """Whether every header of it can be sent at all."""
    return all(value.isascii() for value in one.headers.values())


@asynccontextmanager
async def under_fuzz(bench: Bench) -> AsyncIterator[Target]:
    """A fleet that takes its Telegram from a liar."""
    liar, app = Liar(), web.Application(client_max_size=2**24)
    app.router.add_post("/bot77:live/{method}", liar.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    house = await bench.house(
        BUTLERS_TELEGRAM_TOKEN="77:live",
        BUTLERS_TELEGRAM_BASE_URL=f"http://127.0.0.1:{runner.addresses[0][1]}",
        BUTLERS_RATE_LIMITS="0",
    )
    fleet = await Fleet.start(house, "one")
    try:
        await fleet.sql(LIVE_OWNER, OWNER)
        tokens = {name: await fleet.token(name) for name in ("health", "greeter", "switchboard", "messenger")}
        async with AsyncExitStack() as held:
            pages, csrf = await held.enter_async_context(signed_in(fleet))
            jar = aiohttp.DummyCookieJar()
            strangers = await held.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
            yield Target(fleet, liar, tokens, pages, csrf, strangers)
        await fleet.stop()
    finally:
        await fleet.abandon()
        await runner.cleanup()


async def fuzz(on: Target, drawn: Sequence[Input]) -> Told:
    """Send them all, some at once; AssertionError names the first that got more than it should, or nothing."""
    fleet, told = on.fleet, on.told
    known = {row["id"] for row in await fleet.sql(KNOWN)}
    authority, before = await fleet.value(AUTHORITY), resident_mb(fleet)
    waiting = enumerate(drawn)
    await asyncio.gather(*(_lane(on, waiting) for _ in range(AT_ONCE)))
    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            while on.liar.updates or await fleet.value(OPEN):
                await asyncio.sleep(0.1)
    left = [str(row["body"])[:1000] for row in await fleet.sql(OPEN_BODIES)]
    assert not left, f"{len(left)} updates are handled by nobody, the first {left[0]}\n{fleet.logs(10)}"
    told.inputs, told.grown_mb = len(drawn), resident_mb(fleet) - before
    told.kinds = Counter(type(one).__name__ for one in drawn)
    assert await fleet.value(AUTHORITY) == authority, "an input changed who may do what"
    assert await fleet.value(DECIDED) == 0, "an input decided for the owner"
    strange = {row["id"] for row in await fleet.sql(KNOWN)} - known - told.ids
    assert not strange, f"{len(strange)} notifications of inputs that were refused"
    to = Counter(str(asked.get("chat_id")) for method, asked in on.liar.sent if method in SENDS)
    assert set(to) <= {OWNER}, f"sent to others than the owner: {to}"
    mails = [entry.to for entry in await fleet.outside.journal() if entry.to != OWNER_EMAIL]
    assert not mails, f"mailed to others than the owner: {mails}"
    assert all(process.alive for process in fleet.started), fleet.logs()
    assert not fleet.tracebacks(), fleet.tracebacks()[:3000]
    assert told.grown_mb < MOST_GROWN, f"all processes grew by {told.grown_mb} MB"
    return told


async def _lane(on: Target, waiting: Iterator[tuple[int, Input]]) -> None:
    for n, one in waiting:
        try:
            await on.send(one)
        except (AssertionError, TimeoutError) as found:
            raise AssertionError(f"input {n}, {type(found).__name__}: {found}\n{str(one)[:2000]}") from None


def resident_mb(fleet: Fleet) -> int:
    """What all processes of the fleet hold in memory."""
    pages = 0
    for process in fleet.started:
        pages += int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096 // 2**20
