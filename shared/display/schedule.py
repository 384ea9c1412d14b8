"""What a schedule does, in a line: of a reminder, what it says. Pure."""

from collections.abc import Mapping

from shared.display.visible import in_line


def what_it_does(prompt: str | None, tool: str | None, arguments: object) -> str:
    """Return what a schedule does, whole; hidden characters are written out."""
    if tool is None:
        return f"Asks: {in_line(prompt or '')}"
    said = arguments.get("message") if isinstance(arguments, Mapping) else None
    return f"Calls {in_line(tool)}{f': {in_line(said)}' if isinstance(said, str) else '.'}"
