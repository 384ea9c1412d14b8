"""Notifications of the desktop: each way to end told apart, by a scripted server and by a real one."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from dbus_fast import Message

from butlers.desk.dbus import NAME, PATH, Dbus
from butlers.desk.desktop import Closed, Note, Plain
from shared.errors import Unavailable
from tests.desk.bus import Scripted, scripted, session_bus
from tests.desk.conftest import stub
from tests.desk.screen import Screen

NOTE = Note("one", "Question from greeter: Milk", "Which <milk>?", ["Oat", "Soy"], "Answer on the console.", "high")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with session_bus() as made:
        yield made


@pytest_asyncio.fixture
async def server(address: str) -> AsyncIterator[Scripted]:
    async with scripted(address, "actions", "body-markup") as made:
        yield made


@pytest_asyncio.fixture
async def desktop(address: str) -> AsyncIterator[Dbus]:
    made = Dbus(address)
    yield made
    await made.close()


async def test_a_notification_is_shown_with_its_buttons_within_half_a_second(server: Scripted, desktop: Dbus) -> None:
    begun = time.monotonic()
    showing = asyncio.create_task(desktop.show(NOTE))
    await server.until_shown()
    assert time.monotonic() - begun < 0.5
    [[name, _, _, title, body, actions, hints, expires]] = server.shown
    assert (name, title, body) == ("Butlers", NOTE.title, "Which &lt;milk&gt;?")
    assert (actions, hints["urgency"].value, expires) == (["0", "Oat", "1", "Soy"], 2, 0)  # type: ignore[index]
    assert "transient" not in hints  # type: ignore[operator]  # it goes to the notification centre too
    server.press(1, "1")
    server.end(1, 2)
    assert await showing == Closed("pressed", 1)


@pytest.mark.parametrize(("reason", "how"), [(1, "expired"), (2, "dismissed"), (3, "withdrawn"), (4, "gone")])
async def test_each_reason_is_told_apart(server: Scripted, desktop: Dbus, reason: int, how: str) -> None:
    showing = asyncio.create_task(desktop.show(NOTE))
    await server.until_shown()
    server.end(1, reason)
    assert (await asyncio.wait_for(showing, 1)).how == how


async def test_our_own_clock_ends_what_the_server_keeps(server: Scripted, desktop: Dbus) -> None:
    note = Note("late", "Late", "Nobody ends me", timeout=0.2)
    assert await asyncio.wait_for(desktop.show(note), 1) == Closed("expired")
    assert server.closed == [1]


async def test_what_is_answered_elsewhere_is_closed(server: Scripted, desktop: Dbus) -> None:
    first, second = (asyncio.create_task(desktop.show(Note(key, key, "text"))) for key in ("a", "b"))
    await server.until_shown(2)
    await desktop.withdraw("a")
    assert (await asyncio.wait_for(first, 1)).how == "withdrawn"
    assert not second.done()
    second.cancel()
    await asyncio.wait([second])
    assert server.closed == [1, 2]


async def test_a_server_without_buttons_gets_a_text_that_says_where_to_answer(address: str, desktop: Dbus) -> None:
    async with scripted(address, "body") as server:
        showing = asyncio.create_task(desktop.show(NOTE))
        await server.until_shown()
        assert server.shown[0][4:6] == ["Which <milk>?\nAnswer on the console.", []]
        server.end(1, 2)
        await showing


async def test_more_options_than_there_is_room_for_are_answered_elsewhere(server: Scripted, desktop: Dbus) -> None:
    showing = asyncio.create_task(desktop.show(Note("many", "t", "b", ["1", "2", "3", "4"], "Answer elsewhere.")))
    await server.until_shown()
    assert server.shown[0][4:6] == ["b\nAnswer elsewhere.", []]
    server.end(1, 2)
    await showing


async def test_a_text_that_is_cut_says_so(server: Scripted, desktop: Dbus) -> None:
    showing = asyncio.create_task(desktop.show(Note("long", "t" * 300, "b" * 3000, ["1"])))
    await server.until_shown()
    assert server.shown[0][3:5] == ["t" * 199 + "…", "b" * 1999 + "…"]
    server.end(1, 2)
    await showing


async def test_a_key_that_was_never_offered_and_a_signal_of_another_count_for_nothing(
    address: str, server: Scripted, desktop: Dbus
) -> None:
    showing = asyncio.create_task(desktop.show(NOTE))
    await server.until_shown()
    for key in ("default", "7", "-1", "²"):
        server.press(1, key)
    async with scripted(address) as stranger:
        assert desktop._bus is not None
        forged = Message.new_signal(PATH, NAME, "ActionInvoked", "us", [1, "0"])
        forged.destination = desktop._bus.unique_name  # what is sent to us alone passes every match rule
        stranger.bus.send(forged)
        await asyncio.sleep(0.1)
    assert not showing.done()
    server.press(1, "0")
    assert await showing == Closed("pressed", 0)


async def test_a_dead_bus_a_dead_server_and_a_silent_one_are_told_at_once(desktop: Dbus, address: str) -> None:
    async with scripted(address, "actions") as server:
        showing = asyncio.create_task(desktop.show(NOTE))
        await server.until_shown()
    assert (await asyncio.wait_for(showing, 1)).how == "gone"
    with session_bus() as short:
        other = Dbus(short)
        async with scripted(short, "actions") as server:
            showing = asyncio.create_task(other.show(NOTE))
            await server.until_shown()
            break_off = showing
            server.answers = False
    assert (await asyncio.wait_for(break_off, 1)).how == "gone"
    for nowhere in (short, "unix:path=/nowhere/at/all", "nonsense"):
        with pytest.raises(Unavailable, match="shows no notifications"):
            await Dbus(nowhere).show(NOTE)


DUNST = """
[global]
    mouse_left_click = do_action
    mouse_right_click = close_current
    geometry = "300x5-10+30"
    origin = top-left
    offset = 20x20
    width = 300
[urgency_normal]
    timeout = 0
"""


@pytest.fixture
def dunst(seen: Screen, address: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A real notification server on the real screen; the environment of its commands."""
    config = tmp_path / "dunstrc"
    config.write_text(DUNST, encoding="utf-8")
    env = {**os.environ, "DISPLAY": seen.display, "DBUS_SESSION_BUS_ADDRESS": address}
    with subprocess.Popen(
        ["dunst", "-conf", str(config)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + 5
        while subprocess.run(["dunstctl", "is-paused"], env=env, capture_output=True, check=False).returncode:
            assert time.monotonic() < until, "dunst does not start"
            time.sleep(0.05)
        try:
            yield env
        finally:
            process.kill()


async def test_a_real_server_tells_a_press_a_swipe_and_an_end_apart(
    seen: Screen, dunst: dict[str, str], desktop: Dbus
) -> None:
    async def shown(note: Note, *command: str) -> Closed:
        showing = asyncio.create_task(desktop.show(note))
        async with asyncio.timeout(3):
            while b"displayed: 1" not in (await ran("dunstctl", "count")).lower().replace(b"  ", b" "):
                await asyncio.sleep(0.05)
        await ran(*command)
        return await asyncio.wait_for(showing, 3)

    async def ran(*command: str) -> bytes:
        process = await asyncio.create_subprocess_exec(*command, env=dunst, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0]

    one = Note("real", "Real", "Press me", ["Yes"])
    assert await shown(one, "dunstctl", "action", "0") == Closed("pressed", 0)
    assert (await shown(one, "dunstctl", "close")).how == "dismissed"
    swipe = ("xdotool", "mousemove", "100", "40", "click", "3")
    assert (await shown(one, *swipe)).how == "dismissed"
    assert (await shown(Note("brief", "Brief", "I go", timeout=0.6), "true")).how == "expired"


@pytest.mark.parametrize(("platform", "command"), [("darwin", "osascript"), ("win32", "powershell")])
async def test_other_systems_show_it_plainly_and_run_no_text_of_others(
    stubs: Path, tmp_path: Path, platform: str, command: str
) -> None:
    stub(stubs, command, f'for word; do printf "%s\\0" "$word" >>{tmp_path}/told; done')
    note = Note("evil", "Title'; rm -rf", 'Body" & $(evil)', ["Yes"], "Answer on the console.")
    assert await Plain(platform).show(note) == Closed("plain")
    told = (tmp_path / "told").read_bytes().split(b"\0")
    if platform == "darwin":
        assert told[-4:-1] == [b"--", b"Title'; rm -rf", b'Body" & $(evil)\nAnswer on the console.']
    else:
        assert b"evil" not in b"".join(told)
    stub(stubs, command, "exit 1")
    assert (await Plain(platform).show(note)).how == "gone"
