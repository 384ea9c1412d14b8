"""The seals of the audit and how they are judged: what a seal binds, how seals make a chain, and what breaks it.

A seal covers lines of shared.approval_events by their seq, binds each line's SHA-256 and the seal before, and is
signed by the Messenger. Spans are half-open pairs of seq, ascending and apart; as text they are PostgreSQL's own
form of an int8multirange, such as {[1,5),[7,8)}.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Final, Literal

from shared.hashing import digest

Spans = Sequence[tuple[int, int]]
BEGINNING: Final = bytes(32)
SIZE: Final = 32
_PURPOSE: Final = b"butlers audit seal v1\n"
_SPANS: Final = re.compile(r"\{(?:\[-?\d+,-?\d+\)(?:,(?=\[))?)+\}", re.ASCII)
_SPAN: Final = re.compile(r"\[(-?\d+),(-?\d+)\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the audit: its number, and SHA-256 over all its columns."""

    seq: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Seal:
    """One link of the chain; `at` is ISO 8601 in UTC without a zone, as the database writes it."""

    n: int
    seqs: str
    digests: bytes
    prev: bytes
    at: str
    hash: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One fault found in the audit, with the seal and the line it concerns."""

    what: Literal[
        "seal_missing",
        "seal_altered",
        "seal_unsigned",
        "seal_moved",
        "edited",
        "removed",
        "inserted",
        "unsealed",
        "row_changed",
    ]
    text: str
    seal: int | None = None
    seq: int | None = None


def line_of(seq: int, *columns: str | None) -> Line:
    """Make the line with this number and these columns, each as one text, in the order of the table."""
    return Line(seq, bytes.fromhex(digest("audit line.v1", str(seq), *columns)))


def hash_of(seal: Seal) -> bytes:
    """Return the SHA-256 over all that a seal says and over the seal before."""
    lines = sha256(seal.digests).hexdigest()
    return bytes.fromhex(digest("audit seal.v1", seal.prev.hex(), str(seal.n), seal.seqs, seal.at, lines))


def signed_words(seal: Seal) -> bytes:
    """Return the bytes that a seal's signature covers; nothing else that is signed begins with the same prefix."""
    return _PURPOSE + seal.hash


class Cover:
    """A collector of the lines for one seal, in the order of their numbers."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._digests = bytearray()

    def add(self, line: Line) -> None:
        """Add one more line, whose number is higher than the last one's."""
        self._digests += line.digest
        if self._spans and self._spans[-1][1] == line.seq:
            self._spans[-1] = (self._spans[-1][0], line.seq + 1)
        else:
            self._spans.append((line.seq, line.seq + 1))

    def sealed(self, n: int, prev: bytes, at: str, sign: Callable[[bytes], bytes]) -> Seal | None:
        """Return the signed seal over the collected lines, or None if there are none."""
        if not self._spans:
            return None
        seal = Seal(n, text_of(self._spans), bytes(self._digests), prev, at)
        seal = replace(seal, hash=hash_of(seal))
        return replace(seal, signature=sign(signed_words(seal)))


def text_of(spans: Spans) -> str:
    """Return the spans as PostgreSQL writes them."""
    return "{" + ",".join(f"[{low},{high})" for low, high in spans) + "}"


def spans_of(text: str) -> Spans:
    """Parse spans from PostgreSQL's text; return no spans if the text is empty or a span is unbounded."""
    if not _SPANS.fullmatch(text):
        return ()
    return [(int(low), int(high)) for low, high in _SPAN.findall(text)]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the fewest spans that hold the same numbers."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def numbers(seal: Seal) -> Iterator[int]:
    """Return the numbers of the lines that a seal covers, or no numbers unless it holds a digest for each."""
    spans = spans_of(seal.seqs)
    if sum(high - low for low, high in spans) * SIZE != len(seal.digests):
        return iter(())
    return chain.from_iterable(range(low, high) for low, high in spans)


def flaws_of_seal(seal: Seal, before: Seal | None, is_signed: Callable[[Seal], bool]) -> Iterator[Flaw]:
    """Yield what is wrong with a seal: with itself, and with how it follows the seal before.

    `before` is None if this is the first seal.
    """
    expected = before.n + 1 if before else 1
    if seal.n > expected:
        which = f"seal {expected} is" if seal.n == expected + 1 else f"seals {expected} to {seal.n - 1} are"
        yield Flaw("seal_missing", f"{which} missing".capitalize() + ".", expected)
    elif seal.prev != (before.hash if before else BEGINNING):
        text = f"Seal {seal.n} does not follow the one before it: one of the two was changed or moved."
        yield Flaw("seal_moved", text, seal.n)
    if hash_of(seal) != seal.hash:
        yield Flaw("seal_altered", f"Seal {seal.n} was altered: its hash is not that of what it says.", seal.n)
    elif not is_signed(seal):
        yield Flaw("seal_unsigned", f"Seal {seal.n} is not the Messenger's: no known key made its signature.", seal.n)


class Lines:
    """A comparison of the lines that exist with those that a seal covers."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._left = enumerate(numbers(seal))

    def meet(self, line: Line) -> Iterator[Flaw]:
        """Yield the flaws up to this line, which is the next one that exists."""
        for place, seq in self._left:
            if seq == line.seq:
                if line.digest != self._seal.digests[place * SIZE : (place + 1) * SIZE]:
                    text = f"Line {seq}, which seal {self._seal.n} covers, was edited."
                    yield Flaw("edited", text, self._seal.n, seq)
                return
            yield self._removed(seq)

    def end(self) -> Iterator[Flaw]:
        """Return the flaws after the last line that exists."""
        return (self._removed(seq) for _, seq in self._left)

    def _removed(self, seq: int) -> Flaw:
        return Flaw("removed", f"Line {seq}, which seal {self._seal.n} covers, was removed.", self._seal.n, seq)


class Chain:
    """The part of the chain seen so far: its head, what it covers, and below which number no later seal looks."""

    def __init__(self) -> None:
        self.head: Seal | None = None
        self.seals = 0
        self.covered: list[tuple[int, int]] = []
        self._reach = [0, 0, 0]

    def add(self, seal: Seal) -> None:
        """Add the next seal, in the order of `n`."""
        spans = spans_of(seal.seqs)
        self.head = seal
        self.seals += 1
        if self.covered and spans and spans[0][0] >= self.covered[-1][0]:
            self.covered[-1:] = joined([self.covered[-1], *spans])
        else:
            self.covered = joined(chain(self.covered, spans))
        self._reach = [*self._reach[1:], max(self._reach[-1], *(high for _, high in spans), 0)]

    @property
    def floor(self) -> int:
        """The highest line number that any seal but the last two covers.

        A line up to it is covered or was put in by hand.
        """
        return max(self._reach[0] - 1, 0)
