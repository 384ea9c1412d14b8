"""Which lines of a mail its writer wrote, and which repeat what was written before. Pure.

In doubt a line is taken for quoted: words of the owner's begin work, and what somebody else wrote must not.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from messenger.inbound.mail.heads import (
    begins_the_rest,
    begins_with_arrows,
    has_fields,
    has_sign,
    head_above,
    is_head,
    is_separator,
    lines_of,
    may_be_head,
    quote_follows,
    said_in,
)

# So many letters and digits of the original's beginning are looked for; with fewer than the least nobody can tell.
_KEY: Final = 40
_LEAST_KEY: Final = 12
_MOST_ALIKE: Final = 20
_LONGEST_ORIGINAL: Final = 20_000


@dataclass(frozen=True, slots=True)
class Parted:
    """The words of a mail's writer, and what it repeats; `in_doubt` if that may begin with words of the writer's."""

    own: str
    quoted: str
    in_doubt: bool = False


def parted(text: str) -> Parted:
    """Return what a mail says that answers none: whatever of it looks like a quotation without signs is in doubt."""
    lines = lines_of(text)
    # A list at the end is no head, since nothing follows it.
    last = next((at for at in range(len(lines) - 1, -1, -1) if not lines[at].strip()), -1)
    marks, rest = _marked(lines, lambda at: is_separator(lines[at]) or (at < last and has_fields(lines, at)))
    return _at(lines, marks, rest, in_doubt=rest < len(lines))


def parted_answer(text: str, sender: str) -> Parted:
    """Return what a mail says that answers one which is not known, by `sender`.

    Mail programs repeat in a hundred forms what is answered, and each names whoever wrote it by an address, or says
    when. So without signs nothing counts from the first line on that does.
    """
    lines = lines_of(text)
    marks, rest = _marked(lines, partial(begins_the_rest, lines))
    signs = marks.index(True) if True in marks else rest
    if signs < rest and begins_with_arrows(lines[signs]):
        rest = signs
    heads = (at for at, line in enumerate(lines[: min(signs, rest)]) if may_be_head(line, sender))
    rest = next(heads, rest)
    return _at(lines, marks, rest, in_doubt=rest < len(lines) and not is_head(lines, rest))


def parted_by(text: str, original: str) -> Parted | None:
    """Return what a mail says that answers `original`; None if it does not repeat that, or too little to tell.

    Without signs words of the writer's stand out only among all of the original: where some of it is missing, all of it
    may be own words.
    """
    lines = lines_of(text)
    whole, bare = _bare(original[:_LONGEST_ORIGINAL]), [_bare(line) for line in lines]
    begins = _where_it_begins(lines, bare, whole)
    if begins is None:
        return None
    marks, _ = _marked(lines, None)
    first, letters = begins
    head = head_above(lines, first)
    repeated = set(range(head, first))
    if not has_sign(lines[first]):
        found = _repeated(bare, first, letters, whole)
        if found is None:
            return _at(lines, marks, head, in_doubt=True)
        repeated |= found
    marks = [is_quoted or at in repeated for at, is_quoted in enumerate(marks)]
    return _at(lines, marks, len(lines))


def _at(lines: list[str], marks: list[bool], rest: int, *, in_doubt: bool = False) -> Parted:
    own = [line for line, is_quoted in zip(lines[:rest], marks, strict=False) if not is_quoted]
    quoted = [line for line, is_quoted in zip(lines[:rest], marks, strict=False) if is_quoted]
    # What is in doubt stands first, so that it can be named.
    return Parted(_joined(own), _joined([*lines[rest:], *quoted] if in_doubt else [*quoted, *lines[rest:]]), in_doubt)


def _marked(lines: list[str], begins: Callable[[int], bool] | None) -> tuple[list[bool], int]:
    """Return of each line whether it is quoted by signs, or says so right above; and from which on all of them are.

    Without `begins` nothing but signs counts.
    """
    marks = list[bool]()
    is_quoted = False
    while (at := len(marks)) < len(lines):
        said = said_in(lines, at)
        has_signs = bool(said) and quote_follows(lines, at + said)
        if begins is not None and (begins(at) or (said and not has_signs)):
            return marks, at
        if has_signs:
            marks += [True] * said
            continue
        # INVARIANT: below a quoted line it may be the rest of that line, which some program on the way wrapped.
        is_quoted = bool(lines[at].strip()) and (is_quoted or has_sign(lines[at]))
        marks.append(is_quoted)
    return marks, len(lines)


def _repeated(bare: list[str], first: int, letters: int, whole: str) -> set[int] | None:
    """Return which lines repeat the original; None if some of it is missing.

    Of the first line so many letters are its head.
    """
    found, at = set[int](), 0
    for n, line in enumerate(bare[first:], start=first):
        # What stands before it on the same line is its head.
        said = line[letters:] if n == first else line
        same = _alike(said, whole[at : at + len(said)])
        # Some programs add to a line, such as an address behind its words.
        if said and (same == len(said) or (same >= _LEAST_KEY and same * 2 > len(said))):
            at += same
            found.add(n)
    return found if at >= len(whole) else None


def _where_it_begins(lines: list[str], bare: list[str], whole: str) -> tuple[int, int] | None:
    """Return the line in which the original begins, and how many letters stand before it there; None if nowhere."""
    alike = (at for at, said in enumerate(bare) if len(said) >= _LEAST_KEY and whole.startswith(said))
    for at in islice(alike, _MOST_ALIKE):
        # The writer's own words may begin alike, and stand below no head.
        if has_sign(lines[at]) or head_above(lines, at) < at:
            return at, 0
    left = "".join(bare).find(whole[:_KEY]) if len(whole) >= _LEAST_KEY else -1
    if left < 0:
        return None
    for at, line in enumerate(bare):
        if left < len(line):
            return at, left
        left -= len(line)
    return None


def _bare(text: str) -> str:
    """Return the letters and digits: mail programs wrap lines anew, and change blanks, dashes and quotation marks."""
    return "".join(filter(str.isalnum, text.casefold()))


def _alike(one: str, other: str) -> int:
    """Return how many characters the two begin with alike."""
    differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _joined(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()
