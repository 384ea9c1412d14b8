"""Sessions in a whole fleet: asked from the terminal, told by Telegram, stopped, and lost with their daemon."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.inbound.commands import UNREAD
from shared.storage import sessions
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.children import child_of, children, command, environment
from tests.rig.fleet import Fleet, Mode
from tests.rig.waiting import LONGEST, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TELLS = 'call = "notify"\narguments = { channel = "telegram", message = "Heard: ${prompt}" }'
SAYS = 'say = "It is told: ${notify.status}."'
NAPS = "wait = 300"
A_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


async def started(bench: Bench, mode: Mode, scripts: Mapping[str, Sequence[str]]) -> Fleet:
    """A fleet whose butlers play these scripts."""
    house = await bench.house()
    for name, steps in scripts.items():
        path = house.folder / "fleet" / name / "butler.toml"
        table = ['[runtime]\nkind = "script"', *(f"[[runtime.steps]]\n{step}" for step in steps)]
        path.write_text("\n".join([path.read_text(), *table]) + "\n")
    return await Fleet.start(house, mode)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(bench: Bench) -> AsyncIterator[Fleet]:
    """All in one process."""
    fleet = await started(bench, "one", {"greeter": [TELLS, SAYS], "health": [NAPS]})
    try:
        yield fleet
        await fleet.stop()
    except BaseException:
        await fleet.abandon()
        raise


async def enqueue(fleet: Fleet, butler: str, prompt: str) -> str:
    """A session that waits; its id."""
    session_id = str(uuid4())
    await sessions.enqueue(fleet.db, session_id=session_id, butler=butler, cause="test", prompt=prompt)
    return session_id


async def until_it_is(fleet: Fleet, session_id: str, wanted: str) -> None:
    async with asyncio.timeout(LONGEST):
        while await fleet.value("SELECT status FROM shared.sessions WHERE id::text = $1", session_id) != wanted:
            await asyncio.sleep(0.05)


def token_file(fleet: Fleet, session_id: str) -> Path:
    """The file of the session's token."""
    return fleet.house.home / "sessions" / session_id / "token"


def private_token(fleet: Fleet, session_id: str) -> str:
    """The session's token, which nobody else may read."""
    path = token_file(fleet, session_id)
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text(encoding="utf-8")


async def test_the_owner_asks_and_reads_the_answer_here_and_in_telegram(one: Fleet) -> None:
    said = fresh.words("water the roses")
    code, out, err = await one.house.butlers("ask", "greeter", said)
    assert (code, err) == (0, ""), (out, err, one.logs())
    assert "It is told: ok." in out
    await one.outside.arrived(f"Heard: {said}", OWNER)
    _, out, _ = await one.house.butlers("sessions", "list", "--butler", "greeter", "--json")
    (session,) = [found for found in json.loads(out)["sessions"] if found["prompt"] == said]
    _, out, _ = await one.house.butlers("sessions", "show", session["id"][:8], "--json")
    shown = json.loads(out)
    assert (shown["status"], shown["runtime"], shown["used"]["turns"]) == ("done", "script", 1)
    assert [(step["tool"], step["status"]) for step in shown["steps"]] == [("notify", "ok")]
    assert not shown["told_nobody"]


async def test_what_the_owner_writes_to_the_bot_is_read_and_answered(one: Fleet) -> None:
    said = f"/greeter {fresh.words('are the roses dry')}"
    await one.outside.say(OWNER, said)
    await one.outside.arrived(f"Heard: {said}", OWNER)
    begun = await one.sql("SELECT cause, request_context FROM shared.sessions WHERE prompt = $1", said)
    assert [row["cause"] for row in begun] == ["message"]
    assert begun[0]["request_context"]["source_channel"] == "telegram"
    assert not await one.outside.having(UNREAD)


async def test_a_child_has_nothing_of_ours_and_is_gone_when_the_owner_stops_it(one: Fleet) -> None:
    session_id = await enqueue(one, "health", "sleep")
    await child_of(session_id)
    for pid in children(session_id):
        seen = environment(pid) + command(pid)
        assert "BUTLERS_" not in seen
        assert "DATABASE_URL" not in seen
        assert not A_TOKEN.search(seen)
    token = private_token(one, session_id)
    assert (await one.notify_by(token, channel="telegram", message=fresh.words("awake")))["status"] == "ok"
    code, _, _ = await one.house.butlers("sessions", "stop", session_id[:8])
    assert code == 0
    await until_it_is(one, session_id, "stopped")
    assert not children(session_id)
    await until(lambda: None if token_file(one, session_id).exists() else True)
    head = {"Authorization": f"Bearer {token}"}
    said = {"channel": "telegram", "message": "from beyond"}
    async with one.http.post(f"{one.url('health')}/notify", json=said, headers=head) as answer:
        assert answer.status in {401, 403}


async def test_what_cannot_be_asked_is_refused_in_a_sentence(one: Fleet) -> None:
    for words, wrong in (
        (("ask", "nobody", "x"), "butlers: Unknown butler `nobody`."),
        (("ask", "messenger", "x"), "butlers: Nothing thinks for `messenger` here."),
        (("ask", "greeter", " "), "butlers: A prompt has 1 to 20000 characters"),
        (("sessions", "show", "zz"), "butlers: No session begins with `zz`."),
        (("sessions", "stop", str(uuid4())), "butlers: No session begins with"),
    ):
        code, _, err = await one.house.butlers(*words)
        assert code == 1
        assert err.startswith(wrong), err


@pytest.mark.slow
async def test_killed_daemons_leave_no_child_and_two_processes_share_the_work(bench: Bench) -> None:
    fleet = await started(bench, "each", {"greeter": [TELLS, NAPS], "health": [NAPS]})
    try:
        await _killed(fleet)
        await _shared(fleet)
        await fleet.stop()
    except BaseException:
        await fleet.abandon()
        raise


async def _killed(fleet: Fleet) -> None:
    """A session that told the owner is lost with its daemon and told once; one that called nothing begins again."""
    said = fresh.words("before the end")
    told, idle = await enqueue(fleet, "greeter", said), await enqueue(fleet, "health", fresh.words("idle"))
    await fleet.outside.arrived(f"Heard: {said}", OWNER)
    await child_of(idle)
    for name in ("greeter", "health"):
        await fleet.kill(name)
    await until(lambda: None if children(told) or children(idle) else True)
    await fleet.begin()
    await until_it_is(fleet, told, "lost")
    await fleet.outside.arrived(f"It is not begun again. It was asked: “{said}”", OWNER)
    await until_it_is(fleet, idle, "running")
    await child_of(idle)
    assert await fleet.value("SELECT attempt FROM shared.sessions WHERE id::text = $1", idle) == 2
    assert len(await fleet.outside.having(said)) == 2  # what it told, and that it is lost
    await sessions.ask_to_stop(fleet.db, idle)
    await until_it_is(fleet, idle, "stopped")


async def _shared(fleet: Fleet) -> None:
    """Of one butler's sessions one runs at a time, in order, whoever runs it."""
    second = fleet.house.spawn(["run", "health", "--port", str(fleet.house.base + 12)], "second-health")
    fleet.started.append(second)
    await fleet.until_ready(second)
    waiting = [await enqueue(fleet, "health", fresh.words("in turn")) for _ in range(3)]
    for number, session_id in enumerate(waiting):
        await until_it_is(fleet, session_id, "running")
        running = await fleet.sql("SELECT id::text FROM shared.sessions WHERE status = 'running'")
        assert [row["id"] for row in running] == waiting[number : number + 1]
        await sessions.ask_to_stop(fleet.db, session_id)
        await until_it_is(fleet, session_id, "stopped")
    second.send(signal.SIGTERM)
    assert await second.wait() == 0
