"""What a session's process is given, what it may take, and that nothing of it is left."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from butlers.runtime import child
from butlers.runtime.base import Called, Ended, Event, Job, Limits, Said, Used
from butlers.runtime.child import Command
from butlers.runtime.registry import RUNTIMES
from tests.integration.runtime.small_butler import KEYS, PERSONA, TOKEN, SmallButler
from tests.rig.waiting import until

FREE = Limits()
LOOK = """
import json, os, stat, sys
files = {name: oct(stat.S_IMODE(os.stat(name).st_mode)) for name in os.listdir()}
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "files": files, "stdin": sys.stdin.read()}))
"""
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
print(os.getpid(), other.pid, flush=True)
time.sleep(600)
"""
PARENT = """
import asyncio, sys
from pathlib import Path
from butlers.runtime.base import Job, Limits, Said
from butlers.runtime.registry import RUNTIMES

async def main(folder):
    runtime = RUNTIMES["command"]
    settings = runtime.config.model_validate({"command": [sys.executable, "-c", sys.argv[2]]})
    job = Job("s1", "garden", "", "", "http://127.0.0.1:9", folder / "token", folder / "room", Limits(), settings)
    async for event in runtime.run(job, asyncio.Event()):
        if isinstance(event, Said):
            print(event.text, flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


def program(text: str, **more: object) -> Mapping[str, object]:
    """The table of a butler for which this Python thinks."""
    return {"command": [sys.executable, "-I", "-c", text, "{config}"], **more}


def job_of(butler: SmallButler, folder: Path, name: str, table: Mapping[str, object], limits: Limits) -> Job:
    return butler.job(folder, RUNTIMES[name].config.model_validate(table), limits)


async def played(
    butler: SmallButler, folder: Path, table: Mapping[str, object], name: str = "command", limits: Limits = FREE
) -> list[Event]:
    """All that a runtime tells of one job."""
    job = job_of(butler, folder, name, table, limits)
    async with asyncio.timeout(60):
        return [event async for event in RUNTIMES[name].run(job, asyncio.Event())]


def alive(pid: int) -> bool:
    """Whether the process runs, and is no remnant that only waits to be reaped."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


async def test_its_environment_is_what_its_table_names(
    butler: SmallButler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUTLERS_ANTHROPIC_API_KEY", "of-the-daemon")
    monkeypatch.setenv("DATABASE_URL", "postgresql://of-the-daemon")
    [said, end] = await played(butler, tmp_path, program(LOOK, environment={"BEDS": "3"}))
    assert isinstance(said, Said)
    assert end == Ended("done", said.text)
    seen, room = json.loads(said.text), str(tmp_path / "room")
    assert seen["env"].keys() - {"PWD"} == {"PATH", "HOME", "TMPDIR", "LANG", "BEDS"}
    assert (seen["cwd"], seen["env"]["HOME"], seen["env"]["TMPDIR"]) == (room, room, room)
    assert (seen["env"]["BEDS"], seen["stdin"]) == ("3", "How are the beds?")
    assert seen["files"] == {"stdin": "0o600", "mcp.json": "0o600", "persona.md": "0o600"}
    assert not [secret for secret in (TOKEN, *KEYS.values()) if secret in said.text]


async def test_it_gets_only_the_keys_that_its_table_names(butler: SmallButler, tmp_path: Path) -> None:
    text = "import os; print(sorted(name for name in os.environ if 'KEY' in name), os.environ['OPENAI_API_KEY'])"
    *_, end = await played(butler, tmp_path, program(text, keys=["openai"]))
    assert end == Ended("done", "['OPENAI_API_KEY'] ***")


async def test_a_bearer_it_prints_is_masked(butler: SmallButler, tmp_path: Path) -> None:
    text = "import sys; print(open(sys.argv[1]).read()); print(open(sys.argv[1]).read(), file=sys.stderr); sys.exit(3)"
    events = await played(butler, tmp_path, program(text))
    assert "Bearer ***" in str(events[0])
    assert "ended with exit code 3 before it was done: " in str(events[-1])
    assert TOKEN not in str(events)


def claude(folder: Path, *lines: object) -> Path:
    """A command line that looks at what it was given, and then says these lines."""
    file = folder / "claude"
    told = "".join(f"print({json.dumps(json.dumps(line))})\n" for line in lines)
    look = "import json, os, sys\njson.dump({'argv': sys.argv, 'env': sorted(os.environ)}, open('looked', 'w'))\n"
    file.write_text(f"#!{sys.executable}\n{look}{told}")
    file.chmod(0o700)
    return file


async def test_claude_code_is_given_no_secret_and_no_words_as_arguments(butler: SmallButler, tmp_path: Path) -> None:
    await played(butler, tmp_path, {"command": str(claude(tmp_path))}, "claude", Limits(turns=7, dollars=0.5))
    seen = json.loads((tmp_path / "room" / "looked").read_text())
    words = " ".join(seen["argv"])
    assert not [secret for secret in (TOKEN, PERSONA, "How are", *KEYS.values()) if secret in words]
    assert "--max-turns=7 --max-budget-usd=0.5" in words
    assert "--bare --no-session-persistence --strict-mcp-config" in words
    assert "--allowedTools=mcp__garden " in words
    assert seen["argv"][seen["argv"].index("--tools") + 1] == ""
    assert "ANTHROPIC_API_KEY" in seen["env"]
    assert not [name for name in seen["env"] if "OPENAI" in name or "BUTLERS" in name]


async def test_nothing_that_costs_is_begun_where_no_dollar_is_left(butler: SmallButler, tmp_path: Path) -> None:
    limits, table = Limits(dollars=0), {"command": str(claude(tmp_path, DONE))}
    assert await played(butler, tmp_path, table, "claude", limits) == [
        Ended("limit", "The session has no dollars left.")
    ]
    assert list((tmp_path / "room").iterdir()) == []


USAGE = {"input_tokens": 150_000, "output_tokens": 1}
CALLS = [{"type": "tool_use", "name": "mcp__garden__beds"}]
THINKS = {"type": "assistant", "message": {"id": "m1", "content": CALLS, "usage": USAGE}}
BEGINS = {"type": "system", "subtype": "init", "mcp_servers": [{"name": "garden", "status": "connected"}]}
DONE = {"type": "result", "subtype": "success", "result": "Three."}
LINES = {
    "its butler is away": ([{**BEGINS, "mcp_servers": [{"status": "failed"}]}, DONE], "failed"),
    "more tokens than allowed": ([THINKS, {**THINKS, "message": {**THINKS["message"], "id": "m2"}}], "limit"),  # type: ignore[dict-item]
    "its own limit": ([THINKS, {"type": "result", "subtype": "error_max_budget_usd", "total_cost_usd": 1.2}], "limit"),
    "an error": ([{"type": "result", "subtype": "success", "is_error": True, "result": "API Error"}], "failed"),
    "nonsense": (["{", 3, {"type": "assistant"}], "failed"),
    "a whole session": ([BEGINS, THINKS, THINKS, DONE], "done"),
}


@pytest.mark.parametrize(("lines", "outcome"), LINES.values(), ids=LINES)
async def test_claude_codes_lines_are_read(
    lines: list[object], outcome: str, butler: SmallButler, tmp_path: Path
) -> None:
    events = await played(butler, tmp_path, {"command": str(claude(tmp_path, *lines))}, "claude")
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome == outcome
    assert "\n" not in events[-1].text
    assert {event.tool for event in events if isinstance(event, Called)} <= {"beds"}


@pytest.mark.parametrize(("lines", "dollars"), [((), 0.5), (({**DONE, "total_cost_usd": 0.1},), 0.1)])
async def test_what_claude_code_leaves_unsaid_counts_as_all_that_it_may_cost(
    lines: tuple[object, ...], dollars: float, butler: SmallButler, tmp_path: Path
) -> None:
    table, limits = {"command": str(claude(tmp_path, BEGINS, THINKS, *lines))}, Limits(dollars=0.5)
    events = await played(butler, tmp_path, table, "claude", limits)
    assert [event.dollars for event in events if isinstance(event, Used)][-1] == dollars


async def test_what_claude_code_cost_beyond_its_limit_counts(butler: SmallButler, tmp_path: Path) -> None:
    end = {**DONE, "subtype": "error_max_budget_usd", "total_cost_usd": 5.0}
    table, limits = {"command": str(claude(tmp_path, BEGINS, THINKS, end))}, Limits(dollars=0.5)
    events = await played(butler, tmp_path, table, "claude", limits)
    assert events[-2:] == [Used(1, 150_001, 5.0), Ended("limit", "The session reached its limit of 0.5 dollars.")]


async def test_ten_megabytes_of_output_end_it(butler: SmallButler, tmp_path: Path) -> None:
    assert await played(butler, tmp_path, program("print('x' * 12_000_000)")) == [
        Ended("failed", "The session's process wrote more than 10 MB.")
    ]


async def test_lines_without_end_leave_others_their_turn(butler: SmallButler, tmp_path: Path) -> None:
    unbroken = [0]

    def read(_: bytes) -> Iterator[Event]:
        unbroken[-1] += 1
        yield from ()

    async def others() -> None:
        while True:
            unbroken.append(0)
            await asyncio.sleep(0)

    job = job_of(butler, tmp_path, "command", program("pass"), FREE)
    lines = Command((sys.executable, "-I", "-c", "import sys; sys.stdout.write('\\n' * 500_000)"), "", 1024)
    beside = asyncio.create_task(others())
    async with asyncio.timeout(60):
        assert [type(event) async for event in child.played(job, lines, read, asyncio.Event())] == [Ended]
    beside.cancel()
    assert sum(unbroken) >= 500_000
    assert max(unbroken) < 1000


@pytest.mark.parametrize("how", ["its minutes are over", "the owner stops it"])
async def test_nothing_more_is_read_of_one_that_is_to_end(how: str, butler: SmallButler, tmp_path: Path) -> None:
    stop, said = asyncio.Event(), 0
    limits, end = (Limits(minutes=0.02), "longer than") if how.startswith("its") else (FREE, "was stopped")
    job = job_of(butler, tmp_path, "command", program("print('A bed.\\n' * 1000)"), limits)
    async with asyncio.timeout(60):
        async for event in RUNTIMES["command"].run(job, stop):
            if isinstance(event, Ended):
                assert end in event.text
                break
            # As where each word is written down: the program has long ended by then.
            await asyncio.sleep(0.01)
            said += 1
            if said == 20 and limits == FREE:
                stop.set()
    assert said < 1000


async def test_its_memory_is_bounded(butler: SmallButler, tmp_path: Path) -> None:
    text = "print(len(bytearray(200_000_000)))"
    [end] = await played(butler, tmp_path, program(text, memory_mb=100))
    name = Path(sys.executable).name
    assert end == Ended("failed", f"`{name}` ended with exit code 1 before it was done: MemoryError")


async def test_it_is_ended_when_its_minutes_are_over(butler: SmallButler, tmp_path: Path) -> None:
    limits = Limits(minutes=0.02)
    assert await played(butler, tmp_path, program("import time; time.sleep(600)"), limits=limits) == [
        Ended("limit", "The session took longer than 0.02 minutes.")
    ]


@pytest.mark.parametrize("how", ["stopped", "left"])
async def test_one_that_ignores_sigterm_is_ended_with_all_it_started(
    how: str, butler: SmallButler, tmp_path: Path
) -> None:
    job, stop = job_of(butler, tmp_path, "command", program(STUBBORN), Limits()), asyncio.Event()
    pids: list[int] = []
    ends: list[Event] = []
    async with asyncio.timeout(60), aclosing(RUNTIMES["command"].run(job, stop)) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Said):
                pids = [int(word) for word in event.text.split()]
                assert all(map(alive, pids))
                if how == "left":
                    break
                stop.set()
            else:
                ends.append(event)
    assert ends == ([Ended("failed", "The session was stopped.")] if how == "stopped" else [])
    await until(lambda: not any(map(alive, pids)))
    assert len(pids) == 2


async def test_it_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "token").write_text(TOKEN)
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), STUBBORN, stdout=asyncio.subprocess.PIPE, cwd=Path.cwd()
    )
    assert parent.stdout is not None
    async with asyncio.timeout(60):
        pids = [int(word) for word in (await parent.stdout.readline()).split()]
        assert len(pids) == 2
        os.kill(parent.pid, signal.SIGKILL)
        await parent.wait()
    await until(lambda: not any(map(alive, pids)))


async def test_one_that_is_killed_ends_in_a_sentence(butler: SmallButler, tmp_path: Path) -> None:
    [end] = await played(butler, tmp_path, program("import os; os.kill(os.getpid(), 9)"))
    assert isinstance(end, Ended)
    assert (end.outcome, end.text) == ("failed", f"`{Path(sys.executable).name}` was ended by SIGKILL.")


MISSING: list[tuple[str, Mapping[str, object], Mapping[str, str], str]] = [
    ("command", {"command": ["no-such-program"]}, {}, "`no-such-program` is not a program of this computer"),
    ("command", {"command": ["sh"], "keys": ["openai"]}, {}, "There is no openai key: set BUTLERS_OPENAI_API_KEY"),
    ("claude", {"command": "no-such-program"}, KEYS, "`no-such-program` is not a program of this computer"),
    ("claude", {"command": "sh"}, {}, "Claude Code has no key: set BUTLERS_ANTHROPIC_API_KEY"),
    ("agent", {"model": "anthropic:x"}, {}, "`anthropic:x` has no key: set BUTLERS_ANTHROPIC_API_KEY"),
    ("agent", {"model": "openai:x"}, {}, "`openai:x` has no key: set BUTLERS_OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("name", "table", "keys", "says"), MISSING, ids=lambda value: str(value)[:40])
def test_what_is_missing_is_said(name: str, table: Mapping[str, object], keys: Mapping[str, str], says: str) -> None:
    runtime = RUNTIMES[name]
    said = runtime.missing(runtime.config.model_validate(table), keys)
    assert said is not None
    assert said.startswith(says)


async def test_a_program_that_is_not_there_ends_the_session(butler: SmallButler, tmp_path: Path) -> None:
    [end] = await played(butler, tmp_path, {"command": ["no-such-program"]})
    assert isinstance(end, Ended)
    assert end.text.startswith("`no-such-program` cannot be started: ")
