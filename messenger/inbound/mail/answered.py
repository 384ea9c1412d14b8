"""Which lines of an answer to a mail of ours repeat that mail: what it holds is known, whatever the program. Pure.

In doubt a line is not its writer's, and is told of.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import Final

from messenger.inbound.mail.heads import (
    addresses_in,
    begins_the_rest,
    begins_with_arrows,
    has_sign,
    is_field,
    is_separator,
    is_the_houses,
    lines_of,
    may_be_head,
    said_in,
)
from messenger.inbound.mail.quoted import Mark, Parted, by_marks, marked, parted_answer

# With fewer letters and digits nobody can tell; so many in a row nobody writes by chance.
_LEAST: Final = 12
_PIECE: Final = 20
_KEY: Final = 40
_MOST_TRIED: Final = 8
_MOST_LOOKED: Final = 200
_LONGEST_SENT: Final = 20_000
_LONGEST_LINE: Final = 5_000
_SCHEME: Final = re.compile(r"(?:https?|mailto|cid|image)\b", re.IGNORECASE)
# What programs add to an address that they repeat.
_ADDED: Final = re.compile(
    r"<[^<>]{1,2000}>|[\[(](?:https?|mailto|cid|image)\b[^\[\]()]{0,2000}[\])]|https?://\S+", re.IGNORECASE
)
_HEAD: Final[Mark] = "head"


@dataclass(frozen=True, slots=True)
class Sent:
    """A mail of ours, as letters and digits: its words, what stands above them and its subject, and parts of these.

    `ends` says where in the words a line ends, `signed` which lines begin with a sign, `pieces` which runs they hold,
    `odd` its lines without a letter, `symbols` its signs that are no letters and may be words, and `address` from where
    it was sent.
    """

    words: str
    name: str
    title: str
    ends: frozenset[int]
    signed: frozenset[str]
    pieces: frozenset[str]
    odd: frozenset[str]
    symbols: frozenset[str]
    address: str


def sent(words: str, name: str = "", subject: str | None = None, address: str = "") -> Sent:
    """Return a mail of these words, below this name and from this address, as answers to it are compared with it."""
    lines = words[:_LONGEST_SENT].split("\n")
    bare = [_bare(line) for line in lines]
    whole = "".join(bare)
    title = _bare(subject) if subject else next(filter(None, bare), "")
    signed = frozenset(said for line, said in zip(lines, bare, strict=True) if has_sign(line))
    pieces = frozenset(text[at : at + _PIECE] for text in (whole, title) for at in range(len(text) - _PIECE + 1))
    odd = frozenset(line.strip() for line, said in zip(lines, bare, strict=True) if line.strip() and not said)
    ends = frozenset(accumulate(map(len, bare)))
    return Sent(whole, _bare(name), title, ends, signed, pieces, odd, _symbols(words), address)


def parted_by(text: str, sender: str, answered: Sent) -> Parted | None:
    """Return what a mail by `sender` says that answers this one; None if it repeats nothing of it below a known head.

    Where a program marks what it repeats, all else is own. Where none does, own words stand out only among all of the
    original, below its head: where some of it is missing, all of it may be own.
    """
    lines = lines_of(text)
    bare = [_bare(line) for line in lines]
    marks, _ = marked(lines, None)
    begins = list(_beginnings(bare, answered))
    holds = [n for n, said in enumerate(bare) if len(said) >= _LEAST and said in answered.words]
    marked_by_it = (n for n in [*holds, *(first for first, _ in begins)] if has_sign(lines[n]))
    if any(not any(bare[n] in one for one in answered.signed) for n in marked_by_it):
        return by_marks(lines, _compared(lines, bare, marks, answered))
    found = (_in_full(lines, bare, marks, sender, begun, answered) for begun in _likely(begins, bare, answered))
    return next(filter(None, found), None) or _among_own(lines, bare, marks, holds, answered)


def _compared(lines: list[str], bare: list[str], marks: list[Mark], answered: Sent) -> list[Mark]:
    """Return the marks as the original has it: what it does not hold is own without a sign, and else in doubt.

    INVARIANT: without a sign a line may be the rest of the one above only if that ends within a line of the original.
    """
    compared, at = list[Mark](), 0
    for line, said, mark in zip(lines, bare, marks, strict=True):
        if mark in {"own", "head"} or not said:
            compared.append(mark)
        elif _stands_above(line, said, answered):
            compared.append("head")
        elif not has_sign(line) and at and at in answered.ends:
            compared.append("own")
        elif found := _found(line, said, answered, at):
            compared.append("quoted")
            at = found
        elif not at and _is_head(line) and not _shares(said, answered):
            compared.append("head")
        else:
            compared.append("own" if mark == "doubt" and not has_sign(line) else "doubt")
    first = next(n for n, line in enumerate(lines) if has_sign(line))
    top, ends = _head_above(lines, first, is_on_line=False) or (first, first)
    if any(map(str.strip, lines[ends:first])):
        return compared
    return [*compared[:top], *[_HEAD] * (first - top), *compared[first:]]


def _is_head(line: str) -> bool:
    plain = [line.lstrip("> ")]
    return bool(said_in(plain, 0)) or is_separator(plain[0]) or is_field(plain[0])


def _stands_above(line: str, said: str, answered: Sent) -> bool:
    """Return whether the house puts this line above the words."""
    return is_the_houses(line) or bool(said and said == answered.name)


def _in_full(
    lines: list[str], bare: list[str], marks: list[Mark], sender: str, begun: tuple[int, int], answered: Sent
) -> Parted | None:
    """Return the lines of a mail that repeats the original from there on, without signs.

    Where no head is known, from the first line on that names somebody or a day they are in doubt.
    """
    first, letters = begun
    rest = bare[first][letters:].removeprefix(answered.name)
    at = _alike(rest, answered.words)
    below, is_whole = _in_order(lines, bare, first + 1, at, answered)
    if not is_whole:
        return None
    head = _head_above(lines, first, is_on_line=letters > 0)
    if head is not None and _is_anothers(lines[head[0] : head[1]], answered):
        return None
    named = (n for n in range(first) if may_be_head(lines[n], sender))
    top, ends = head or (next(named, first),) * 2
    between = zip(lines[ends:first], bare[ends:first], strict=True)
    above: list[Mark] = ["head" if _stands_above(line, said, answered) else "doubt" for line, said in between]
    is_heads = not letters or may_be_head(lines[first], sender)
    own_line: Mark = "quoted" if is_heads and at == len(rest) else "doubt"
    return by_marks(lines, [*marks[:top], *[_HEAD] * (min(ends, first) - top), *above, own_line, *below])


def _among_own(lines: list[str], bare: list[str], marks: list[Mark], holds: list[int], answered: Sent) -> Parted | None:
    """Return the lines where own words stand among the first ones of the original, or it was changed there."""
    head = _head_above(lines, holds[0], is_on_line=False) if holds else None
    if head is None or _is_anothers(lines[head[0] : head[1]], answered):
        return None
    top, ends = head
    below, is_whole = _in_order(lines, bare, ends, 0, answered)
    if not is_whole:
        return by_marks(lines, marks, rest=top, in_doubt=True)
    return by_marks(lines, [*marks[:top], *[_HEAD] * (ends - top), *below])


def _is_anothers(head: list[str], answered: Sent) -> bool:
    """Return whether a head names addresses, and not the one from which ours was sent first.

    Whoever has seen a mail of ours can write another one of its id and words, for the owner to answer.
    """
    named = addresses_in("\n".join(head))
    return bool(answered.address and named) and named[0] != answered.address.casefold()


def _head_above(lines: list[str], first: int, *, is_on_line: bool) -> tuple[int, int] | None:
    """Return where the head begins and ends that stands next above the original, or on its first line; None if none."""

    def begins(at: int) -> bool:
        return begins_the_rest(lines, at, "") or begins_with_arrows(lines[at])

    begun = first if is_on_line else first - 1
    looked = range(begun, max(-1, begun - _MOST_LOOKED), -1)
    top = next((at for at in looked if begins(at) or said_in(lines, at)), None)
    if top is None:
        return None
    ends = top + said_in(lines, top) if said_in(lines, top) else _below_fields(lines, top)
    while top > 0 and begins(top) and begins(top - 1):
        top -= 1
    above = top - 1
    while above > 0 and not lines[above].strip():
        above -= 1
    return above if above >= 0 and is_separator(lines[above]) else top, ends


def _below_fields(lines: list[str], at: int) -> int:
    """Return where the fields of a head end, which stand below a separator or not, and go on to a blank line."""
    while at < len(lines) and (is_separator(lines[at]) or not lines[at].strip()):
        at += 1
    while at < len(lines) and lines[at].strip():
        at += 1
    return at


def _in_order(lines: list[str], bare: list[str], start: int, at: int, answered: Sent) -> tuple[list[Mark], bool]:
    """Return whose each line is from here on, where the original goes on at this letter, and whether it is all there.

    What holds a piece of the original, and is not its next one, may be own, or was changed on the way; below all of it
    nothing is repeated.
    """
    marks = list[Mark]()
    for line, said in zip(lines[start:], bare[start:], strict=True):
        follows = _follows(line, said, answered, at)
        if not said or follows:
            marks.append("quoted" if said or line.strip() in answered.odd else "own")
        elif _stands_above(line, said, answered):
            marks.append("head")
        else:
            same = _alike(said, answered.words[at : at + len(said)])
            follows = same if same >= _LEAST else 0
            may_be = follows or has_sign(line) or (at < len(answered.words) and _shares(said, answered))
            marks.append("doubt" if may_be else "own")
        at += follows
    return marks, at >= len(answered.words)


def _beginnings(bare: list[str], answered: Sent) -> Iterator[tuple[int, int]]:
    """Yield in which line the original may begin, and how many letters stand before it there."""
    # Whole lines, since own words may stand below the first.
    ends = min((end for end in answered.ends if end >= _LEAST), default=0)
    begins = answered.words[: min(ends, _KEY)]
    together, lines = "".join(bare), [0, *accumulate(map(len, bare))]
    for key in (answered.name + (begins or answered.words), begins):
        found = re.finditer(f"(?={re.escape(key)})", together) if len(key) >= _LEAST else ()
        for where in islice(found, _MOST_TRIED):
            line = bisect_right(lines, where.start()) - 1
            yield line, where.start() - lines[line]


def _likely(begins: list[tuple[int, int]], bare: list[str], answered: Sent) -> list[tuple[int, int]]:
    """Return those that are no subject, the last first: it may hold the first words too, and stands above them."""
    named = (one for one in begins if not (one[1] and answered.name and answered.name in bare[one[0] + 1 :]))
    return sorted(named, reverse=True)


def _follows(line: str, said: str, answered: Sent, at: int) -> int:
    """Return how many letters of the original from there on the line repeats, all of it but what programs add."""
    if not _symbols(line) <= answered.symbols:
        return 0
    if said and answered.words.startswith(said, at):
        return len(said)
    plain = _bare(_ADDED.sub(partial(_but_added, answered), line)) if len(line) <= _LONGEST_LINE else ""
    return len(plain) if plain and answered.words.startswith(plain, at) else 0


def _but_added(answered: Sent, found: re.Match[str]) -> str:
    """Return nothing for what a program adds to an address: that one once more; all else is somebody's words."""
    return " " if _bare(_SCHEME.sub("", found[0])) in answered.words else found[0]


def _symbols(text: str) -> frozenset[str]:
    return frozenset(one for one in text if unicodedata.category(one) == "So")


def _found(line: str, said: str, answered: Sent, at: int) -> int:
    """Return where the words of a line end in the original: they stand there or, if enough to tell, anywhere.

    Zero if they do not.
    """
    if same := _follows(line, said, answered, at):
        return at + same
    is_enough = _LEAST <= len(said) <= _LONGEST_LINE and _symbols(line) <= answered.symbols
    where = answered.words.find(said) if is_enough else -1
    return 0 if where < 0 else where + len(said)


def _shares(said: str, answered: Sent) -> bool:
    """Return whether a line holds so much of the original, or of its subject, that it is hardly written by chance."""
    if len(said) >= _LEAST and said in answered.words:
        return True
    return any(said[at : at + _PIECE] in answered.pieces for at in range(len(said) - _PIECE + 1))


def parted_above(text: str, sender: str, answered: Sent) -> Parted | None:
    """Return what stands above all that a mail repeats of the original, in part; the rest may be own.

    None if it repeats nothing.
    """
    lines = lines_of(text)
    first = next((n for n, line in enumerate(lines) if _shares(_bare(line[:_LONGEST_LINE]), answered)), None)
    if first is None:
        return None
    above = parted_answer("\n".join(lines[:first]), sender)
    return Parted(above.own, "\n".join(filter(None, (above.quoted, *lines[first:]))), in_doubt=True)


def _bare(text: str) -> str:
    """Return the letters and digits: mail programs wrap lines anew, and change blanks, dashes and quotation marks."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _alike(one: str, other: str) -> int:
    """Return how many characters the two begin with alike."""
    differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))
