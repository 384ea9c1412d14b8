"""Notifications of the desktop, behind one small interface: shown, closed somehow, withdrawn."""

import asyncio
import base64
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from shared.display.visible import in_line, visible

Urgency = Literal["low", "normal", "high"]
# `plain`: shown where nothing can be pressed. `gone`: nobody can tell, because the bus or its server went away.
Ending = Literal["pressed", "dismissed", "expired", "withdrawn", "plain", "gone"]
MOST_BUTTONS: Final = 3
_WITHIN: Final = 5.0
_TOAST: Final = """
$text = @('{title}', '{body}') | ForEach-Object {{ [Text.Encoding]::UTF8.GetString([Convert]::FromBase64String($_)) }}
[void][Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$toast = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent(1)
$lines = $toast.GetElementsByTagName('text')
0..1 | ForEach-Object {{ [void]$lines.Item($_).AppendChild($toast.CreateTextNode($text[$_])) }}
$note = [Windows.UI.Notifications.ToastNotification]::new($toast)
[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier('Butlers').Show($note)
"""
_SCRIPT: Final = (
    "-e",
    "on run argv",
    "-e",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e",
    "end run",
)


@dataclass(frozen=True, slots=True)
class Note:
    """What a notification shows; `elsewhere` says where to answer, for a desktop that has no buttons."""

    key: str
    title: str
    body: str
    buttons: Sequence[str] = ()
    elsewhere: str = ""
    urgency: Urgency = "normal"
    # For how long, in seconds; None as long as the desktop keeps it.
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """How a notification ended, and which button was pressed, counted from nought."""

    how: Ending
    button: int | None = None


class Notifier(Protocol):
    """A way to show notifications."""

    async def show(self, note: Note) -> Closed:
        """Show it, and return once it is closed; raise Unavailable if it cannot be shown."""

    async def withdraw(self, key: str) -> None:
        """Close it, if it is there still."""

    async def close(self) -> None:
        """Let go of the desktop."""


class Plain:
    """Notifications without buttons, by a command of the system: macOS and Windows."""

    def __init__(self, platform: str = sys.platform) -> None:
        self._platform = platform

    async def show(self, note: Note) -> Closed:
        """Show it; nothing can be pressed, and nothing is told of its end."""
        command = plain_command(self._platform, note)
        with suppress(OSError, TimeoutError):
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            if await asyncio.wait_for(process.wait(), _WITHIN) == 0:
                return Closed("plain")
        return Closed("gone")

    async def withdraw(self, key: str) -> None:
        """Do nothing: what these systems show, they keep."""

    async def close(self) -> None:
        """Do nothing: nothing is held."""


def plain_command(platform: str, note: Note) -> Sequence[str]:
    """Return the command that shows it: no text of others is ever part of a program."""
    body = full_text(note, has_buttons=False)
    if platform == "darwin":
        # After the dashes nothing is an option, whatever it begins with.
        return ("osascript", *_SCRIPT, "--", in_line(note.title), body)
    texts: Mapping[str, str] = {"title": in_line(note.title), "body": body}
    coded = {name: base64.b64encode(text.encode(errors="replace")).decode() for name, text in texts.items()}
    return ("powershell", "-NoProfile", "-NonInteractive", "-Command", _TOAST.format(**coded))


def full_text(note: Note, *, has_buttons: bool) -> str:
    """Return the visible text, and where to answer if this desktop offers no way or too few buttons."""
    if (has_buttons and 0 < len(note.buttons) <= MOST_BUTTONS) or not note.elsewhere:
        return visible(note.body)
    return f"{visible(note.body)}\n{visible(note.elsewhere)}"
