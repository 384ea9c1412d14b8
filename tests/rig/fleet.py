"""A running fleet in one of three shapes, and everything a test does with it."""

import asyncio
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Final, Literal, TypeAlias, cast
from uuid import uuid4

import aiohttp
import asyncpg
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers.cli.client import mint
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_session_token
from shared.db.pool import Record, prepare_connection
from shared.rpc import Answer, request_of, tool_object
from shared.storage import contacts
from tests.rig import outside_sessions
from tests.rig.bench import House
from tests.rig.cluster import BUTLERS
from tests.rig.forks import Process
from tests.rig.outside import Outside
from tests.rig.waiting import LONGEST

Mode = Literal["one", "each", "two"]
Era = Literal["auto", "legacy"]
McpClient: TypeAlias = Client[StreamableHttpTransport]
Rows: TypeAlias = "asyncpg.Connection[Record]"
MODES: Final[tuple[Mode, ...]] = ("one", "each", "two")
UP: Final = "up"
DAEMONS: Final = ("sandbox", "switchboard", "messenger", "console", *BUTLERS)
OFFSETS: Final = {"switchboard": 0, "messenger": 1, "console": 2, "sandbox": 3, "greeter": 10, "health": 11}
READY_AT: Final = re.compile(r"is ready at (\S+)")
HEARD: Final = """
SELECT name, count(*) FROM switchboard.butlers
WHERE status = 'ready' AND last_seen_at > to_timestamp($1) GROUP BY name
"""


class Fleet:
    """Made by `start`; used and stopped in the event loop in which it was started."""

    def __init__(self, house: House, mode: Mode, http: aiohttp.ClientSession, db: "Rows") -> None:
        self.house = house
        self.mode = mode
        self.http = http
        self.db = db
        self.outside = Outside(f"http://127.0.0.1:{house.base + OFFSETS['sandbox']}", http)
        self.running: dict[str, list[Process]] = {}
        self.started: list[Process] = []
        self._clients: dict[tuple[str, Era], tuple[McpClient, AsyncExitStack]] = {}
        self._tokens: dict[str, str] = {}
        self._known: dict[Process, list[str]] = {}

    @classmethod
    async def start(cls, house: House, mode: Mode = "one") -> "Fleet":
        """A fleet whose every daemon is ready and in the registry."""
        http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30))
        db = await asyncpg.connect(house.dsn)
        await prepare_connection(db)
        fleet = cls(house, mode, http, db)
        try:
            await fleet.begin()
        except BaseException:
            await fleet.abandon()
            raise
        return fleet

    # Processes

    @property
    def names(self) -> Sequence[str]:
        """What is started: `up`, or each daemon by its name."""
        return (UP,) if self.mode == "one" else DAEMONS

    async def begin(self) -> None:
        """Start whatever does not run, and wait until it is ready and in the registry."""
        since = time.time()
        missing = [name for name in self.names if name not in self.running]
        for name in missing:
            self.running[name] = self._spawn(name)
        await asyncio.gather(*(self.until_ready(process) for name in missing for process in self.running[name]))
        names = DAEMONS if missing == [UP] else missing
        expected = {name: len(self.running.get(name, [UP])) for name in names if name != "sandbox"}
        async with asyncio.timeout(LONGEST):
            while (heard := await self._heard(since)) and any(heard.get(n, 0) < expected[n] for n in expected):
                await asyncio.sleep(0.02)

    def _spawn(self, name: str) -> list[Process]:
        count = 2 if self.mode == "two" and name != "sandbox" else 1
        argv = ["up"] if name == UP else ["run", name]
        made = [self.house.spawn(argv, f"{name}-{len(self.started) + n}") for n in range(1, count + 1)]
        self.started += made
        return made

    async def until_ready(self, process: Process) -> None:
        """Wait until it says so, and answers so."""
        async with asyncio.timeout(LONGEST):
            while not self._urls(process):
                assert process.alive, f"{process.order.argv} ended with {process.code}\n{self.logs()}"
                await asyncio.sleep(0.01)
            for url in self._urls(process):
                while await self.status(f"{url}/readyz") != 200:
                    await asyncio.sleep(0.01)

    def _urls(self, process: Process) -> list[str]:
        if process not in self._known and (found := self._said(process)):
            self._known[process] = found
        return self._known.get(process, [])

    def _said(self, process: Process) -> list[str]:
        said = process.out.read_text()
        if process.order.argv[0] == UP:
            base = self.house.base
            return [f"http://127.0.0.1:{base + offset}" for offset in OFFSETS.values()] if "Ready." in said else []
        return READY_AT.findall(said)

    async def _heard(self, since: float) -> Mapping[str, int]:
        return {"": 0} | {row["name"]: row["count"] for row in await self.db.fetch(HEARD, since)}

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> list[int]:
        """Send the signal to every process of that name and wait for their ends; the exit codes."""
        for process in self.running[name]:
            process.send(number)
        return await self.ends(name)

    async def ends(self, name: str) -> list[int]:
        """Wait until every process of that name has ended; the exit codes."""
        await self._drop_clients()
        return [await process.wait() for process in self.running.pop(name)]

    async def restart(self, name: str) -> None:
        """Start it again after `kill`."""
        assert name not in self.running
        await self.begin()

    async def stop(self) -> None:
        """Stop all by SIGTERM, the sandbox last; every exit code must be 0 and no log may hold a traceback."""
        await self._drop_clients()
        try:
            for names in ([name for name in self.names if name != "sandbox"], ["sandbox"]):
                ending = [process for name in names for process in self.running.get(name, [])]
                for process in ending:
                    process.send(signal.SIGTERM)
                codes = {process.order.log.name: await process.wait() for process in ending}
                assert set(codes.values()) <= {0}, f"{codes}\n{self.logs()}"
        finally:
            await self.abandon()
        assert not self.tracebacks(), self.tracebacks()

    async def abandon(self) -> None:
        """End what is left at once."""
        await self._drop_clients()
        for process in self.started:
            process.send(signal.SIGKILL)
        for process in self.started:
            await process.wait()
        await self.http.close()
        await self.db.close()
        self.house.close()

    def logs(self, lines: int = 40) -> str:
        """The end of what each process said."""
        told = []
        for process in self.started:
            head = f"(pid {process.pid}, exit code {process.code})"
            for path in (process.out, process.err):
                said = path.read_text(errors="replace").splitlines()[-lines:]
                told += [f"--- {path.name} {head}", *said] if said else []
        return "\n".join(told)

    def tracebacks(self) -> str:
        """The log lines that tell of a bug, of all processes."""
        lines = [line for p in self.started for line in p.err.read_text(errors="replace").splitlines()]
        return "\n".join(line for line in lines if "Traceback" in line)

    # Talking

    def url(self, name: str) -> str:
        """The base URL of the first instance of a daemon."""
        return self.urls(name)[0]

    def urls(self, name: str) -> list[str]:
        """The base URLs of all its instances."""
        if self.mode == "one":
            return [f"http://127.0.0.1:{self.house.base + OFFSETS[name]}"]
        return [url for process in self.running[name] for url in self._urls(process)]

    async def status(self, url: str, **headers: str) -> int:
        """The HTTP status of a GET, 0 where nobody listens."""
        try:
            async with self.http.get(url, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def token(self, name: str) -> str:
        """A client token for that butler, as `butlers token NAME` prints it."""
        if name not in self._tokens:
            self._tokens[name] = await mint(self.house.settings, name, timedelta(hours=2))
        return self._tokens[name]

    async def client(self, name: str, era: Era = "auto") -> McpClient:
        """An unmodified fastmcp client with a token, connected until the daemon is killed or the fleet stops."""
        if (name, era) not in self._clients:
            made = Client(f"{self.url(name)}/mcp", auth=await self.token(name), mode=era, timeout=30)
            held = AsyncExitStack()
            client = cast("McpClient", await held.enter_async_context(made))
            self._clients[name, era] = client, held
        return self._clients[name, era][0]

    async def call(self, name: str, tool: str, arguments: Mapping[str, object], era: Era = "auto") -> Answer:
        """The object a tool answers; that it is an ordinary result and no tool error is asserted."""
        client = await self.client(name, era)
        result = await client.call_tool(tool, dict(arguments), raise_on_error=False)
        assert not result.is_error, result
        assert result.structured_content is not None
        return result.structured_content

    async def notify(self, name: str = "health", /, **arguments: object) -> Answer:
        """The answer of `notify`."""
        return await self.call(name, "notify", arguments)

    async def session(self, name: str, request_context: Mapping[str, object] | None = None) -> tuple[str, str]:
        """A session of that butler that answers this request: its id, and the token its daemon would give it."""
        session_id = str(uuid4())
        await outside_sessions.begin(self.db, session_id, name, request_context)
        signer = Signer(name, keystore.read(self.house.home, name).private_pem, time.time)
        return session_id, mint_session_token(signer, session_id, timedelta(hours=1))

    async def notify_by(self, token: str, name: str = "health", /, **arguments: object) -> Answer:
        """The answer of `notify` to whoever bears this token."""
        async with Client(f"{self.url(name)}/mcp", auth=token, timeout=30) as client:
            result = await client.call_tool("notify", arguments, raise_on_error=False)
        assert result.structured_content is not None, result
        return cast("Answer", result.structured_content)

    async def hop(self, caller: str, target: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        """What a daemon's own token gets from another daemon's tool, by the raw request."""
        signer = Signer(caller, keystore.read(self.house.home, caller).private_pem, time.time)
        headers, body = request_of(signer.token_for(target), tool, arguments, 1)
        async with self.http.post(f"{self.url(target)}/mcp", json=body, headers=headers) as answer:
            assert answer.status == 200, answer.status
            return tool_object(await answer.read(), target, tool)

    async def _drop_clients(self) -> None:
        for _, held in self._clients.values():
            with suppress(Exception):
                await held.aclose()
        self._clients.clear()

    # Rows

    async def reconnect(self) -> None:
        """Connect again, after PostgreSQL has gone and come."""
        self.db.terminate()
        self.db = await asyncpg.connect(self.house.dsn, timeout=5)
        await prepare_connection(self.db)

    async def sql(self, query: str, *arguments: object) -> list[Record]:
        """Rows, by the superuser."""
        return await self.db.fetch(query, *arguments)

    async def value(self, query: str, *arguments: object) -> object:
        """One value, by the superuser."""
        return await self.db.fetchval(query, *arguments)

    async def contact(self, name: str, *, telegram: int | None = None, email: str | None = None) -> str:
        """A new contact with these primary identifiers; its id."""
        async with self.db.transaction():
            contact_id = await contacts.add_contact(self.db, name, [])
            for kind, value in (("telegram", telegram), ("email", email)):
                if value is not None:
                    await contacts.add_address(self.db, contact_id, kind, str(value), primary=True)
        return contact_id
