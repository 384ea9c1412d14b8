"""How the pages word a time, a state, or the text of others. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from shared.display.visible import visible
from shared.model import Status

EXCERPT: Final = 160

_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))

STATUS: Final[Mapping[str, str]] = {
    "ok": "sent",
    "queued": "on its way",
    "uncertain": "may have arrived",
    "pending_approval": "waits for your yes",
    "pending_missing_identifier": "no address on file",
    "error": "not sent",
}

ACTION: Final[Mapping[str, str]] = {
    "pending": "waits for your yes",
    "approved": "approved, on its way",
    "executing": "approved, being sent",
    "executed": "approved and sent",
    "denied": "denied, not sent",
    "expired": "expired, not sent",
    "cancelled": "withdrawn, not sent",
    "failed": "approved, could not be sent",
    "uncertain": "approved, may have arrived",
}
DELIVERY: Final[Mapping[Status, str]] = {
    "queued": "on its way",
    "claimed": "on its way",
    "sending": "being sent",
    "sent": "sent",
    "failed": "refused by the provider",
    "uncertain": "may have arrived",
    "parked": "waits for your yes",
    "refused": "forbidden, not sent",
    "cancelled": "not sent",
    "expired": "out of time, not sent",
    "dead": "tried until out of time",
    "abandoned": "may have arrived, left at that",
    "bounced": "came back",
}
# The actors whose lines may be of any kind, and the kinds that butlers write about an admission.
HOUSE: Final = frozenset({"owner", "messenger"})
ADMITTING: Final = frozenset({"parked", "allowed", "denied_by_rule", "cooled_down", "duplicate", "refused"})
EVENTS: Final[Mapping[str, str]] = {
    "marked": "Authority checked, being sent",
    "owner_said_arrived": "You said that it arrived",
    "owner_said_again": "You had it sent again",
    "owner_said_leave": "You left it as it is",
    "owner_said_retry": "You had it tried again",
    "late_receipt": "A receipt came late",
    "bounced": "It came back",
    "possible_repeat": "Sent once more, as a possible repeat",
    "parked": "Asked for your yes",
    "approved": "You said yes",
    "denied": "You said no",
    "allowed": "Allowed without your yes",
    "edited": "You changed the text",
    "revised": "Changed, so it asked anew",
    "identifier_added": "An address was added, so it asked anew",
    "expired": "Expired unsent",
    "dead": "Tried until its time was over",
    "cancelled": "Ended unsent",
    "executing": "Being sent",
    "executed": "Sent",
    "failed": "Could not be sent",
    "uncertain": "May have arrived",
    "withdrawn": "Taken back by its butler",
    "reopened": "Asked for again by its butler",
    "denied_by_rule": "Forbidden by a standing rule",
    "cooled_down": "Not asked, after three noes in a row",
    "duplicate": "The same as an earlier message",
}


def event(kind: str, actor: str) -> str:
    """Return the headline of an event; what a butler writes itself, beyond its admission, is quoted as its words."""
    if kind == "approved" and actor != "owner":
        kind = "allowed"
    if actor not in HOUSE and kind not in ADMITTING:
        return f"Written by {visible(actor)}: {visible(kind)}"
    return EVENTS.get(kind) or visible(kind.replace("_", " ").capitalize())


def span(seconds: float) -> str:
    """Return a length of time in its two largest units at most, rounded down.

    Examples are `2 days 3 hours` and `less than a minute`.
    """
    left, words = max(0, int(seconds)), list[str]()
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {name}{'s' if count > 1 else ''}")
        elif words:
            break
    return " ".join(words[:2]) or "less than a minute"


def ago(seconds: float) -> str:
    """Return how long ago something was, in its largest unit: `just now`, `5 minutes ago`."""
    for name, size in _UNITS:
        count = int(seconds) // size
        if count > 0:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def count(number: int, one: str, many: str) -> str:
    """Return a number with its noun: `1 daemon`, `3 daemons`."""
    return f"{number} {one if number == 1 else many}"


def moment(at: datetime | None) -> str:
    """Return a moment in UTC, to the second; empty for none."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""


def mapping(value: object) -> Mapping[str, object]:
    """Return the value if it is an object of JSON, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text(fields: Mapping[str, object], name: str) -> str:
    """Return a field with hidden characters written out; empty if it is not there."""
    value = fields.get(name)
    return visible(value if isinstance(value, str) else "" if value is None else str(value))


def excerpt(words: str) -> str:
    """Return the beginning of a text, on one line."""
    line = visible(" ".join(words.split()))
    return line if len(line) <= EXCERPT else f"{line[:EXCERPT].rstrip()}…"
