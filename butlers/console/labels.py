"""How the pages word a time, a state, or the text of others. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from shared.display.fates import CALL
from shared.display.visible import in_line, said, visible

EXCERPT: Final = 160

_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))

# The actors whose lines may be of any kind, and the kinds that butlers write about an admission.
HOUSE: Final = frozenset({"owner", "messenger"})
ADMITTING: Final = frozenset({"parked", "allowed", "denied_by_rule", "cooled_down", "duplicate", "refused"})
# What a butler's lines say of its questions.
ASKING: Final = frozenset({"question_asked", "question_withdrawn"})
HEADLINES: Final[Mapping[str, str]] = {
    "marked": "Checked again, sending",
    "owner_said_arrived": "You confirmed that it arrived",
    "owner_said_again": "You had it sent again",
    "owner_said_leave": "You left it unconfirmed",
    "owner_said_retry": "You had it retried",
    "late_receipt": "Receipt arrived late",
    "bounced": "Bounced",
    "possible_repeat": "Sent again, marked as a possible repeat",
    "parked": "Waiting for your approval",
    "approved": "You approved",
    "denied": "You denied",
    "allowed": "Allowed without asking you",
    "edited": "You edited the text",
    "revised": "Changed; approval requested again",
    "identifier_added": "Address added; approval requested again",
    "expired": "Expired",
    "dead": "Gave up after retrying",
    "cancelled": "Cancelled",
    "executing": "Sending",
    "executed": "Sent",
    "failed": "Not delivered",
    "uncertain": "Delivery unconfirmed",
    "withdrawn": "Withdrawn by its butler",
    "reopened": "Requested again by its butler",
    "denied_by_rule": "Blocked by a rule",
    "cooled_down": "Not asked: you denied three requests in a row",
    "question_asked": "Asked you a question",
    "question_answered": "You answered a question",
    "question_withdrawn": "Question withdrawn",
    "duplicate": "Duplicate of an earlier message",
}
# The same of a call of a gated tool.
CALL_HEADLINES: Final[Mapping[str, str]] = {
    **HEADLINES,
    **{kind: CALL[kind] for kind in ("executing", "executed", "failed", "uncertain")},
    "owner_said_arrived": "You confirmed that it ran",
}
# The owner ends nothing but by a word on what is in doubt.
_OWNERS: Final[Mapping[str, str]] = {"executed": "owner_said_arrived", "failed": "owner_said_leave"}


def event(kind: str, actor: str, words: Mapping[str, str] = HEADLINES) -> str:
    """Return the headline of an event; what a butler writes itself, beyond its admission, is quoted as its words."""
    if kind == "approved" and actor != "owner":
        kind = "allowed"
    if actor == "owner":
        kind = _OWNERS.get(kind, kind)
    if actor not in HOUSE and kind not in ADMITTING | ASKING:
        return f"Written by {visible(actor)}: {visible(kind)}"
    return words.get(kind) or visible(kind.replace("_", " ").capitalize())


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


def answered(butler: str, words: str) -> str:
    """Return what a butler was told of its message, in quotation marks; empty for no words.

    Its process may have written that into its row itself, so it never stands there as a sentence of ours.
    """
    return f"Answer to {in_line(butler)}: {said(words)}" if words else ""


def mapping(value: object) -> Mapping[str, object]:
    """Return the value if it is an object of JSON, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text(fields: Mapping[str, object], name: str) -> str:
    """Return a field with hidden characters written out; empty if it is not there."""
    value = fields.get(name)
    return visible(value if isinstance(value, str) else "" if value is None else str(value))


def excerpt(words: str) -> str:
    """Return the beginning of a text, on one line."""
    line = visible(" ".join(words.split())[: EXCERPT + 1])
    return line if len(line) <= EXCERPT else f"{line[:EXCERPT].rstrip()}…"
