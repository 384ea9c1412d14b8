"""Which lines of a mail its writer wrote, and which repeat what was written before. Pure.

In doubt a line is taken for quoted: words of the owner's begin work, and what somebody else wrote must not.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Literal, TypeAlias

from messenger.inbound.mail.heads import (
    begins_the_rest,
    begins_with_arrows,
    has_fields,
    has_sign,
    head_above,
    is_head,
    is_separator,
    is_the_houses,
    lines_of,
    may_be_head,
    quote_follows,
    said_in,
    signs_of,
    was_wrapped,
)

# So many letters and digits of the original's beginning are looked for; with fewer than the least nobody can tell.
_KEY: Final = 40
_LEAST_KEY: Final = 12
_MOST_ALIKE: Final = 20
_LONGEST_ORIGINAL: Final = 20_000
_LONGEST_LINE: Final = 5_000
# What programs add to a line that they repeat.
_ADDED: Final = re.compile(
    r"<[^<>]{1,2000}>|[\[(](?:https?|mailto|cid|image)\b[^\])]{0,2000}[\])]|https?://\S+", re.IGNORECASE
)

# Whose a line is: the writer's, of what is repeated the head or the words, or of these what may be the writer's.
Mark: TypeAlias = Literal["own", "head", "quoted", "doubt"]


@dataclass(frozen=True, slots=True)
class Parted:
    """The words of a mail's writer, and what it repeats; `in_doubt` if that may begin with words of the writer's."""

    own: str
    quoted: str
    in_doubt: bool = False


def parted(text: str, sender: str) -> Parted:
    """Return what a mail by `sender` says that answers none: what looks like a quotation without signs is in doubt."""
    lines = lines_of(text)
    # A list at the end is no head, since nothing follows it.
    last = next((at for at in range(len(lines) - 1, -1, -1) if not lines[at].strip()), -1)

    def begins(at: int) -> bool:
        return is_separator(lines[at]) or begins_with_arrows(lines[at]) or (at < last and has_fields(lines, at, sender))

    marks, rest = _marked(lines, begins)
    return _at(lines, marks, rest, in_doubt=True)


def parted_answer(text: str, sender: str) -> Parted:
    """Return what a mail says that answers one which is not known, by `sender`.

    Mail programs repeat in a hundred forms what is answered, and each names whoever wrote it by an address, or says
    when. So without signs nothing counts from the first line on that does.
    """
    lines = lines_of(text)
    marks, rest = _marked(lines, partial(begins_the_rest, lines, sender=sender))
    signs = next((at for at, mark in enumerate(marks) if mark != "own"), rest)
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
    first, _ = begins
    head = head_above(lines, first)
    marks[head:first] = ["head"] * (first - head)
    # Signs of the original's own say nothing of the program that repeats it.
    if signs_of(lines[first]) > signs_of(original.lstrip()):
        marks = _compared(lines, bare, marks, whole)
    elif not _mark_repeated(lines, bare, marks, begins, whole):
        return _at(lines, marks, head, in_doubt=True)
    return _at(lines, marks, len(lines))


def holds_some(text: str, original: str) -> bool:
    """Return whether a mail repeats a line of the original, be it without its beginning."""
    whole = _bare(original[:_LONGEST_ORIGINAL])
    said = (_bare(line) for line in lines_of(text) if len(line) <= _LONGEST_LINE)
    return any(len(one) >= _LEAST_KEY and one in whole for one in said)


def _at(lines: list[str], marks: list[Mark], rest: int, *, in_doubt: bool = False) -> Parted:
    """Return the own words, and all others; what may be own stands first of these, so that it can be named."""
    said = list(zip(lines[:rest], marks, strict=False))
    doubtful = [*[line for line, mark in said if mark == "doubt"], *(lines[rest:] if in_doubt else [])]
    quoted = [line for line, mark in said if mark in {"head", "quoted"}]
    below = [] if in_doubt else lines[rest:]
    own = [line for line, mark in said if mark == "own"]
    return Parted(_joined(own), _joined([*doubtful, *quoted, *below]), any(map(str.strip, doubtful)))


def _marked(lines: list[str], begins: Callable[[int], bool] | None) -> tuple[list[Mark], int]:
    """Return whose each line is by its signs, or by what says so right above; and from which on all are somebody's.

    Without `begins` nothing but signs counts.
    """
    marks = list[Mark]()
    while (at := len(marks)) < len(lines):
        said = said_in(lines, at)
        has_signs = bool(said) and quote_follows(lines, at + said)
        if begins is not None and (begins(at) or (said and not has_signs)):
            return marks, at
        if has_signs:
            marks += ["head"] * said
        else:
            marks.append(_by_signs(lines, at, marks[-1] if marks else "own"))
    return marks, len(lines)


def _by_signs(lines: list[str], at: int, above: Mark) -> Mark:
    """Return whose a line is.

    INVARIANT: below a quoted line it may be the rest of that line, which some program on the way wrapped; where that
    line was too short for it, it may be own words too.
    """
    if has_sign(lines[at]):
        return "quoted"
    if above in {"own", "head"} or not lines[at].strip():
        return "own"
    return "quoted" if above == "quoted" and was_wrapped(lines, at - 1) else "doubt"


def _compared(lines: list[str], bare: list[str], marks: list[Mark], whole: str) -> list[Mark]:
    """Return the marks as the original has it: what it does not hold is own without a sign, and else in doubt."""
    compared, at = list[Mark](), 0
    for line, said, mark in zip(lines, bare, marks, strict=True):
        if mark in {"own", "head"} or not said or is_the_houses(line):
            compared.append(mark)
        elif found := _found(line, said, whole, at):
            compared.append("quoted")
            at = found
        else:
            compared.append("own" if mark == "doubt" else "doubt")
    return compared


def _mark_repeated(lines: list[str], bare: list[str], marks: list[Mark], begins: tuple[int, int], whole: str) -> bool:
    """Mark which lines repeat the original, without signs; return whether all of it is there.

    Of the first line so many letters are its head. Words behind what a line repeats may be the writer's.
    """
    (first, letters), at = begins, 0
    for n, line in enumerate(bare[first:], start=first):
        said = line[letters:] if n == first else line
        follows = _follows(lines[n], said, whole, at)
        same = follows or _alike(said, whole[at : at + len(said)])
        if follows:
            marks[n] = "quoted"
        elif same >= _LEAST_KEY and same * 2 > len(said):
            marks[n] = "doubt"
        else:
            continue
        at += same
    return at >= len(whole)


def _follows(line: str, said: str, whole: str, at: int) -> int:
    """Return how many letters of the original from there on the line repeats, all of it but what programs add."""
    if said and whole.startswith(said, at):
        return len(said)
    plain = _bare(_ADDED.sub(" ", line)) if len(line) <= _LONGEST_LINE else ""
    return len(plain) if plain and whole.startswith(plain, at) else 0


def _found(line: str, said: str, whole: str, at: int) -> int:
    """Return where the words of a line end in the original: they stand there or, if enough to tell, anywhere.

    Zero if they do not.
    """
    if same := _follows(line, said, whole, at):
        return at + same
    where = whole.find(said) if _LEAST_KEY <= len(said) <= _LONGEST_LINE else -1
    return 0 if where < 0 else where + len(said)


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
