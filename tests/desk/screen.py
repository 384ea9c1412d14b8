"""A real screen of its own: an X server with a window manager, and a person's hands on it."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from butlers.desk.window import TYPES_ON


class Screen:
    """One display, and what a person does and sees there."""

    def __init__(self, display: str, server: "subprocess.Popen[bytes]") -> None:
        self.display = display
        self.server = server

    @property
    def env(self) -> Mapping[str, str]:
        return {**os.environ, "DISPLAY": self.display}

    def run(self, *command: str, given: str | None = None) -> str:
        done = subprocess.run(
            command, env=self.env, input=given, capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    def clip(self, text: str) -> None:
        """Put a text on the clipboard; the program that keeps it stays behind, with none of our pipes."""
        subprocess.run(
            ["xclip", "-i", "-selection", "clipboard"],
            env=self.env,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=True,
        )

    def windows(self, title: str) -> list[str]:
        found = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--name", f"^{title}$"],
            env=self.env, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
        return found.stdout.split()

    def window(self, title: str, seconds: float = 5) -> str:
        """The window of that title, once it stands, has the keyboard and takes what is typed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (found := self.windows(title)) and self.active() == found[0]:
                time.sleep(TYPES_ON)
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"no window {title!r} has the keyboard on {self.display}")

    def active(self) -> str:
        told = subprocess.run(
            ["xdotool", "getactivewindow"], env=self.env, capture_output=True, text=True, timeout=10, check=False
        )
        return told.stdout.strip()

    def key(self, *keys: str) -> None:
        self.run("xdotool", "key", "--clearmodifiers", *keys)

    def type(self, text: str) -> None:
        self.run("xdotool", "type", "--delay", "2", text)

    def place(self, window: str) -> tuple[int, int, int, int]:
        """Left, top, width and height."""
        told = dict(
            re.findall(r"(Absolute upper-left [XY]|Width|Height): +(-?\d+)", self.run("xwininfo", "-id", window))
        )
        left, top, width, height = (
            int(told[name]) for name in ("Absolute upper-left X", "Absolute upper-left Y", "Width", "Height")
        )
        return left, top, width, height

    def click(self, x: int, y: int, times: int = 1) -> None:
        self.run("xdotool", "mousemove", str(x), str(y), "click", "--repeat", str(times), "--delay", "30", "1")

    def colour(self, window: str, x: int, y: int) -> str:
        """The colour of one pixel of a window, as #rrggbb."""
        told = self.run("import", "-window", window, "-crop", f"1x1+{x}+{y}", "-depth", "8", "txt:-")
        return "#" + told.rpartition("#")[2][:6].lower()

    def picture(self, window: str, file: Path) -> None:
        self.run("import", "-window", window, "-strip", "-colors", "64", str(file))


@contextmanager
def screen(size: str = "1280x800", *, managed: bool = True) -> Iterator[Screen]:
    """Open a display, with a window manager; it ends with the test."""
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-noreset"],
        pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    manager = None
    try:
        with open(reading, encoding="ascii") as told:  # noqa: PTH123  # a descriptor is no path
            number = told.readline().strip()
        assert number, "Xvfb does not start: a display is no optional part of these tests"
        made = Screen(f":{number}", server)
        if managed:
            manager = subprocess.Popen(
                ["openbox", "--sm-disable"], env=made.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = time.monotonic() + 5
            while "window id" not in made.run("xprop", "-root", "_NET_SUPPORTING_WM_CHECK"):
                assert time.monotonic() < until, "openbox does not start"
                time.sleep(0.05)
        yield made
    finally:
        for process in filter(None, (manager, server)):
            process.kill()
            process.wait()
