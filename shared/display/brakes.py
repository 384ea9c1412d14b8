"""What a brake holds back, in words, the same on every surface. Pure."""

from collections.abc import Mapping

from shared.display.visible import in_line


def held_back(brake: Mapping[str, object]) -> str:
    """Return which messages a brake of these columns holds back, as in `messages from health to others by email`."""
    butler = f" from {in_line(str(brake['butler']))}" if brake["butler"] else ""
    to = in_line(str(brake["contact"])) if brake["contact"] else "others"
    channel = f" by {in_line(str(brake['channel']))}" if brake["channel"] else ""
    return f"messages{butler} to {to}{' and to you' if brake['owner_too'] else ''}{channel}"
