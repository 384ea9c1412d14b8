"""Serves a sandbox over real sockets inside a test's own loop, and speaks to it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvicorn

from messenger.sandbox.app import MailSink, create_app
from messenger.sandbox.sandbox import Sandbox
from tests.rig.waiting import LONGEST

OWNER = 5000000000000001
# Seconds. A kept connection that ends just when it is used again would fail a test on a slow machine.
KEPT = 600


class Server(uvicorn.Server):
    """A uvicorn server that leaves the test process's signals alone and ends without its fixed pauses."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        await self.ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.wait_for(self._wait_tasks_to_complete(), LONGEST)
        await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Running:
    """A sandbox that listens."""

    url: str
    port: int
    smtp_port: int
    imap_port: int
    sandbox: Sandbox
    http: aiohttp.ClientSession

    async def bot(self, method: str, token: str = "42:A", /, **params: object) -> tuple[int, Mapping[str, object]]:
        """One call of the Bot API with a JSON body."""
        async with self.http.post(f"{self.url}/bot{token}/{method}", json=params) as answer:
            shape = await answer.json()
            assert isinstance(shape, dict)
            return answer.status, shape

    async def api(self, name: str, /, **asked: object) -> Mapping[str, object]:
        """One call of the sandbox's own API that must succeed; `as_` stands for `as`."""
        body = {key.rstrip("_"): value for key, value in asked.items()}
        async with self.http.post(f"{self.url}/api/{name}", json=body) as answer:
            shape = await answer.json()
            assert answer.ok, shape
            assert isinstance(shape, dict)
            return shape

    async def journal(self, method: str = "") -> list[Mapping[str, object]]:
        """The journal over HTTP, or only the lines of one method."""
        async with self.http.get(f"{self.url}/api/journal") as answer:
            lines = [json.loads(line) for line in (await answer.text()).splitlines()]
        return [line for line in lines if method in ("", line["payload"].get("method", "mail"))]

    async def until_journalled(self, method: str, count: int = 1) -> list[Mapping[str, object]]:
        """The journal's lines of one method, as soon as there are that many."""
        async with asyncio.timeout(LONGEST):
            while len(lines := await self.journal(method)) < count:
                await asyncio.sleep(0.01)
        return lines


@asynccontextmanager
async def running(home: Path, mail: MailSink | None = None) -> AsyncIterator[Running]:
    """A sandbox in `home` on free ports of 127.0.0.1; it has ended, with its files closed, when the block is left."""
    app = create_app(home, OWNER, mail=mail or MailSink())
    server = Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_keep_alive=KEPT, timeout_graceful_shutdown=2)
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST)) as http:
            ports = app.state.smtp_port, app.state.imap_port
            yield Running(f"http://127.0.0.1:{port}", port, *ports, app.state.sandbox, http)
    finally:
        app.state.sandbox.stop()
        await asyncio.sleep(0.005)  # uvicorn looks only every 0.1 s whether the last connection is closed
        server.ending.set()
        await serving
