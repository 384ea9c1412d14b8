"""Sessions that really run: a child per session, its words, its end, and what is left when somebody is killed."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.storage import sessions
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House
from tests.rig.fleet import Fleet
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TELLS = 'call = "notify"\narguments = { channel = "telegram", message = "Heard: ${prompt}" }'
SAYS = 'say = "It is told: ${notify.status}."'
NAPS = "wait = 60"
SCRIPTS = {"greeter": [TELLS, SAYS], "napper": [NAPS], "caller": [TELLS, NAPS]}
# The same words by which the child of a session finds its way.
TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def write_scripts(house: House) -> None:
    """Give each butler its runtime."""
    for name, steps in SCRIPTS.items():
        path = house.folder / "fleet" / name / "butler.toml"
        if path.exists():
            table = ['[runtime]\nkind = "script"', *(f"[[runtime.steps]]\n{step}" for step in steps)]
            path.write_text("\n".join([path.read_text(), *table]) + "\n")


@pytest_asyncio.fixture(loop_scope="module")
async def running(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet whose butlers play scripts."""
    house = await bench.house(butlers=("greeter", "health", "napper", "caller"))
    write_scripts(house)
    fleet = await Fleet.start(house)
    try:
        yield fleet
        await fleet.stop()
    finally:
        await fleet.abandon()


async def enqueue(fleet: Fleet, butler: str, prompt: str, **more: str) -> str:
    """A session that waits; its id."""
    session_id = str(uuid4())
    await sessions.enqueue(fleet.db, session_id=session_id, butler=butler, cause="test", prompt=prompt, **more)  # type: ignore[arg-type]
    return session_id


async def status(fleet: Fleet, session_id: str) -> str:
    return str(await fleet.value("SELECT status FROM shared.sessions WHERE id::text = $1", session_id))


async def until_status(fleet: Fleet, session_id: str, wanted: str) -> None:
    async def is_so() -> bool:
        return await status(fleet, session_id) == wanted

    async with asyncio.timeout(30):
        while not await is_so():
            await asyncio.sleep(0.05)


def children(session_id: str) -> list[int]:
    """The processes whose folder is this session's."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            try:
                if session_id in os.readlink(one / "cwd"):
                    found.append(int(one.name))
            except OSError:
                pass
    return found


async def test_the_owner_asks_and_reads_the_answer_here_and_in_telegram(running: Fleet) -> None:
    said = fresh.words("water the roses")
    code, out, err = await running.house.butlers("ask", "greeter", said)
    assert (code, err) == (0, ""), (out, err, running.logs())
    assert "It is told: ok." in out
    await running.outside.arrived(f"Heard: {said}", OWNER)
    code, out, _ = await running.house.butlers("sessions", "list", "--butler", "greeter", "--json")
    (session,) = [one for one in json.loads(out)["sessions"] if one["prompt"] == said]
    code, out, _ = await running.house.butlers("sessions", "show", session["id"][:8], "--json")
    shown = json.loads(out)
    assert (shown["status"], shown["runtime"], shown["used"]["turns"], shown["told_nobody"]) == (
        "done",
        "script",
        1,
        False,
    )
    assert [(step["tool"], step["status"]) for step in shown["steps"]] == [("notify", "ok")]
    assert not (running.house.home / "sessions" / session["id"]).exists()


async def test_the_child_has_nothing_of_ours_and_is_gone_when_the_owner_stops_it(running: Fleet) -> None:
    session_id = await enqueue(running, "napper", "sleep")
    found = await until(lambda: children(session_id))
    seen = [(Path(f"/proc/{pid}/environ").read_text(), Path(f"/proc/{pid}/cmdline").read_text()) for pid in found]
    for environment, command in seen:
        assert "BUTLERS_" not in environment
        assert "DATABASE_URL" not in environment
        assert not TOKEN.search(environment + command)
    token_file = running.house.home / "sessions" / session_id / "token"
    assert token_file.stat().st_mode & 0o777 == 0o600
    token = token_file.read_text()
    code, _, _ = await running.house.butlers("sessions", "stop", session_id[:8])
    assert code == 0
    await until_status(running, session_id, "stopped")
    assert not children(session_id)
    assert not token_file.parent.exists()
    answer = await running.http.post(
        f"{running.url('greeter')}/notify",
        json={"channel": "telegram", "message": "x"},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status == 401
