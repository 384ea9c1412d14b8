"""What a schedule does, in a line: of a reminder, what it says. Pure."""

from collections.abc import Mapping

from shared.display.visible import in_line, visible


def what_it_does(prompt: str | None, tool: str | None, arguments: object) -> str:
    """Return what a schedule does, whole, with its line ends; hidden characters are written out."""
    if tool is None:
        return f"Asks: {visible(prompt or '')}"
    said = arguments.get("message") if isinstance(arguments, Mapping) else None
    return f"Calls {in_line(tool)}{f': {visible(said)}' if isinstance(said, str) else '.'}"
