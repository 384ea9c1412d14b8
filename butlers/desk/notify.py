"""The tool `notify` of the stand-alone desk: a popup, and in one sentence what the person did."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from mcp_types import TextContent

from butlers.butler import Arguments, Components, Result, Tool, ToolCall
from butlers.desk.popup import How, Popup, PopupEnd, Popups
from shared.errors import InvalidInput

LONGEST_MESSAGE: Final = 10_000
LEAST_SECONDS: Final = 5
MOST_SECONDS: Final = 300
HISTORY_LIMIT: Final = 5
THEMES: Final = ("auto", "light", "dark")
NOT_KEPT: Final = "(not kept)"
_PROGRESS_SECONDS: Final = 15.0
DESCRIPTION: Final = (
    "Display a message in a popup window and optionally wait for user text response. "
    "Use this for silent, text-based conversation instead of voice."
)
PARAMETERS: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_MESSAGE,
            "description": "The message to display in the popup (1-10,000 characters)",
        },
        "wait_for_response": {
            "type": "boolean",
            "default": True,
            "description": "Whether to wait for user input. If false, just displays the message.",
        },
        "timeout": {
            "type": "number",
            "minimum": LEAST_SECONDS,
            "maximum": MOST_SECONDS,
            "description": "Optional timeout in seconds for user response (5-300 seconds, default: no timeout)",
        },
        "title": {"type": "string", "default": "VoiceMode", "description": "Window title for the popup"},
        "show_history": {
            "type": "boolean",
            "default": True,
            "description": "Whether to show recent conversation history in the popup",
        },
        "chime_enabled": {
            "type": "boolean",
            "default": False,
            "description": "Whether to play sound feedback (disabled by default for silent use)",
        },
        "theme": {
            "type": "string",
            "enum": [*THEMES],
            "default": "auto",
            "description": "Color theme for the popup. 'auto' matches system setting.",
        },
    },
    "required": ["message"],
}
_SAYS: Final[Mapping[How, str]] = {
    "shown": "✓ Message displayed successfully",
    "cancelled": "User cancelled the popup",
    "dismissed": "User dismissed the popup",
    "superseded": "User cancelled or dismissed the popup",
    "empty": "User submitted empty response",
    "headless": ("Error: Cannot display popup - no display available. This feature requires a graphical environment."),
    "broken": "Error: The popup ended unexpectedly. Nothing was answered. Try again.",
}
# Shows a message as a notification of the desktop; returns whether it could.
Announce = Callable[[str, str], Awaitable[bool]]


def popup_of(arguments: Arguments) -> Popup:
    """Return the popup that these arguments ask for; raise InvalidInput for one that is out of bounds."""
    message, timeout = arguments.get("message", ""), arguments.get("timeout")
    title, theme = arguments.get("title", "VoiceMode"), arguments.get("theme", "auto")
    if not isinstance(message, str) or not message.strip():
        raise InvalidInput("Error: Message cannot be empty")
    if len(message) > LONGEST_MESSAGE:
        raise InvalidInput("Error: Message exceeds maximum length of 10,000 characters")
    if timeout is not None and not _is_time(timeout):
        raise InvalidInput("Error: Timeout must be between 5 and 300 seconds")
    if not isinstance(title, str):
        raise InvalidInput("Error: Title must be a text")
    if theme not in THEMES:
        raise InvalidInput("Error: Theme must be auto, light or dark")
    return Popup(
        message,
        title,
        waits=_flag(arguments, "wait_for_response", otherwise=True),
        timeout=None if timeout is None else float(cast("float", timeout)),
        chime=_flag(arguments, "chime_enabled", otherwise=False),
        theme=theme,
        # Beyond the contract, so its published parameters do not name it.
        sensitive=_flag(arguments, "sensitive", otherwise=False),
    )


def _is_time(found: object) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and LEAST_SECONDS <= found <= MOST_SECONDS


def _flag(arguments: Arguments, name: str, *, otherwise: bool) -> bool:
    found = arguments.get(name, otherwise)
    if not isinstance(found, bool):
        raise InvalidInput(f"Error: {name} must be true or false")
    return found


def sentence(ended: PopupEnd, timeout: float | None) -> str:
    """Return what the caller is told, to the character of the contract."""
    if ended.how == "submitted":
        return f"User response: {ended.text}"
    if ended.how == "timeout":
        seconds = timeout or 0
        return f"No response within {int(seconds) if float(seconds).is_integer() else seconds}s timeout"
    return _SAYS[ended.how]


class Conversation:
    """What was said and answered in this process, as far as a window shows it again; it is written nowhere."""

    def __init__(self, popups: Popups, announce: Announce, history_limit: int = HISTORY_LIMIT) -> None:
        self._popups = popups
        self._announce = announce
        self._history: deque[tuple[str, str]] = deque(maxlen=history_limit)

    async def notify(self, call: ToolCall) -> Result:
        """Check the arguments, show the popup, and say what came of it."""
        popup = popup_of(call.arguments)
        if _flag(call.arguments, "show_history", otherwise=True):
            popup = replace(popup, history=tuple(self._history))
        ended = await _telling(self._popups.show(popup), call)
        if ended.how == "busy" and await self._announce(popup.title, popup.message):
            ended = PopupEnd("shown")
        if ended.how in {"shown", "submitted"}:
            self._history.append((popup.message, NOT_KEPT if popup.sensitive else ended.text))
        said = "Error: A question is open in a popup. Try again." if ended.how == "busy" else ""
        return Result(blocks=[TextContent(type="text", text=said or sentence(ended, popup.timeout))])


async def _telling(showing: Awaitable[PopupEnd], call: ToolCall) -> PopupEnd:
    """Wait for the person, and tell the client every 15 seconds that we still do, or it gives up."""
    waiting = asyncio.ensure_future(showing)
    try:
        while not (await asyncio.wait([waiting], timeout=_PROGRESS_SECONDS))[0]:
            await call.progress("Waiting for an answer in the popup.")
        return waiting.result()
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


def components(announce: Announce, history_limit: int = HISTORY_LIMIT) -> Components:
    """Return the one tool of the stand-alone server."""
    conversation = Conversation(Popups(), announce, history_limit)
    tool = Tool("notify", DESCRIPTION, PARAMETERS, conversation.notify, waits=True)
    return Components([tool])
