"""What a butler is told of the owner's decision: the text that counts, and what the owner changed of it. Pure."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from shared.display.quotes import in_marks

LONGEST_TEXT: Final = 1200
MOST_CHANGES: Final = 6
# Some hundredths of a second, and much more than an ordinary message takes.
MOST_STEPS: Final = 400_000


def message_decided(verb: str, about: str, text: str | None, asked: str | None, reason: str | None = None) -> str:
    """Return what was decided of a message, with its final text, and what of the butler's words is not in it."""
    said = [f"The owner {verb} {about}.{f' Reason: {reason}' if reason else ''}"]
    if text:
        said.append(f"Text: {in_marks(text, LONGEST_TEXT)}")
    if text and asked and text != asked:
        said.append(f"The owner changed: {'; '.join(changes(asked, text))}.")
    return "\n".join(said)


class _Matcher(difflib.SequenceMatcher[str]):
    """Finds what two lists share, in bounded time: once its steps are used up, the rest is taken to differ."""

    steps = MOST_STEPS
    # What one look at each item of the first list costs: it is compared with each equal one of the second.
    costs: Sequence[int] = ()

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        if self.steps > 0:
            self.steps -= sum(self.costs[alo:ahi])
        return super().find_longest_match(alo, ahi, blo, bhi) if self.steps > 0 else difflib.Match(alo, blo, 0)

    def differing(self, before: Sequence[str], after: Sequence[str]) -> list[tuple[str, str]]:
        """Return what is only in the first and what stands in its place in the second, one after the other."""
        self.set_seqs(before, after)
        equal = Counter(after)
        self.costs = [4 + equal[one] for one in before]
        spans = [span for kind, *span in self.get_opcodes() if kind != "equal"]
        return [("\n".join(before[a:b]), "\n".join(after[c:d])) for a, b, c, d in spans]


def changes(before: str, after: str) -> list[str]:
    """Return what was put in the place of what, word by word, the first of them."""
    found = list(_changes(before, after))
    rest = len(found) - MOST_CHANGES
    return [*found[:MOST_CHANGES], *([f"and {rest} more"] if rest > 0 else [])] or ["white space"]


def _changes(before: str, after: str) -> Iterator[str]:
    """Yield each change; lines are compared first, and then the words of those that differ."""
    matcher = _Matcher(autojunk=False)
    for lines in matcher.differing(before.splitlines(), after.splitlines()):
        for gone, come in matcher.differing(*(text.split() for text in lines)):
            old, new = in_marks(gone, 160), in_marks(come, 160)
            if gone and come:
                yield f"{old} is now {new}"
            else:
                yield f"{old} is gone" if gone else f"{new} is added"


def denied(*, begun: bool) -> str:
    """Return what is shown of a no: it stops what is left, and calls nothing back."""
    return f"Denied.{' Part of it was sent before and may have arrived.' if begun else ''}"
