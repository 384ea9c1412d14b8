"""The console on a phone, in the two ways of docs/operations.md: a forwarded port, and a server with TLS in front."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from tests.integration.console_runner import PASSWORD, Running, running
from tests.rig.cluster import Cluster
from tests.rig.tls import certificate

NAME = "computer.tailnet.example"
CSRF = 'name="csrf" value="'


@asynccontextmanager
async def forwarded(to: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a relay that passes bytes on as they come, as SSH does; with TLS in front, as a proxy does."""
    there = urlsplit(to)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while read := await reader.read(65_536):
            writer.write(read)
            await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, onward = await asyncio.open_connection(there.hostname, there.port)
        await asyncio.gather(copy(reader, onward), copy(behind, writer), return_exceptions=True)

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def denies(console: Running, http: aiohttp.ClientSession, origin: str, headers: Mapping[str, str]) -> bool:
    """Sign in at that address and deny what waits, as a browser does; whether it was taken."""
    action = await console.park(message="Lunch on Thursday?")
    ours = {**headers, "Origin": origin, "Sec-Fetch-Site": "same-origin"}
    signed = await http.post("/sign-in", data={"password": PASSWORD}, headers=ours, allow_redirects=False)
    assert signed.status == 303, await signed.text()
    page = await (await http.get("/", headers=headers)).text()
    assert "Lunch on Thursday?" in page
    form = {"csrf": page.split(CSRF)[1].split('"')[0], "word": "deny", "revision": "1"}
    said = await http.post(f"/approvals/{action}", data=form, headers=ours, allow_redirects=False)
    status = await console.sql.fetchval("SELECT status FROM shared.pending_actions WHERE id = $1::text::uuid", action)
    return (said.status, status) == (303, "denied")


def browser(url: str, trusted: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=trusted or True, force_close=True)
    return aiohttp.ClientSession(url, connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_by_a_port_that_ssh_forwards(cluster: Cluster, tmp_path: Path) -> None:
    async with running(cluster, tmp_path) as console, forwarded(console.url) as port:
        url = f"http://127.0.0.1:{port}"
        async with browser(url) as http:
            assert await denies(console, http, url, {})


async def test_by_a_server_with_tls_in_front_under_the_public_url(cluster: Cluster, tmp_path: Path) -> None:
    tls, trusted = certificate(tmp_path)
    public = f"https://{NAME}"
    async with (
        running(cluster, tmp_path, BUTLERS_PUBLIC_URL=public) as console,
        forwarded(console.url, tls) as port,
        browser(f"https://localhost:{port}", trusted) as http,
    ):
        assert await denies(console, http, public, {"Host": NAME})
        stranger = await http.get("/healthz", headers={"Host": f"other.{NAME}"})
        assert stranger.status == 421
