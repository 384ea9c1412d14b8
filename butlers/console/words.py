"""How the pages say a time or a state [pure]."""

from collections.abc import Mapping
from typing import Final

_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))

STATUS: Final[Mapping[str, str]] = {
    "ok": "sent",
    "queued": "on its way",
    "uncertain": "may have arrived",
    "pending_approval": "waits for your yes",
    "pending_missing_identifier": "no address on file",
    "error": "not sent",
}


def span(seconds: float) -> str:
    """A length of time in its two largest units at most, rounded down: `2 days 3 hours`, `less than a minute`."""
    left, words = max(0, int(seconds)), list[str]()
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {name}{'s' if count > 1 else ''}")
        elif words:
            break
    return " ".join(words[:2]) or "less than a minute"


def ago(seconds: float) -> str:
    """When something was, in its largest unit: `just now`, `5 minutes ago`."""
    for name, size in _UNITS:
        count = int(seconds) // size
        if count > 0:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def count(number: int, one: str, many: str) -> str:
    """`1 daemon`, `3 daemons`."""
    return f"{number} {one if number == 1 else many}"
