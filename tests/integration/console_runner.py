"""Serves a console over a real PostgreSQL, in its own role, inside a test's own loop."""

import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import aiohttp
import asyncpg
from starlette.applications import Starlette
from starlette.types import Scope

from butlers.butler import Context
from butlers.console.app import create_app
from butlers.daemon.assembly import TOPICS
from shared.auth.keypairs import generate_key
from shared.auth.peer import uid_of
from shared.auth.tokens import Signer
from shared.config.settings import Settings
from shared.db.pool import Database
from shared.db.wake import Wake
from shared.rpc import DaemonClient
from tests.rig.cluster import Cluster
from tests.rig.served import served as serving

PASSWORD = "correct horse battery staple"
_numbers = itertools.count(1)

PENDING = """
WITH told AS (
    INSERT INTO shared.notifications (origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
        contact_id, contact_info_id, third_party, status, answer)
    VALUES ($1, $1, 'sandbox', gen_random_uuid()::text, gen_random_uuid()::text, 'sha', $2, $7, $3, $4, true,
        $5, '{}')
    RETURNING id
)
INSERT INTO shared.pending_actions (origin_butler, tool_args, agent_summary, notification_id)
SELECT $1, $2 -> 'delivery', $6, id FROM told RETURNING id::text
"""


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection that is closed afterwards."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A console that listens, the superuser's way to its rows, and a browser's way to its pages."""

    url: str
    app: Starlette
    context: Context
    sql: "asyncpg.Connection[asyncpg.Record]"
    http: aiohttp.ClientSession

    async def post(self, path: str, *, origin: str | None = "", **fields: str) -> aiohttp.ClientResponse:
        """Post a form, as from our own page unless told otherwise (None: without Origin)."""
        headers = {} if origin is None else {"Origin": origin or self.url}
        return await self.send(path, fields, headers)

    async def send(
        self, path: str, data: object, headers: Mapping[str, str], http: aiohttp.ClientSession | None = None
    ) -> aiohttp.ClientResponse:
        """Post these data with exactly these headers; the answer is read, redirects are not followed."""
        answer = await (http or self.http).post(f"{self.url}{path}", data=data, headers=headers, allow_redirects=False)
        await answer.read()
        return answer

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        """Get a page and read it, redirects not followed; `Sec_Fetch_Site` stands for Sec-Fetch-Site."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.http.get(f"{self.url}{path}", headers=sent, allow_redirects=False)
        await answer.read()
        return answer

    async def sign_in(self) -> None:
        """By password; the cookie is kept."""
        answer = await self.post("/sign-in", password=PASSWORD)
        assert answer.status == 303, await answer.text()

    async def csrf(self) -> str:
        """The token of the present session, as it stands in the page."""
        page = await (await self.get("/")).text()
        return page.split('name="csrf" value="')[1].split('"')[0]

    async def park(self, butler: str = "health", summary: str = "", whom: str = "recipient", **delivery: str) -> str:
        """A pending action as the gate makes it; its id."""
        asked = {"intent": "send", "channel": "telegram", "recipient": "4242", **delivery}
        envelope = {"schema_version": "notify.v1", "origin_butler": butler, "delivery": asked}
        made = await self.sql.fetchval(
            PENDING, butler, json.dumps(envelope), None, None, "pending_approval", summary, whom
        )
        assert isinstance(made, str)
        return made


def no_finder(_name: str) -> NoReturn:
    """The console calls nobody."""
    raise AssertionError("the console called another daemon")


def ground_of(home: Path, db: Database, **variables: str) -> Context:
    """A console's context; variables override the settings a test starts with."""
    environ = {"BUTLERS_HOME": str(home), "BUTLERS_SWEEP_SECONDS": "0.1", "BUTLERS_CONSOLE_PASSWORD": PASSWORD}
    environ |= variables
    settings = Settings.from_env({name: value for name, value in environ.items() if value})
    daemons = DaemonClient(Signer("console", generate_key()[0], time.time), no_finder)
    wakes = {topic: Wake() for topic in TOPICS}
    return Context("console", "console-1", home, settings, db, daemons, b"k" * 32, lambda: str(uuid.uuid4()), wakes)


def browsing() -> aiohttp.ClientSession:
    """A session that keeps cookies, and no connection that may end just when a form is posted on it."""
    jar = aiohttp.CookieJar(unsafe=True)  # cookies for an IP address too
    return aiohttp.ClientSession(cookie_jar=jar, connector=aiohttp.TCPConnector(force_close=True))


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """The app on a free port of 127.0.0.1; its URL."""
    async with serving(app, lifespan="off") as url:
        try:
            yield url
        finally:
            app.state.stopping.set()


@asynccontextmanager
async def running(
    cluster: Cluster, home: Path, uid_of: Callable[[Scope], int | None] = uid_of, /, **variables: str
) -> AsyncIterator[Running]:
    """A console on a fresh database; `uid_of` tells who calls."""
    name = f"fresh{next(_numbers)}"
    dsn = await cluster.clone(name)
    async with AsyncExitStack() as held:
        sql = await held.enter_async_context(connected(dsn))
        await sql.execute(f"CREATE ROLE {name}_console LOGIN IN ROLE butlers_group_console")
        db = await Database.open(dsn, role=f"{name}_console", most=8)
        held.push_async_callback(db.close)
        context = ground_of(home, db, **variables)
        app = create_app(context, clock=time.monotonic, allowed_hosts=frozenset(), uid_of=uid_of)
        url = await held.enter_async_context(served(app))
        http = await held.enter_async_context(browsing())
        yield Running(url, app, context, sql, http)


async def events_of(stream: aiohttp.ClientResponse) -> AsyncIterator[Mapping[str, str]]:
    """The events of a stream as they come, each as its fields."""
    fields: dict[str, str] = {}
    async for raw in stream.content:
        line = raw.decode().rstrip("\n")
        if not line and fields:
            yield fields
            fields = {}
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
