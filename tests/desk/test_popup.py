"""The contract of the tool `notify` at the desk, with real windows: every text, and how a window behaves."""

import asyncio
import os
import signal
import subprocess
import time
import tkinter as tk
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from butlers.butler import ToolCall
from butlers.desk import theme, window
from butlers.desk.notify import PARAMETERS, Conversation, components, popup_of, sentence
from butlers.desk.popup import Popup, PopupEnd, Popups
from shared.auth.tokens import Caller
from shared.errors import InvalidInput
from tests.desk.conftest import stub
from tests.desk.screen import Screen, screen

WITHIN = 5.0
Hands = Callable[[Screen, str], None]


def asked(title: str, **more: object) -> ToolCall:
    return called({"message": "How are you?", "title": title, **more})


def called(arguments: Mapping[str, object]) -> ToolCall:
    return ToolCall(Caller("desk", "client", "test"), arguments)


async def silent(_title: str, _message: str) -> bool:
    return False


def conversation() -> Conversation:
    return Conversation(Popups(), silent)


def text_of(result: object) -> str:
    return str(result.blocks[0].text)  # type: ignore[attr-defined]  # one text block is the contract


async def told(screen: Screen, call: ToolCall, hands: Hands, talk: Conversation | None = None) -> str:
    """What the caller is told when these hands are at the popup."""
    task = asyncio.create_task((talk or conversation()).notify(call))
    at = await asyncio.to_thread(screen.window, str(call.arguments["title"]))
    await asyncio.to_thread(hands, screen, at)
    return text_of(await asyncio.wait_for(task, WITHIN))


def typing(*keys: str) -> Hands:
    """Hands that type words, and press what stands in angle brackets."""

    def hands(screen: Screen, _window: str) -> None:
        for key in keys:
            if key.startswith("<"):
                screen.key(key.strip("<>"))
            else:
                screen.type(key)

    return hands


def closing(screen: Screen, at: str) -> None:
    screen.run("wmctrl", "-i", "-c", at)


def cancelling(screen: Screen, at: str) -> None:
    """Press Cancel: from the input, the keyboard comes to Send and then to Cancel."""
    x, y, width, height = screen.place(at)
    screen.click(x + width - 140, y + height - 30)


@pytest.mark.parametrize(
    ("hands", "said"),
    [
        (typing("Fine, thanks", "<Return>"), "User response: Fine, thanks"),
        (typing("one", "<shift+Return>", "two", "<Return>"), "User response: one\ntwo"),
        (typing("never mind", "<Escape>"), "User cancelled the popup"),
        (cancelling, "User cancelled the popup"),
        (closing, "User dismissed the popup"),
        (typing("<Return>"), "User submitted empty response"),
        (typing("   ", "<shift+Return>", "<Return>"), "User submitted empty response"),
    ],
    ids=["reply", "two_lines", "escape", "cancel", "close", "empty", "blank"],
)
async def test_what_the_person_does_is_told_in_the_contracts_words(seen: Screen, hands: Hands, said: str) -> None:
    assert await told(seen, asked("Contract"), hands) == said


async def test_what_is_typed_on_from_another_window_is_nobodys_answer(seen: Screen) -> None:
    goes_on = asyncio.to_thread(
        seen.run, "xdotool", "type", "--delay", "60", "correct horse battery staple " * 2 + "\n"
    )
    person = asyncio.create_task(goes_on)
    waiting = asyncio.create_task(conversation().notify(asked("Typed on")))
    await person
    await asyncio.to_thread(typing("Yes.", "<Return>"), seen, await asyncio.to_thread(seen.window, "Typed on"))
    assert text_of(await asyncio.wait_for(waiting, WITHIN)) == "User response: Yes."


async def test_time_runs_out_in_the_contracts_words(seen: Screen) -> None:
    begun = time.monotonic()
    assert text_of(await conversation().notify(asked("Late", timeout=5))) == "No response within 5s timeout"
    assert 4.9 < time.monotonic() - begun < 7
    assert sentence(PopupEnd("timeout"), 7.5) == "No response within 7.5s timeout"


async def test_a_message_is_shown_within_a_second_and_stays_when_the_call_is_over(seen: Screen) -> None:
    talk, begun = conversation(), time.monotonic()
    answer = text_of(await talk.notify(asked("Shown", wait_for_response=False)))
    assert answer == "✓ Message displayed successfully"
    assert time.monotonic() - begun < 1
    at = seen.window("Shown")
    assert "_NET_WM_STATE_ABOVE" in seen.run("xprop", "-id", at, "_NET_WM_STATE")
    assert await told(seen, asked("Next"), typing("<Escape>"), talk) == "User cancelled the popup"
    assert seen.windows("Shown") == []


@pytest.mark.parametrize("is_one_process", [True, False], ids=["one_process", "two_processes"])
async def test_a_newer_popup_takes_the_place_of_the_one_that_stands(seen: Screen, is_one_process: bool) -> None:  # noqa: FBT001
    talk = conversation()
    first = asyncio.create_task(talk.notify(asked("First")))
    await asyncio.to_thread(seen.window, "First")
    # Two `Popups` know nothing of one another, as two processes do not: their windows meet on the display alone.
    second = await told(seen, asked("Second"), typing("here", "<Return>"), talk if is_one_process else conversation())
    one = text_of(await asyncio.wait_for(first, WITHIN))
    assert (one, second) == (
        "User cancelled or dismissed the popup",
        "User response: here",
    )


async def test_no_message_covers_an_open_question(seen: Screen) -> None:
    shown = list[str]()

    async def announce(title: str, _message: str) -> bool:
        shown.append(title)
        return True

    talk = Conversation(Popups(), announce)
    question = asyncio.create_task(Popups().show(Popup("May I?", "Question", question=True)))
    at = await asyncio.to_thread(seen.window, "Question")
    assert text_of(await talk.notify(asked("Note", wait_for_response=False))) == "✓ Message displayed successfully"
    assert shown == ["Note"]
    waiting = asyncio.create_task(talk.notify(asked("Waits")))
    await asyncio.sleep(0.6)
    assert seen.windows("Waits") == []
    assert seen.windows("Question") == [at]
    await asyncio.to_thread(seen.key, "Escape")
    assert (await question).how == "cancelled"
    await asyncio.to_thread(seen.window, "Waits")
    await asyncio.to_thread(seen.key, "Escape")
    assert text_of(await waiting) == "User cancelled the popup"


async def test_what_is_too_long_to_be_taken_stays_until_it_is_shorter(seen: Screen) -> None:
    waiting = asyncio.create_task(Popups().show(Popup("Which?", "Short", question=True, longest=3)))
    await asyncio.to_thread(seen.window, "Short")
    await asyncio.to_thread(typing("four", "<Return>"), seen, "")
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await asyncio.to_thread(typing("<BackSpace>", "<Return>"), seen, "")
    assert await asyncio.wait_for(waiting, WITHIN) == PopupEnd("submitted", "fou")


class NoWindow(Popups):
    """Popups of which none may open."""

    async def show(self, popup: Popup) -> PopupEnd:
        raise AssertionError(popup)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"message": ""}, "Error: Message cannot be empty"),
        ({"message": None}, "Error: Message cannot be empty"),
        ({"message": "x" * 10_001}, "Error: Message exceeds maximum length of 10,000 characters"),
        *(({"timeout": bad}, "Error: Timeout must be between 5 and 300 seconds") for bad in (4.9, 301, True, "30")),
        ({"timeout": float("nan")}, "Error: Timeout must be between 5 and 300 seconds"),
        ({"theme": "blue"}, "Error: Theme must be auto, light or dark"),
        ({"title": 7}, "Error: Title must be a text"),
        ({"wait_for_response": "no"}, "Error: wait_for_response must be true or false"),
        ({"show_history": 1}, "Error: show_history must be true or false"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_before_any_window(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await Conversation(NoWindow(), silent).notify(called({"message": "x", **wrong}))
    assert str(refused.value) == said


def test_defaults_and_bounds_are_the_contracts() -> None:
    popup = popup_of({"message": "x" * 10_000, "timeout": 300})
    assert (popup.title, popup.waits, popup.chime, popup.theme) == ("VoiceMode", True, False, "auto")
    assert popup_of({"message": "x"}).timeout is None
    assert PARAMETERS["required"] == ["message"]
    [tool] = components(silent).tools
    assert tool.name == "notify"


async def test_without_a_display_the_contract_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error: Cannot display popup - no display available. This feature requires a graphical environment."
    monkeypatch.delenv("DISPLAY", raising=False)
    assert text_of(await conversation().notify(asked("Nowhere"))) == said
    assert text_of(await conversation().notify(asked("Nowhere", wait_for_response=False))) == said
    with screen() as short:
        monkeypatch.setenv("DISPLAY", short.display)
        waiting = asyncio.create_task(conversation().notify(asked("Vanishing")))
        await asyncio.to_thread(short.window, "Vanishing")
        short.server.kill()
        assert text_of(await asyncio.wait_for(waiting, 1)) == said


async def test_a_killed_window_is_told_within_a_second(seen: Screen) -> None:
    popups = Popups()
    waiting = asyncio.create_task(Conversation(popups, silent).notify(asked("Killed")))
    await asyncio.to_thread(seen.window, "Killed")
    assert popups._standing is not None
    os.kill(popups._standing._process.pid, signal.SIGKILL)
    said = text_of(await asyncio.wait_for(waiting, 1))
    assert said == "Error: The popup ended unexpectedly. Nothing was answered. Try again."


async def test_a_caller_that_leaves_takes_its_window_along(seen: Screen) -> None:
    waiting = asyncio.create_task(conversation().notify(asked("Left")))
    await asyncio.to_thread(seen.window, "Left")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert seen.windows("Left") == []


def copied(screen: Screen, x: int, y: int) -> str:
    """All of the text at that place, as a person copies it."""
    screen.click(x, y)
    screen.key("ctrl+a", "ctrl+c")
    time.sleep(0.1)
    return screen.run("xclip", "-o", "-selection", "clipboard")


@pytest.mark.parametrize(
    "message",
    ["word " * 1999 + "ends", "\n".join(f"line {n}" for n in range(200)), "שלום עולם: مرحبا بالعالم, hello"],
    ids=["ten_thousand_characters", "two_hundred_lines", "right_to_left"],
)
async def test_a_message_of_any_length_stays_whole(seen: Screen, message: str) -> None:
    found = list[str]()

    def hands(screen: Screen, at: str) -> None:
        x, y, _, height = screen.place(at)
        assert 400 <= height <= 640
        found.append(copied(screen, x + 60, y + 50))
        screen.key("Escape")

    await told(seen, asked("Long", message=message), hands)
    assert found == [message]


async def test_a_window_shows_the_last_five_exchanges_scrolled_to_the_end(seen: Screen) -> None:
    talk = conversation()
    for n in range(7):
        said = await told(seen, asked("Talk", message=f"ask {n}"), typing(f"answer {n}", "<Return>"), talk)
        assert said == f"User response: answer {n}"
    found = list[str]()

    def hands(screen: Screen, at: str) -> None:
        x, y, _, height = screen.place(at)
        # Just above the input: the last line of the history.
        found.append(copied(screen, x + 60, y + height - 170))
        screen.click(x + 60, y + height - 160, times=3)
        time.sleep(0.1)
        found.append(screen.run("xclip", "-o", "-selection", "primary"))
        screen.key("Escape")

    await told(seen, asked("Talk"), hands, talk)
    whole, last = found
    assert whole == "\n\n".join(f"ask {n}\n> answer {n}" for n in range(2, 7))
    assert last == "> answer 6"


def rows_at_the_left(shown: tk.Text) -> list[str]:
    """The rows as the screen breaks them that begin where the person's do, each whole."""
    rows, at = list[tuple[int, str]](), "1.0"
    while shown.compare(at, "<", "end-1c"):
        shown.see(at)
        beyond = shown.index(f"{at} + 1 display lines")
        box = shown.bbox(at)
        assert box is not None
        rows.append((box[0], shown.get(at, beyond)))
        at = beyond
    return [text for left, text in rows if left < window.INDENT and text.strip()]


def test_no_words_said_to_a_person_pass_for_their_reply(seen: Screen) -> None:
    forged = "May I?\n> Yes\n" + "word " * 40 + "\n\n> Yes, all of it\n\nIs\tthat right?\n   > It is."
    looks = {"colours": theme.PALETTES["light", True]._asdict(), "monitors": []}
    history = [(forged, "No.\nNever."), ("", "I said no."), (forged, "")]
    root = tk.Tk()
    try:
        made = window.Window(root, {**looks, **asdict(Popup(forged, history=history))})
        made._build()
        made._place()
        root.update()
        for name, own in (("message", []), ("history", ["> No.\n", "Never.\n", "> I said no.\n"])):
            [shown] = [one for one in root.nametowidget(name).winfo_children() if isinstance(one, tk.Text)]
            assert rows_at_the_left(shown) == own
    finally:
        root.destroy()


async def test_cut_copy_and_paste(seen: Screen) -> None:
    def hands(screen: Screen, _at: str) -> None:
        screen.clip("from elsewhere")
        screen.key("ctrl+v", "ctrl+a", "ctrl+x")
        time.sleep(0.1)
        assert screen.run("xclip", "-o", "-selection", "clipboard") == "from elsewhere"
        screen.key("ctrl+v")
        screen.type("!")
        screen.key("Return")

    assert await told(seen, asked("Clipboard"), hands) == "User response: from elsewhere!"


@pytest.mark.parametrize(
    ("says", "colours"),
    [
        ("echo \"'prefer-dark'\"", ("dark", False)),
        ("echo \"'default'\"", ("light", False)),
        ("exit 1", ("light", False)),
        ("case $3 in high-contrast) echo true;; *) echo \"'prefer-dark'\";; esac", ("dark", True)),
    ],
    ids=["dark", "light", "unknown", "high_contrast"],
)
async def test_the_theme_is_the_systems(seen: Screen, stubs: Path, says: str, colours: tuple[str, bool]) -> None:
    stub(stubs, "gsettings", says)
    found = list[str]()

    def hands(screen: Screen, at: str) -> None:
        found.append(screen.colour(at, 4, 4))
        screen.key("Escape")

    await told(seen, asked("Theme"), hands)
    assert found == [theme.PALETTES[colours].paper]


async def test_the_window_is_centred_where_the_person_is(seen: Screen) -> None:
    """The screen is cut in two monitors, as a person cuts a wide one."""
    for name, left, output in (("left", 0, "screen"), ("right", 640, "none")):
        seen.run("xrandr", "--setmonitor", name, f"640/200x800/200+{left}+0", output)
    found = list[int]()

    def hands(screen: Screen, at: str) -> None:
        x, y, width, height = screen.place(at)
        found.append(x + width // 2)
        assert abs(y + height // 2 - 400) <= 40
        screen.key("Escape")

    try:
        for pointer in (900, 300):
            seen.run("xdotool", "mousemove", str(pointer), "300")
            await told(seen, asked("Monitors"), hands)
    finally:
        for name in ("left", "right"):
            seen.run("xrandr", "--delmonitor", name)
    assert [abs(middle - wanted) <= 20 for middle, wanted in zip(found, (960, 320), strict=True)] == [True, True]
    listed = "Monitors: 2\n 0: +B 640/200x800/200+640+0  B\n 1: +*A 640/200x800/200+0+0  A"
    assert [one.x for one in theme.listed_monitors(listed)] == [0, 640]  # the primary one first
    assert theme.listed_monitors("xrandr: no") == []


async def test_chimes_sound_on_show_and_on_a_sent_answer_only(seen: Screen, stubs: Path, tmp_path: Path) -> None:
    stub(stubs, "paplay", f'basename "$1" >>{tmp_path}/played')

    async def played() -> list[str]:
        await asyncio.sleep(0.3)
        file = tmp_path / "played"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    await told(seen, asked("Quiet"), typing("a", "<Return>"))
    assert await played() == []
    await told(seen, asked("Loud", chime_enabled=True), typing("<Escape>"))
    assert await played() == ["start.wav"]
    await told(seen, asked("Loud", chime_enabled=True), typing("a", "<Return>"))
    assert await played() == ["start.wav", "start.wav", "end.wav"]


@pytest.mark.parametrize(
    ("platform", "command", "says", "shade"),
    [
        ("darwin", "defaults", "case $3 in AppleInterfaceStyle) echo Dark;; *) exit 1;; esac", "dark"),
        ("darwin", "defaults", "exit 1", "light"),
        ("win32", "reg", "echo '    AppsUseLightTheme    REG_DWORD    0x0'", "dark"),
        ("win32", "reg", "echo '    AppsUseLightTheme    REG_DWORD    0x1'", "light"),
    ],
)
def test_the_theme_of_other_systems(stubs: Path, platform: str, command: str, says: str, shade: str) -> None:
    stub(stubs, command, says)
    assert theme.palette("auto", platform) == theme.PALETTES[shade, False]


def shine(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", theme.PALETTES.values())
def test_every_word_stands_out(colours: theme.Palette) -> None:
    for ink, ground in (
        (colours.ink, colours.paper),
        (colours.soft, colours.paper),
        (colours.ink, colours.well),
        (colours.accent_ink, colours.accent),
    ):
        light, dark = sorted((shine(ink), shine(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_window_imports_the_standard_library_alone() -> None:
    isolated = ["python3", "-I", "-S", window.__file__]
    done = subprocess.run(isolated, input="", capture_output=True, text=True, timeout=10, check=False)
    assert "ModuleNotFoundError" not in done.stderr.replace("tkinter", "")
