"""A running fleet takes up new, changed and removed butlers, and loses no call."""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from fastmcp import Client

from shared.storage.session_list import REMOVED
from tests.rig.bench import OWNER, Bench, House
from tests.rig.fleet import OFFSETS, UP, Fleet
from tests.rig.outside import Entry
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="session")
READY = "SELECT EXISTS (SELECT FROM switchboard.butlers WHERE name = $1 AND status = 'ready')"
TIMED = """
[[schedules]]
name = "soon"
at = "%s"
tool = "notify"
arguments = { channel = "telegram", message = "The garden is dry." }
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet in one process, of this module's own."""
    fleet = await Fleet.start(await bench.house())
    yield fleet
    await fleet.stop()


def butler(house: House, name: str, more: str = "") -> Path:
    """A butler's folder with this in its butler.toml."""
    folder = house.folder / "fleet" / name
    folder.mkdir(exist_ok=True)
    (folder / "butler.toml").write_text(f'name = "{name}"\ndescription = "Looks after {name}."\n{more}')
    (folder / "PERSONA.md").write_text(f"# {name}\n")
    return folder


async def reloaded(house: House) -> str:
    """What `butlers reload` says."""
    code, out, err = await house.butlers("reload")
    assert code == 0, err
    return out


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST):
        while not true():
            await asyncio.sleep(0.05)


SLOW = '[runtime]\nkind = "script"\n[[runtime.steps]]\nwait = 60\n'
ASKED = """
INSERT INTO shared.sessions (id, butler, cause, prompt) SELECT gen_random_uuid(), $1, 'test', unnest($2::text[])
"""


async def until_running(fleet: Fleet) -> None:
    async with asyncio.timeout(30):
        while not await fleet.value("SELECT count(*) FROM shared.sessions WHERE status = 'running'"):
            await asyncio.sleep(0.1)


async def tools(fleet: Fleet, name: str) -> Sequence[str]:
    client = await fleet.client(name)
    return [tool.name for tool in await client.list_tools()]


async def test_butlers_come_change_and_go_while_calls_go_on(running: Fleet) -> None:
    fleet, house = running, running.house
    assert "Nothing has changed." in await reloaded(house)
    answers: list[str] = []
    asking = True

    async def ask(number: int) -> None:
        async with Client(f"{fleet.url('health')}/mcp", auth=await fleet.token("health"), timeout=30) as client:
            while asking:
                words = {"channel": "telegram", "message": f"word {number} of {len(answers)}"}
                result = await client.call_tool("notify", words, raise_on_error=False)
                answers.append(str((result.structured_content or {}).get("status", result)))

    callers = [asyncio.create_task(ask(number)) for number in range(4)]
    await until(lambda: len(answers) > 4)
    butler(house, "health", 'modules = ["state"]\n')
    butler(house, "garden", f'modules = ["schedule"]\n{TIMED % datetime.now(UTC).isoformat()}{SLOW}')
    said = await reloaded(house)
    assert "Added garden; changed health." in said
    after = len(answers)
    await until(lambda: len(answers) > after + 4)
    asking = False
    await asyncio.gather(*callers)
    assert set(answers) == {"ok"}
    assert "state_get" in await tools(fleet, "health")
    OFFSETS["garden"] = 12
    try:
        assert "remind_me" in await tools(fleet, "garden")
        await fleet.outside.arrived("The garden is dry.", OWNER)
        await fleet.sql(ASKED, "garden", ["first", "second"])
        await until_running(fleet)
        shutil.rmtree(house.folder / "fleet" / "garden")
        assert "Removed garden." in await reloaded(house)
        rows = await fleet.sql(
            "SELECT status, outcome FROM shared.sessions WHERE prompt = ANY ($1)", ["first", "second"]
        )
        assert [tuple(row.values()) for row in rows] == [("failed", REMOVED)] * 2
        for said in ("“first”", "“second”"):
            await fleet.outside.until(partial(told_of_the_end, said))
        assert await fleet.value("SELECT bool_or(has_runtime) FROM switchboard.butlers WHERE name = 'garden'") is False
        await fleet.sql(ASKED, "garden", ["third"])
        told = "".join((await house.butlers("migrate"))[1:])
        assert f"garden: {REMOVED} 1 session that waited for it ended." in told
        assert "It was asked: “third”" in told
        assert not await fleet.value("SELECT count(*) FROM switchboard.butlers WHERE name = 'garden'")
        assert await fleet.status(f"{fleet.url('garden')}/healthz") == 0
    finally:
        OFFSETS.pop("garden")
    assert (await fleet.notify(channel="telegram", message="All is well."))["status"] == "ok"


def told_of_the_end(words: str, entry: Entry) -> bool:
    return REMOVED in entry.text and words in entry.text


async def test_a_mistake_changes_nothing_and_each_is_said(running: Fleet) -> None:
    house = running.house
    await running.client("health")
    butler(house, "health", 'calls = ["greetr"]\n')
    butler(house, "greeter", 'modulse = []\n[[schedules]]\nname = "a"\ncron = "61 * * * *"\ntool = "notify"\n')
    code, _, err = await house.butlers("fleet", "check")
    assert code == 1
    assert "unknown key `modulse`. Did you mean `modules`?" in err
    assert "[[schedules]] a: `cron` cannot be read: bad minute. Write for example" in err
    assert (await house.butlers("reload"))[0] == 1
    # By SIGHUP alone it is refused in the process.
    (process,) = running.running[UP]
    process.send(signal.SIGHUP)
    await until(lambda: "Not reloaded" in process.err.read_text())
    assert (await running.notify(channel="telegram", message="Still here."))["status"] == "ok"
    watches = 'modules = ["files"]\n'
    butler(house, "health", f'{watches}[[schedules]]\nname = "a"\ncron = "1 * * * *"\ntool = "notfy"\n')
    butler(house, "greeter", 'calls = ["helth"]\n')
    code, _, err = await house.butlers("fleet", "check")
    assert "`calls` names `helth`, who is not in the fleet. Did you mean `health`?" in err
    assert "[[schedules]] a: the butler has no tool `notfy`. Did you mean `notify`?" in err
    called = 'cron = "1 * * * *"\ntool = "notify"\narguments = { chanel = "telegram" }\n'
    butler(house, "greeter", f'[[schedules]]\nname = "a"\n{called}')
    code, _, err = await house.butlers("fleet", "check")
    assert "[[schedules]] a: `arguments`: the tool `notify` has no `chanel`. Did you mean `channel`?" in err
    assert "[[schedules]] a: `arguments`: the tool `notify` cannot take them: 'channel' is a required property." in err
    butler(house, "greeter", f'[[schedules]]\nname = "a"\n{called.replace("chanel", "message = 5, channel")}')
    code, _, err = await house.butlers("fleet", "check")
    assert "[[schedules]] a: `arguments`: the tool `notify` cannot take them: `message`: 5 is not of type" in err
    asked = 'tool = "ask_butler"\narguments = { butler = "health", prompt = "How was the night?" }\n'
    butler(house, "greeter", f'calls = ["health"]\n[[schedules]]\nname = "a"\ncron = "1 * * * *"\n{asked}')
    butler(house, "health")
    code, out, _ = await house.butlers("fleet", "check")
    assert (code, out) == (0, "2 butlers, no mistake: greeter, health.\n")


LINGERS = """
import asyncio
from butlers.butler import Components, Module


async def linger(stopping):
    await asyncio.Event().wait()


MODULE = Module("lingers", lambda context, config: Components(loops=[linger]))
"""


async def test_what_a_reload_left_at_work_is_cut_off_when_the_process_stops(bench: Bench) -> None:
    house = await bench.house()
    (house.folder / "fleet" / "lingers.py").write_text(LINGERS)
    butler(house, "greeter", 'modules = ["lingers"]\n')
    fleet = await Fleet.start(house)
    try:
        butler(house, "greeter")
        assert "Changed greeter." in await reloaded(house)
        assert await fleet.kill(UP, signal.SIGINT) == [0]
    finally:
        await fleet.abandon()


@pytest.mark.slow
async def test_what_a_reload_added_before_it_failed_is_changed_by_the_next(bench: Bench) -> None:
    house = await bench.house()
    fleet = await Fleet.start(house)
    try:
        butler(house, "ivy")
        butler(house, "pool")
        last = max(urlsplit(fleet.url(name)).port or 0 for name in ("greeter", "health"))
        with socket.create_server(("127.0.0.1", last + 2)):
            await house.butlers("reload")
        butler(house, "ivy", 'calls = ["health"]\n')
        said = await reloaded(house)
    finally:
        await fleet.stop()
    assert "Added pool; changed ivy." in said


@pytest.mark.slow
async def test_a_process_of_all_butlers_takes_up_a_new_one_after_migrate(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(), "each")
    try:
        together = fleet.house.spawn(["run", "fleet"], "fleet")
        fleet.started.append(together)
        await fleet.until_ready(together)
        butler(fleet.house, "garden", 'modules = ["state"]\n')
        assert "Not reloaded" in (await fleet.house.butlers("reload"))[1]
        assert (await fleet.house.butlers("migrate"))[0] == 0
        assert "Added garden." in await reloaded(fleet.house)
        async with asyncio.timeout(LONGEST):
            while not await fleet.db.fetchval(READY, "garden"):
                await asyncio.sleep(0.05)
    finally:
        await fleet.stop()
