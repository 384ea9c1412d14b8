"""The whole way: a butler asks, a window opens on the screen, a person types, and the call that waits is answered.

And whichever process is killed on that way, the person answers once and the answer is not lost.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from butlers.desk.run import WRITE
from tests.desk.bus import Scripted, scripted, session_bus
from tests.desk.screen import Screen
from tests.rig.bench import Bench
from tests.rig.cluster import ROOT
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANSWER: Final = "SELECT choice FROM shared.questions WHERE id = $1::text::uuid AND surface = 'desk'"
TOLD: Final = "SELECT count(*) FROM shared.notices WHERE key = $1"
# Of one butler three questions stand at a time: none of another test is among them.
END_ALL: Final = "UPDATE shared.questions SET status = 'expired', closed_at = now() WHERE status = 'open'"
PARTS: Final = ("desk", "console", "health", "messenger")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with session_bus() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home(bench: Bench) -> AsyncIterator[Fleet]:
    house = await bench.house()
    file = house.folder / "fleet" / "health" / "butler.toml"
    file.write_text(f"desk = true\n{file.read_text()}", encoding="utf-8")
    assert (await house.butlers("migrate"))[0] == 0
    made = await Fleet.start(house, "each")
    yield made
    await made.abandon()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(home: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a desk keeps that was paired and signed in by the two commands."""
    made = tmp_path_factory.mktemp("desk")
    code, said, wrong = await home.house.butlers("desk", "pair")
    assert code == 0, wrong
    command, secret = said.splitlines()
    assert command.startswith("butlers desk sign-in http")
    words = [sys.executable, "-m", "butlers.cli", *command.split()[1:], "--folder", str(made)]
    env, pipe = dict(home.house.env), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
    told, wrong_again = await process.communicate(secret.encode())
    assert (process.returncode, told.startswith(b"Signed in."), wrong_again) == (0, True, b"")
    return made


class Desk:
    """`butlers desk run` in a process of its own, which may be killed and started again."""

    def __init__(self, folder: Path, address: str, display: str) -> None:
        self._command = [sys.executable, "-m", "butlers.cli", "desk", "run", "--folder", str(folder)]
        self._env = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": address, "DISPLAY": display}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*self._command, env=self._env, stdout=quiet, stderr=quiet)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def at_work(folder: Path, address: str, seen: Screen) -> AsyncIterator[tuple[Desk, Scripted]]:
    desk = Desk(folder, address, seen.display)
    async with scripted(address, "actions") as server:
        await desk.start()
        try:
            yield desk, server
        finally:
            await desk.kill()


async def shown(server: Scripted, title: str, after: int = 0) -> tuple[int, list[str]]:
    """The number of the notification with that title, and its buttons, once it stands."""

    async def look() -> tuple[int, list[str]] | None:
        found = [(n, one) for n, one in enumerate(server.shown, 1) if n > after and str(one[3]).endswith(f": {title}")]
        return (found[-1][0], [str(part) for part in found[-1][1][5]]) if found else None  # type: ignore[attr-defined]

    return await eventually(look)


async def test_what_a_person_types_into_the_window_answers_the_call_that_waits(
    home: Fleet, folder: Path, address: str, seen: Screen
) -> None:
    asked = {"title": "Milk", "question": "Which milk?", "options": ["Oat", "Soy"], "allow_text": True}
    async with at_work(folder, address, seen) as (_, server):
        call = asyncio.create_task(home.call("health", "ask_user", {**asked, "wait_for_response": True, "timeout": 60}))
        number, buttons = await shown(server, "Milk")
        assert buttons == ["0", "Oat", "1", "Soy", "2", WRITE]
        server.press(number, "2")
        await asyncio.to_thread(seen.window, "health: Milk", 10)
        await asyncio.to_thread(seen.type, "Rice")
        await asyncio.to_thread(seen.key, "Return")
        answer = await asyncio.wait_for(call, 10)
        assert answer == {
            "response": "accepted",
            "choice": "Rice",
            "text": "Rice",
            "channel": "desk",
            "question_id": answer["question_id"],
        }


@pytest.mark.parametrize(
    ("typed", "said"),
    [("Nine", "User response: Nine"), ("", "User submitted empty response"), (None, "User dismissed the popup")],
    ids=["words", "empty", "escape"],
)
async def test_a_butler_s_popup_opens_by_itself_and_answers_in_the_contracts_words(
    home: Fleet, folder: Path, address: str, seen: Screen, typed: str | None, said: str
) -> None:
    async with at_work(folder, address, seen) as (_, server):
        client = await home.client("health")
        asked = {"message": "When?", "title": "Dinner", "timeout": 30}
        call = asyncio.create_task(client.call_tool("desk_notify", asked))
        await asyncio.to_thread(seen.window, "health: Dinner", 15)
        if typed:
            await asyncio.to_thread(seen.type, typed)
        await asyncio.to_thread(seen.key, "Escape" if typed is None else "Return")
        answer = await asyncio.wait_for(call, 10)
        assert [getattr(block, "text", None) for block in answer.content] == [said]
        assert server.shown == []


async def test_a_popup_shows_what_was_answered_on_another_surface(
    home: Fleet, folder: Path, address: str, seen: Screen
) -> None:
    asked = {"title": "Tea", "question": "Which tea?", "options": ["Green", "Black"]}
    question = str((await home.call("health", "ask_user", asked))["question_id"])
    code, _, wrong = await home.house.butlers("questions", "answer", question, "2")
    assert code == 0, wrong
    async with at_work(folder, address, seen):
        client = await home.client("health")
        call = asyncio.create_task(client.call_tool("desk_notify", {"message": "With milk?", "title": "Milky"}))
        at = await asyncio.to_thread(seen.window, "health: Milky", 15)
        x, y, _, height = seen.place(at)
        await asyncio.to_thread(seen.click, x + 60, y + height - 170)
        await asyncio.to_thread(seen.key, "ctrl+a", "ctrl+c")
        await asyncio.sleep(0.1)
        history = await asyncio.to_thread(seen.run, "xclip", "-o", "-selection", "clipboard")
        await asyncio.to_thread(seen.key, "Escape")
        await asyncio.wait_for(call, 10)
    assert history.endswith("Tea: Which tea?\n> Black")


async def test_a_popup_nobody_sees_is_out_of_time_or_refused_and_answered_elsewhere(home: Fleet) -> None:
    client = await home.client("health")
    for wrong, why in (
        ({"message": " "}, "Error: Message cannot be empty."),
        ({"message": "x" * 10_001}, "Error: 'question' is not a text of at most 10,000 characters. Shorten it."),
        ({"message": "x", "timeout": 4}, "Error: 'timeout' must be a number from 5 to 300. Leave it out for 60."),
        ({"message": "x", "theme": "dark"}, "Error: Unknown parameter 'theme'. Choose from: message, title, timeout."),
    ):
        answer = await client.call_tool("desk_notify", wrong, raise_on_error=False)
        assert answer.is_error
        assert [getattr(block, "text", None) for block in answer.content] == [why]
    answer = await client.call_tool("desk_notify", {"message": "Anybody?", "timeout": 5})
    assert [getattr(block, "text", None) for block in answer.content] == ["No response within 5s timeout"]
    assert await home.value("SELECT status FROM shared.questions WHERE question = 'Anybody?'") == "open"


async def test_each_end_of_a_question_is_told_as_the_contract_says_it(
    home: Fleet, folder: Path, address: str, seen: Screen
) -> None:
    """Five questions at once, each with a caller that waits, and each ended in another way on the screen."""
    yes_no, waits = ["Yes, merge", "No"], {"wait_for_response": True, "timeout": 60}

    def ask(butler: str, title: str, **more: object) -> "asyncio.Task[Mapping[str, object]]":
        asked = {"title": title, "question": "Shall I merge?", **waits, **more}
        return asyncio.create_task(home.call(butler, "ask_user", asked))

    await home.sql(END_ALL)
    async with at_work(folder, address, seen) as (_, server):
        calls = {
            "Action": ask("health", "Action", action_label="Merge"),
            "First": ask("health", "First", options=yes_no),
            "Second": ask("health", "Second", options=yes_no),
            "Closed": ask("greeter", "Closed"),
            "Late": ask("greeter", "Late", timeout=5),
        }
        at = {title: await shown(server, title) for title in calls}
        assert [at["Action"][1], at["First"][1], at["Closed"][1]] == [
            ["0", "Merge"],
            ["0", yes_no[0], "1", "No"],
            ["0", "OK"],
        ]
        server.press(at["Action"][0], "0")
        server.press(at["First"][0], "0")
        server.press(at["Second"][0], "1")
        server.end(at["Closed"][0], 2)
        said = {title: await asyncio.wait_for(call, 20) for title, call in calls.items()}
    told = {title: (one["response"], one["choice"], one.get("option_index")) for title, one in said.items()}
    assert told == {
        "Action": ("accepted", "Merge", None),
        "First": ("accepted", "Yes, merge", 0),
        "Second": ("dismissed", "No", 1),
        "Closed": ("dismissed", None, None),
        "Late": ("timeout", None, None),
    }
    asked = {"title": "Later", "question": "Which?"}
    at_once = await home.call("health", "ask_user", asked)
    assert at_once == {"sent": True, "message": "Question envoyee", "question_id": at_once["question_id"]}
    await home.call("health", "withdraw", {"question_id": at_once["question_id"]})


@pytest.mark.parametrize("moment", ["before", "while", "after"])
@pytest.mark.parametrize("part", PARTS)
async def test_a_kill_loses_no_answer(  # a step and a part
    home: Fleet, folder: Path, address: str, seen: Screen, part: str, moment: str
) -> None:
    """Killed while the question stands, while the answer is given, and right after that."""
    title = f"{part} {moment}"
    async with at_work(folder, address, seen) as (desk, server):

        async def kill() -> None:
            await (desk.kill() if part == "desk" else home.kill(part))

        async def back() -> None:
            await (desk.start() if part == "desk" else home.restart(part))

        asked = {"title": title, "question": "Which?", "options": ["Oat", "Soy"]}
        question = (await home.call("health", "ask_user", asked))["question_id"]
        number, _ = await shown(server, title)
        if moment == "before":
            await kill()
            await back()
            if part == "desk":
                number, _ = await shown(server, title, number)
            server.press(number, "0")
        else:
            if moment == "while":
                await kill()
            server.press(number, "0")
            if moment == "after":
                await asyncio.sleep(0.05)
                await kill()
            await back()
            if part == "desk" and await home.value(ANSWER, question) is None:  # what a dead desk had not brought yet
                number, _ = await shown(server, title, number)
                server.press(number, "0")
        assert await eventually(partial(home.value, ANSWER, question)) == "Oat"
        assert await eventually(partial(home.value, TOLD, question)) == 1
        status = await home.call("health", "question_status", {"question_id": question})
        assert status["choice"] == "Oat"
