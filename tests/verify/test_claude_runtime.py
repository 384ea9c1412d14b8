"""The real Claude Code plays the story of all runtimes, with a stand-in for its model; its version is in the lock file.

Without the npm package of `clients` the tests fail.
"""

import asyncio
import base64
import io
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from butlers.modules.manictime.fixture import make
from butlers.runtime.base import Called, Ended, Limits, Said
from butlers.runtime.claude import QUIET
from butlers.runtime.registry import RUNTIMES
from tests.acceptance.test_story import by_a_model
from tests.integration.runtime.small_butler import KEYS, TOKEN, SmallButler, small_butler
from tests.integration.runtime.story import claude
from tests.integration.runtime.test_story import played, the_story
from tests.manictime.desks import desk_over
from tests.rig.bench import Bench
from tests.rig.cluster import ROOT
from tests.rig.fleet import Mode
from tests.rig.model_server import Call, Fault, ModelServer, Words, model_server
from tests.story import conversation

LOCKS = Path(__file__).parent / "clients"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command line as the lock file names it, from the package index that this machine is set up for.

    Of the whole run, so that it comes before any house of a module: the loop of one that has begun would stand still
    meanwhile, and its open units of work would be ended by the database.
    """
    folder = tmp_path_factory.mktemp("claude") / "node"
    shutil.copytree(LOCKS, folder)

    async def installed() -> None:
        process = await asyncio.create_subprocess_exec(
            "npm", "ci", "--no-audit", "--no-fund", cwd=folder, env=os.environ, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(300):
            assert await process.wait() == 0

    asyncio.run(installed())
    [found] = (folder / "node_modules" / "@anthropic-ai").glob("claude-code-*/claude")
    return found


@pytest_asyncio.fixture
async def butler() -> AsyncIterator[SmallButler]:
    async with small_butler() as made:
        yield made


@pytest_asyncio.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with model_server() as made:
        yield made


async def test_claude_code_reads_a_tool_tells_the_owner_and_ends(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    await the_story(claude(str(program)), butler, models, tmp_path)


async def conversed(program: Path, bench: Bench) -> tuple[ModelServer, conversation.Conversation]:
    """What the model was asked in one conversation, and what was said in it."""
    async with conversation.by_a_model(bench, claude(str(program)), "mcp__health__") as (telling, models):
        await conversation.tell(telling)
        await telling.all_is_over()
    return models, telling.told


def asked_again(models: ModelServer) -> bool:
    """Whether it asked its model the same twice: it then calls a tool twice and shows the model one result."""
    return any((one.said, one.results) == (again.said, again.results) for one, again in pairwise(models.asked))


@pytest.mark.asyncio(loop_scope="module")
async def test_it_plays_the_conversation_and_reads_the_notice_with_its_next_result(program: Path, bench: Bench) -> None:
    models, told = await conversed(program, bench)
    for _ in range(2):
        if asked_again(models):  # on a busy machine
            models, told = await conversed(program, bench)
    conversation.demand_read(models, told)


FAULTS: list[tuple[Fault, str]] = [
    ("529", "Claude Code failed: API Error: Repeated 529 Overloaded errors."),
    ("401", "Claude Code failed: Failed to authenticate."),
    ("cut", "Claude Code failed: API Error: Connection to the API was lost"),
    ("nonsense", "Claude Code failed: API Error: API returned an empty or malformed response"),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS, ids=lambda value: value[:8])
async def test_a_model_that_fails_ends_it_with_a_sentence(
    fault: Fault, says: str, program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("mcp__garden__beds"), fault)
    *_, end = await played(claude(str(program)), butler, models, tmp_path)
    assert isinstance(end, Ended)
    assert (end.outcome, end.text[: len(says)]) == ("failed", says)


async def test_it_ends_at_the_limit_of_turns(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("mcp__garden__beds"))
    *_, end = await played(claude(str(program)), butler, models, tmp_path, Limits(turns=2))
    assert end == Ended("limit", "The session reached its limit of 2 turns.")
    assert len(models.asked) == 2


async def test_its_model_is_shown_a_long_result_to_its_end(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    """Where a block of notices stands."""
    models.play(Call("mcp__garden__contract"), Words("Three months."))
    await played(claude(str(program)), butler, models, tmp_path)
    assert models.asked[-1].results[-1].endswith("Signed.")


async def test_it_has_no_tool_but_its_butlers(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("Bash", {"command": "touch ran"}), Words("I have none."))
    events = await played(claude(str(program)), butler, models, tmp_path)
    assert [event for event in events if isinstance(event, Called | Said)] == [Called("Bash"), Said("I have none.")]
    [result] = models.asked[-1].results
    assert "No such tool available: Bash" in result
    assert not (tmp_path / "room" / "ran").exists()


async def test_without_its_butler_it_asks_no_model(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Words("All is well."))
    runtime, player = RUNTIMES["claude"], claude(str(program))
    settings = runtime.config.model_validate(player.table)
    job = butler.job(tmp_path, settings, Limits(), **player.environment(models))
    job.token_file.write_text("of-a-session-that-is-over")
    events = [event async for event in runtime.run(job, asyncio.Event())]
    assert events == [Ended("failed", "Claude Code could not reach its butler, or its token was refused.")]


async def test_no_secret_is_in_the_arguments_of_any_process(
    program: Path, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play("slow")
    player, runtime = claude(str(program)), RUNTIMES["claude"]
    settings = runtime.config.model_validate(player.table)
    job, stop = butler.job(tmp_path, settings, Limits(), **player.environment(models)), asyncio.Event()

    async def looking() -> str:
        async with asyncio.timeout(60):
            while not models.asked:
                await asyncio.sleep(0.05)
        seen = await asyncio.to_thread(arguments)
        stop.set()
        return seen

    look = asyncio.create_task(looking())
    events = [event async for event in runtime.run(job, stop)]
    seen = await look
    assert events == [Ended("failed", "The session was stopped.")]
    assert str(program) in seen
    assert not [secret for secret in (TOKEN, *KEYS.values()) if secret in seen]


def arguments() -> str:
    """The argument lists of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue  # it has ended meanwhile
    return "\n".join(found)


@pytest.mark.parametrize("mode", ["one", "each"])
@pytest.mark.asyncio(loop_scope="module")
async def test_claude_code_wakes_by_the_clock_and_asks_before_it_acts(program: Path, bench: Bench, mode: Mode) -> None:
    await by_a_model(bench, mode, claude(str(program)), "mcp__greeter__")


async def test_it_lists_looks_cuts_and_saves_by_the_timekeeper_alone(
    program: Path, models: ModelServer, tmp_path: Path
) -> None:
    """Claude Code starts the timekeeper itself, shows its model the thumbnail and the part, and saves in its folder."""
    make(tmp_path / "data", "real", 2)
    [shot, *_] = desk_over(tmp_path / "data").pictures.captures()
    ref, room = {"screenshotRef": shot.ref}, tmp_path / "room"
    await asyncio.to_thread(room.mkdir)
    models.play(
        Call("mcp__timekeeper__list_screenshots", {"startDate": "2025-01-13", "endDate": "2025-01-15"}),
        Call("mcp__timekeeper__get_screenshot", ref),
        Call("mcp__timekeeper__crop_screenshot", {**ref, "x": 0, "y": 0, "width": 50, "height": 50}),
        Call("mcp__timekeeper__save_screenshot", {**ref, "outputPath": "day/one"}),
        Words("It is saved."),
    )
    assert "It is saved." in await by_itself(program, models, tmp_path / "data", room)
    raw = await asyncio.to_thread((room / "day/one.jpg").read_bytes)
    listed, shown, part, saved = models.asked[-1].blocks
    assert f'"screenshotRef":"{shot.ref}"' in str(listed)
    assert [sizes(one) for one in (shown, part)] == [[(320, 180), (640, 360)], [(320, 180)]]
    assert f'"size":{len(raw)}' in str(saved)


def sizes(result: object) -> list[tuple[int, int]]:
    """The sizes of the pictures that the model is shown."""
    blocks = result if isinstance(result, list) else []
    raws = [base64.b64decode(one["source"]["data"]) for one in blocks if one["type"] == "image"]
    return [Image.open(io.BytesIO(raw)).size for raw in raws]


async def by_itself(program: Path, models: ModelServer, data: Path, room: Path) -> str:
    """What Claude Code prints, run in this folder with the timekeeper as its one server."""
    words = ["-m", "butlers.cli", "manictime", "mcp", "--data", str(data), "--timezone", "Europe/Vienna"]
    config = {
        "mcpServers": {"timekeeper": {"command": sys.executable, "args": words, "env": {"PYTHONPATH": str(ROOT)}}}
    }
    given = ["--print", "--bare", "--strict-mcp-config", "--mcp-config", json.dumps(config), "--tools", ""]
    process = await asyncio.create_subprocess_exec(
        *(str(program), *given, "--allowedTools=mcp__timekeeper", "Save a screenshot."),
        cwd=room,
        env={
            **QUIET,
            "PATH": os.environ["PATH"],
            "HOME": str(room),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": models.url,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()
