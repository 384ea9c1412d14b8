"""A console session is its user's of this computer: a copy of the cookie is worth nothing to anybody else there."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import aiohttp
import pytest
from starlette.types import Scope
from structlog.testing import capture_logs

from butlers.console.storage.sessions import make_sign_in_link
from butlers.desk.console import Console
from shared.auth import peer
from shared.errors import Unavailable
from tests.integration.console_runner import Running, running
from tests.integration.peopled import peopled
from tests.rig.cluster import Cluster
from tests.rig.rows import every_row
from tests.rig.waiting import LONGEST

STRANGER: Final = "64009"
NOBODY: Final = "65534"


def become(uid: str) -> tuple[str, ...]:
    """What runs a program as that user; skips where that cannot be."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root may start processes under other users, and setpriv does it")
    return "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"


# Run by the other user: it is told what to ask, and says what it was answered.
ASK: Final = """
import http.client, json, sys
told = []
for host, port, method, path, body, headers in json.load(sys.stdin):
    one = http.client.HTTPConnection(host, port, timeout=30)
    one.request(method, path, body, headers)
    answer = one.getresponse()
    told.append([answer.status, answer.getheader("Location") or "", answer.read().decode()])
    one.close()
print(json.dumps(told))
"""

# The same, in the console's place: one connection, accepted at once, later, or before it listens no more.
TAKE: Final = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
if sys.argv[1] == "waits":
    sys.stdin.readline()
taken, _ = listening.accept()
if sys.argv[1] == "writes no more":
    listening.close()
    taken.shutdown(socket.SHUT_WR)
    print("left", flush=True)
if sys.argv[1] == "leaves":
    listening.close()
    print("left", flush=True)
print(taken.recv(4096))
"""


@contextmanager
def connected(host: str, to: str) -> Iterator[tuple[socket.socket, Scope]]:
    """A connection of ours to ourselves: the end of who called, and how a request that came by it would begin."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except OSError:
        if family == socket.AF_INET:
            raise
        pytest.skip("this machine has no IPv6")
    with closing(listening):
        caller = socket.create_connection((to, listening.getsockname()[1]))
        called, _ = listening.accept()
        with caller, called:
            yield caller, {"client": called.getpeername()[:2], "server": called.getsockname()[:2]}


@pytest.mark.parametrize(
    ("host", "to"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::ffff:127.0.0.1")]
)
def test_the_kernel_names_the_user_of_a_connection_as_long_as_it_stands(host: str, to: str) -> None:
    with connected(host, to) as (caller, scope):
        assert peer.uid_of(scope) == os.getuid()
        swapped = {"client": (scope["client"][0], 1), "server": scope["server"]}
        assert peer.uid_of(swapped) is None
        caller.shutdown(socket.SHUT_WR)
        assert peer.uid_of(scope) is None
        caller.close()
        assert peer.uid_of(scope) is None  # a listener is left at that address, and not who called


async def taken(how: str) -> tuple[asyncio.subprocess.Process, int]:
    """Another user's program in the console's place, and its port."""
    pipe = asyncio.subprocess.PIPE
    program = *become(STRANGER), sys.executable, "-c", TAKE, how
    process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe, env={"PATH": os.defpath})
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


@pytest.mark.parametrize("how", ["accepts", "waits"])
async def test_a_desk_sends_its_token_to_no_other_user_at_the_consoles_port(how: str) -> None:
    process, port = await taken(how)
    desk = Console(f"http://127.0.0.1:{port}", "the desk's token", frozenset({1000, 64010}))
    with pytest.raises(Unavailable, match="Another user of this computer listens"):
        await anext(desk.questions()) if how != "waits" else await desk.answer("1", {"text": "yes"})
    async with asyncio.timeout(LONGEST):
        got, _ = await process.communicate(b"go on\n")
    assert got == b"b''\n"


@pytest.mark.parametrize("how", ["leaves", "writes no more"])
async def test_whoever_has_accepted_and_listens_no_more_is_known(how: str) -> None:
    process, port = await taken(how)
    assert process.stdout is not None
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert await process.stdout.readline() == b"left\n"
        assert peer.holders(connection) == {int(STRANGER)}
    await process.communicate()


@pytest.mark.parametrize("client", [None, ("testclient", 50000), ("", 0), ("192.0.2.1", 4711)])
def test_who_calls_from_elsewhere_is_nobody_of_this_computer(client: tuple[str, int] | None) -> None:
    assert peer.uid_of({"client": client, "server": ("127.0.0.1", 41102)}) is None


@dataclass(slots=True)
class Callers:
    """Who calls, for a console that asks."""

    uid: int | None = None

    def uid_of(self, _scope: Scope) -> int | None:
        return self.uid


@pytest.mark.parametrize(
    ("begun", "asks", "counts"),
    [
        (1000, 1000, True),
        (1000, 1001, False),
        (1000, 0, False),
        (1000, None, False),
        (0, 1000, False),
        (0, None, False),
        (None, 1001, True),
        (None, None, True),
    ],
)
async def test_a_cookie_counts_from_the_user_who_signed_in(
    cluster: Cluster, tmp_path: Path, begun: int | None, asks: int | None, *, counts: bool
) -> None:
    callers = Callers(begun)
    async with running(cluster, tmp_path, callers.uid_of) as console:
        ids = await peopled(console)
        await console.sign_in()
        csrf, before = await console.csrf(), await every_row(console.sql)
        callers.uid = asks
        pages = [*ids.pages(), "/confirm?next=/rules", "/sign-in"]
        with capture_logs() as logs:
            got = {path: (await console.get(path)).status for path in pages}
        said = [line["uid"] for line in logs if "another user" in str(line["event"])]
        assert set(said) == (set() if counts or asks is None else {asks})
        assert any("no user of this computer" in line["event"] for line in logs) == (not counts and asks is None)
        if counts:
            assert got == dict.fromkeys(ids.pages(), 200) | {"/confirm?next=/rules": 303, "/sign-in": 303}
            return
        assert got == dict.fromkeys([*ids.pages(), "/confirm?next=/rules"], 303) | {"/sign-in": 200}
        assert (await console.get("/events", Accept="text/event-stream")).status == 401
        for path, fields in ids.forms().items():
            answer = await console.post(path, csrf=csrf, **fields)
            assert (answer.status, await answer.text() if path != "/sign-in" else "") == (
                403 if path == "/sign-in" else 303,
                "",
            )
        assert await every_row(console.sql) == before
        callers.uid = begun
        answer = await console.post(f"/approvals/{ids.action}", csrf=csrf, word="deny", revision="1")
        assert answer.status == 303
        assert await console.sql.fetchval("SELECT status FROM shared.pending_actions WHERE id = $1", ids.action) == (
            "denied"
        )


async def test_a_link_signs_in_the_user_for_whom_it_was_made(cluster: Cluster, tmp_path: Path) -> None:
    """Another user reads it in the browser's title while the page waits for the owner's press."""
    callers = Callers(1001)
    async with running(cluster, tmp_path, callers.uid_of) as console:
        await make_sign_in_link(console.sql, console.url, "a link", [1002, 1000])
        refused = await console.post("/sign-in", code="a link")
        assert (refused.status, "for another user of this computer" in await refused.text()) == (403, True)
        callers.uid = 1000
        assert (await console.post("/sign-in", code="a link")).status == 303
        assert (await console.post("/sign-in", code="a link")).status == 403
        callers.uid = None  # as from another computer
        await make_sign_in_link(console.sql, console.url, "another", [1000])
        assert (await console.post("/sign-in", code="another")).status == 303


async def ask_as_stranger(
    console: Running, *asked: tuple[str, str, Mapping[str, str]], uid: str = STRANGER
) -> list[tuple[int, str, str]]:
    """What another user of this computer is answered who has the owner's cookies; a form of fields is posted."""
    cookies = "; ".join(f"{cookie.key}={cookie.value}" for cookie in console.http.cookie_jar)
    headers = {"Cookie": cookies, "Origin": console.url}
    posted = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    host, port = console.url.removeprefix("http://").split(":")
    told = [
        (host, int(port), method, path, urlencode(fields) or None, posted if fields else headers)
        for method, path, fields in asked
    ]
    process = await asyncio.create_subprocess_exec(
        *become(uid),
        sys.executable,
        "-c",
        ASK,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath},
    )
    async with asyncio.timeout(LONGEST):
        answered, _ = await process.communicate(json.dumps(told).encode())
    return [tuple(one) for one in json.loads(answered)]


@pytest.mark.parametrize("uid", [STRANGER, NOBODY])
async def test_a_link_signs_in_no_other_user_whatever_their_number(console: Running, uid: str) -> None:
    await make_sign_in_link(console.sql, console.url, "for one", [1000])
    [(status, _, _)] = await ask_as_stranger(console, ("POST", "/sign-in", {"code": "for one"}), uid=uid)
    assert status == 403


async def test_a_connection_that_ends_without_an_answer_does_not_end_the_desk() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        desk = Console(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "the desk's token")
        with pytest.raises(Unavailable, match="does not answer"):
            await anext(desk.questions())


async def test_another_user_with_the_owners_cookie(console: Running) -> None:
    action = await console.park(message="Only the owner may read this.")
    await console.sign_in()
    csrf, before = await console.csrf(), await every_row(console.sql)
    got = await ask_as_stranger(
        console,
        ("GET", "/", {}),
        ("GET", f"/approvals/{action}", {}),
        ("POST", f"/approvals/{action}", {"word": "approve", "revision": "1", "csrf": csrf}),
        ("POST", "/sign-out", {"csrf": csrf}),
        ("GET", "/sign-in", {}),
    )
    assert [(status, place.partition("?")[0]) for status, place, _ in got] == [(303, "/sign-in")] * 4 + [(200, "")]
    assert "Only the owner may read this." not in "".join(text for _, _, text in got)
    assert await every_row(console.sql) == before
    async with aiohttp.ClientSession(cookie_jar=console.http.cookie_jar) as another_browser:
        answer = await console.send(
            f"/approvals/{action}",
            {"word": "deny", "revision": "1", "csrf": csrf},
            {"Origin": console.url},
            another_browser,
        )
    assert answer.status == 303
    assert await console.sql.fetchval("SELECT status FROM shared.pending_actions WHERE id = $1", action) == "denied"
