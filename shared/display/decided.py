"""What a butler is told of the owner's decision: the text that counts, and what the owner changed of it. Pure."""

import difflib
from collections.abc import Iterator
from typing import Final

from shared.display.quotes import in_marks

LONGEST_TEXT: Final = 1200
MOST_CHANGES: Final = 6


def message_decided(verb: str, about: str, text: str | None, asked: str | None, reason: str | None = None) -> str:
    """Return what was decided of a message, with its final text, and what of the butler's words is not in it."""
    said = [f"The owner {verb} {about}.{f' Reason: {reason}' if reason else ''}"]
    if text:
        said.append(f"Text: {in_marks(text, LONGEST_TEXT)}")
    if text and asked and text != asked:
        said.append(f"The owner changed: {'; '.join(changes(asked, text))}.")
    return "\n".join(said)


def changes(before: str, after: str) -> list[str]:
    """Return what was put in the place of what, word by word, the first of them."""
    found = list(_changes(before.split(), after.split()))
    rest = len(found) - MOST_CHANGES
    return [*found[:MOST_CHANGES], *([f"and {rest} more"] if rest > 0 else [])] or ["white space"]


def _changes(before: list[str], after: list[str]) -> Iterator[str]:
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old, new = (in_marks(" ".join(words), 160) for words in (before[first:last], after[begin:end]))
        if kind == "replace":
            yield f"{old} is now {new}"
        elif kind == "delete":
            yield f"{old} is gone"
        elif kind == "insert":
            yield f"{new} is added"
