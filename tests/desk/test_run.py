"""`butlers desk run`: open questions stand on the screen, and the first answer here goes to the console."""

import asyncio
import json
import os
import plistlib
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from butlers.desk.autostart import write_autostart
from butlers.desk.console import Question, is_private
from butlers.desk.dbus import Dbus
from butlers.desk.popup import Popups
from butlers.desk.run import WRITE, Following
from shared.auth.tokens import Unauthorized
from shared.errors import InvalidInput, Unavailable
from tests.desk.bus import Scripted, scripted, session_bus
from tests.desk.screen import Screen

MILK = Question("q1", "greeter", "Milk", "Which milk?", ["Oat", "Soy"], allow_text=False, urgency="normal")
FREE = Question("q2", "greeter", "Name", "What name?", ["OK"], allow_text=True, urgency="high")


class Fake:
    """A console whose open questions a test sets, and that keeps what is answered."""

    url = "http://console.test"

    def __init__(self) -> None:
        self.open: asyncio.Queue[Sequence[Question] | Exception] = asyncio.Queue()
        self.answers: list[tuple[str, dict[str, object]]] = []
        self.down = 0

    async def questions(self) -> AsyncGenerator[Sequence[Question], None]:
        while True:
            found = await self.open.get()
            if isinstance(found, Exception):
                raise found
            yield found

    async def answer(self, question: str, given: Mapping[str, object]) -> bool:
        if self.down:
            self.down -= 1
            raise Unavailable("The console does not answer.")
        self.answers.append((question, dict(given)))
        return True


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with session_bus() as made:
        yield made


@asynccontextmanager
async def following(address: str) -> AsyncIterator[tuple[Fake, Scripted, "asyncio.Task[None]", list[str]]]:
    async with scripted(address, "actions") as server:
        console, said = Fake(), list[str]()
        task = asyncio.create_task(Following(console, Dbus(address), Popups(), said.append).run())
        try:
            yield console, server, task, said
        finally:
            task.cancel()
            await asyncio.wait([task])


async def answered(console: Fake, count: int = 1) -> list[tuple[str, dict[str, object]]]:
    async with asyncio.timeout(5):
        while len(console.answers) < count:
            await asyncio.sleep(0.02)
    return list(console.answers)


async def test_a_button_and_a_swipe_are_answers(address: str) -> None:
    async with following(address) as (console, server, _, _said):
        console.open.put_nowait([MILK])
        await server.until_shown()
        assert server.shown[0][3:6] == ["Question from greeter: Milk", "Which milk?", ["0", "Oat", "1", "Soy"]]
        server.press(1, "1")
        assert await answered(console) == [("q1", {"option_index": 1})]
        console.open.put_nowait([MILK, FREE])  # the console says it is open still: it is not shown twice
        await server.until_shown(2)
        assert len(server.shown) == 2
        server.end(2, 2)
        assert (await answered(console, 2))[1] == ("q2", {"dismissed": True})


async def test_what_hides_in_a_question_is_written_out(address: str) -> None:
    async with following(address) as (console, server, _, _said):
        console.open.put_nowait([replace(MILK, title="Milk\n\u202eliO", question="a\u200bb", buttons=["Y\u202ees"])])
        await server.until_shown()
        assert server.shown[0][3:6] == [
            "Question from greeter: Milk<U+000A><U+202E>liO",
            "a<U+200B>b",
            ["0", "Y<U+202E>es"],
        ]
        server.end(1, 1)


def test_a_way_that_others_can_read_is_told() -> None:
    private = ("https://home.example", "http://127.0.0.1:8", "http://[::1]:8", "http://localhost:8/console")
    others = ("http://home.example", "http://192.168.0.7:8", "http://127.0.0.1.example")
    assert [is_private(one) for one in (*private, *others)] == [True] * 4 + [False] * 3


@pytest.mark.parametrize("url", ["nonsense", "http://[::1", "ftp://home.example", "localhost:14102", "https://a:99999"])
def test_what_is_no_address_of_a_console_is_sent_no_code(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no address of a console"):
        is_private(url)


async def test_what_is_answered_elsewhere_goes_and_what_expires_stays_unanswered(address: str) -> None:
    async with following(address) as (console, server, _, _said):
        console.open.put_nowait([MILK, FREE])
        await server.until_shown(2)
        console.open.put_nowait([FREE])
        async with asyncio.timeout(2):
            while server.closed != [1]:
                await asyncio.sleep(0.02)
        server.end(2, 1)
        await asyncio.sleep(0.2)
        assert console.answers == []


async def test_free_text_is_typed_into_a_popup_that_goes_when_it_is_answered_elsewhere(
    seen: Screen, address: str
) -> None:
    async with following(address) as (console, server, _, _said):
        console.open.put_nowait([FREE])
        await server.until_shown()
        assert server.shown[0][5] == ["0", "OK", "1", WRITE]
        server.press(1, "1")
        await asyncio.to_thread(seen.window, "greeter: Name")
        await asyncio.to_thread(seen.type, "Ada")
        await asyncio.to_thread(seen.key, "Return")
        assert await answered(console) == [("q2", {"text": "Ada"})]
        console.open.put_nowait([])
        console.open.put_nowait([FREE])
        await server.until_shown(2)
        server.press(2, "1")
        await asyncio.to_thread(seen.window, "greeter: Name")
        console.open.put_nowait([])
        async with asyncio.timeout(3):
            while await asyncio.to_thread(seen.windows, "greeter: Name"):
                await asyncio.sleep(0.05)
        assert len(console.answers) == 1


async def test_an_answer_waits_for_a_console_that_restarts(address: str) -> None:
    async with following(address) as (console, server, task, said):
        console.open.put_nowait([MILK])
        await server.until_shown()
        console.down = 1
        console.open.put_nowait(Unavailable("The console is away."))
        server.press(1, "0")
        assert await answered(console) == [("q1", {"option_index": 0})]
        assert said
        assert not task.done()


async def test_a_revoked_desk_says_so_and_ends(address: str) -> None:
    async with following(address) as (console, server, task, _said):
        console.open.put_nowait([MILK])
        await server.until_shown()
        console.open.put_nowait(Unauthorized("The token was revoked."))
        with pytest.raises(Unauthorized):
            await asyncio.wait_for(task, 1)
        assert server.closed == [1]


def resident(pid: int) -> int:
    """How many kilobytes a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.split("\n") if line.startswith("VmRSS")).split()[1])


def desk(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "butlers.cli", "desk", *words, "--folder", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def test_a_desk_that_is_not_signed_in_says_what_to_do(tmp_path: Path) -> None:
    done = desk("run", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "butlers: This desk is not signed in. Run `butlers desk pair` where your butlers are.\n",
    )


async def test_the_desk_is_one_small_process(address: str, tmp_path: Path) -> None:
    async def open_questions(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer token"
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        said = {"questions": [{**{name: getattr(MILK, name) for name in Question.__slots__}}]}
        await answer.write(f"event: questions\ndata: {json.dumps(said)}\n\n".encode())
        await asyncio.sleep(30)
        return answer

    app = web.Application()
    app.router.add_get("/desk/questions", open_questions)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    (tmp_path / "desk.json").write_text(json.dumps({"console": url, "token": "token", "users": []}), encoding="utf-8")
    async with scripted(address, "actions") as server:
        command = [sys.executable, "-m", "butlers.cli", "desk", "run", "--folder", str(tmp_path)]
        env = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": address}
        process = await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(15):
                while not server.shown:
                    await asyncio.sleep(0.05)
            assert resident(process.pid) <= 60 * 1024
        finally:
            process.kill()
            await process.wait()
            await runner.cleanup()


def test_install_writes_the_file_that_starts_it_and_says_which(tmp_path: Path) -> None:
    command = ["/opt/my butlers/python", "-m", "butlers.cli", "desk", "run", "--folder", "/a/50%$HOME"]
    unit = write_autostart("linux", tmp_path, command)
    assert unit.file == tmp_path / ".config/systemd/user/butlers-desk.service"
    assert 'ExecStart="/opt/my butlers/python" "-m"' in unit.file.read_text(encoding="utf-8")
    assert '"/a/50%%$$HOME"' in unit.file.read_text(encoding="utf-8")
    assert unit.start == "systemctl --user enable --now butlers-desk"
    agent = write_autostart("darwin", tmp_path, command)
    assert plistlib.loads(agent.file.read_bytes())["ProgramArguments"] == command
    with pytest.raises(InvalidInput):
        write_autostart("win32", tmp_path, command)
