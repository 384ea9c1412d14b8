"""A mail of ours as answers to it are compared with it, and what of it a line repeats. Pure."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

from messenger.inbound.mail.heads import addresses_in, has_sign, is_the_houses
from messenger.inbound.mail.quoted import Mark

# With fewer letters and digits nobody can tell; so many in a row nobody writes by chance.
LEAST: Final = 12
_PIECE: Final = 20
_KEY: Final = 40
_MOST_TRIED: Final = 8
_LONGEST_SENT: Final = 20_000
LONGEST_LINE: Final = 5_000
_SCHEME: Final = re.compile(r"(?:https?|mailto|cid|image)\b", re.IGNORECASE)
# What programs add to an address that they repeat.
_BRACKET: Final = re.compile(r"[<\[(]")
_ADDED: Final = re.compile(r"<[^<>]{1,2000}>")
_ADDED_TOO: Final = re.compile(r"[\[(](?:https?|mailto|cid|image)\b[^\[\]()]{0,2000}[\])]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sent:
    """A mail of ours, as letters and digits: its words, what stands above them and its subject, and parts of these.

    `ends` says where in the words a line ends, `lines` which there are, and `broken` has them between line breaks;
    `signed` are those that begin with a sign, `pieces` the runs of them, `odd` its lines without a letter, `symbols`
    its signs that are no letters and may be words, and `address` is from where it was sent.
    """

    words: str
    name: str
    title: str
    ends: frozenset[int]
    lines: frozenset[str]
    broken: str
    signed: frozenset[str]
    pieces: frozenset[str]
    odd: frozenset[str]
    symbols: frozenset[str]
    address: str


def sent(words: str, name: str = "", subject: str | None = None, address: str = "") -> Sent:
    """Return a mail of these words, below this name and from this address, as answers to it are compared with it."""
    lines = words[:_LONGEST_SENT].split("\n")
    bare = [bare_of(line) for line in lines]
    whole = "".join(bare)
    title = bare_of(subject) if subject else next(filter(None, bare), "")
    signed = frozenset(said for line, said in zip(lines, bare, strict=True) if has_sign(line))
    pieces = frozenset(text[at : at + _PIECE] for text in (whole, title) for at in range(len(text) - _PIECE + 1))
    odd = frozenset(line.strip() for line, said in zip(lines, bare, strict=True) if line.strip() and not said)
    ends = frozenset(accumulate(map(len, bare)))
    each, broken = frozenset(bare), "\n".join(bare)
    return Sent(whole, bare_of(name), title, ends, each, broken, signed, pieces, odd, _symbols(words), address)


def stands_above(line: str, said: str, answered: Sent) -> bool:
    """Return whether the house puts this line above the words."""
    return is_the_houses(line) or bool(said and said == answered.name)


def is_anothers(head: list[str], sender: str, answered: Sent) -> bool:
    """Return whether a head names addresses other than the answering `sender`'s, and not first where ours came from.

    Whoever has seen a mail of ours can write another one of its id and words, for the owner to answer.
    """
    named = [one for one in addresses_in("\n".join(head)) if one != sender.casefold()]
    return bool(answered.address and named) and named[0] != answered.address.casefold()


def beginnings(bare: list[str], answered: Sent) -> Iterator[tuple[int, int]]:
    """Yield in which line the original may begin, and how many letters stand before it there."""
    # Whole lines, since own words may stand below the first.
    ends = min((end for end in answered.ends if end >= LEAST), default=0)
    begins = answered.words[: min(ends, _KEY)]
    together, lines = "".join(bare), [0, *accumulate(map(len, bare))]
    for key in (answered.name + (begins or answered.words), begins):
        found = re.finditer(f"(?={re.escape(key)})", together) if len(key) >= LEAST else ()
        for where in islice(found, _MOST_TRIED):
            line = bisect_right(lines, where.start()) - 1
            yield line, where.start() - lines[line]


def likely(begins: list[tuple[int, int]], bare: list[str], answered: Sent) -> list[tuple[int, int]]:
    """Return those that are no subject, the last first: it may hold the first words too, and stands above them."""
    named = (one for one in begins if not (one[1] and answered.name and answered.name in bare[one[0] + 1 :]))
    return sorted(named, reverse=True)


def follows(line: str, said: str, answered: Sent, at: int) -> int:
    """Return how many letters of the original from there on the line repeats, all of it but what programs add."""
    if not _symbols(line) <= answered.symbols:
        return 0
    both = [len(one) for one in (without_added(line, said), said) if one and answered.words.startswith(one, at)]
    # What is added may be the letters of the next line too: then this one ends before it.
    return next((one for one in both if at + one in answered.ends), max(both, default=0))


def without_added(line: str, said: str) -> str:
    """Return the letters and digits of a line, `said`, but for what a program adds to an address that it repeats."""
    if len(line) > LONGEST_LINE or not _BRACKET.search(line):
        return said
    return bare_of(_ADDED_TOO.sub(_but_added, _ADDED.sub(_but_added, line)))


def _but_added(found: re.Match[str]) -> str:
    """Return nothing for an address that stands right behind itself; all else is somebody's words."""
    again, before = bare_of(_SCHEME.sub("", found[0])), found.string[: found.start()]
    return " " if bare_of(before[-2 * len(found[0]) :]).endswith(again) else found[0]


def _symbols(text: str) -> frozenset[str]:
    return frozenset(one for one in text if unicodedata.category(one) == "So")


def found_in(line: str, said: str, answered: Sent, at: int) -> int:
    """Return where the words of a line end in the original: they stand there or, if enough to tell, anywhere.

    Zero if they do not.
    """
    if same := follows(line, said, answered, at):
        return at + same
    is_enough = LEAST <= len(said) <= LONGEST_LINE and _symbols(line) <= answered.symbols
    where = answered.words.find(said) if is_enough else -1
    return 0 if where < 0 else where + len(said)


def shares(said: str, answered: Sent) -> bool:
    """Return whether a line holds so much of the original, or of its subject, that it is hardly written by chance."""
    if len(said) >= LEAST and said in answered.words:
        return True
    return any(said[at : at + _PIECE] in answered.pieces for at in range(len(said) - _PIECE + 1))


def without_letters(line: str, answered: Sent) -> Mark:
    """Return whose a line without letters and digits is: signs that the original holds may be its words, wrapped."""
    if line.strip() in answered.odd:
        return "quoted"
    return "doubt" if _symbols(line) and _symbols(line) <= answered.symbols else "own"


def bare_of(text: str) -> str:
    """Return the letters and digits: mail programs wrap lines anew, and change blanks, dashes and quotation marks."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def alike(one: str, other: str) -> int:
    """Return how many characters the two begin with alike."""
    differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))
