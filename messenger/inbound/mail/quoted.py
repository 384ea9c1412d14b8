"""Which lines of a mail its writer wrote, and which repeat what was written before. Pure.

In doubt a line is taken for quoted: words of the owner's begin work, and what somebody else wrote must not.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from messenger.inbound.mail.heads import (
    begins_the_rest,
    begins_with_arrows,
    has_fields,
    has_sign,
    is_dated,
    is_head,
    is_separator,
    lines_of,
    may_be_head,
    quote_follows,
    said_in,
    was_wrapped,
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
    lines = lines_of(text.rstrip())
    # A list at the end is no head, since nothing follows it.
    last = next((at for at in range(len(lines) - 1, -1, -1) if not lines[at].strip()), -1)

    def begins(at: int) -> bool:
        return is_separator(lines[at]) or begins_with_arrows(lines[at]) or (at < last and has_fields(lines, at, sender))

    marks, rest = marked(lines, begins)
    return by_marks(lines, marks, rest=rest, in_doubt=True)


def parted_answer(text: str, sender: str) -> Parted:
    """Return what a mail says that answers one which is not known, by `sender`.

    Mail programs repeat in a hundred forms what is answered, and each names whoever wrote it by an address, or says
    when. So without signs nothing counts from the first line on that does.
    """
    lines = lines_of(text)
    marks, rest = marked(lines, partial(begins_the_rest, lines, sender=sender))
    signs = next((at for at, mark in enumerate(marks) if mark != "own"), rest)
    if signs < rest and begins_with_arrows(lines[signs]):
        rest = signs
    heads = (at for at, line in enumerate(lines[: min(signs, rest)]) if may_be_head(line, sender))
    rest = next(heads, rest)
    return by_marks(lines, marks, rest=rest, in_doubt=rest < len(lines) and not is_head(lines, rest))


def by_marks(lines: list[str], marks: list[Mark], *, rest: int | None = None, in_doubt: bool = False) -> Parted:
    """Return the own words, and all others; what may be own stands first of these, so that it can be named.

    From `rest` on nothing has a mark: it is quoted, or in doubt.
    """
    below = [] if rest is None else lines[rest:]
    said = list(zip(lines[:rest], marks, strict=False))
    doubtful = [*[line for line, mark in said if mark == "doubt"], *(below if in_doubt else [])]
    quoted = [line for line, mark in said if mark in {"head", "quoted"}]
    own = [line for line, mark in said if mark == "own"]
    return Parted(
        _joined(own), _joined([*doubtful, *quoted, *([] if in_doubt else below)]), any(map(str.strip, doubtful))
    )


def marked(lines: list[str], begins: Callable[[int], bool] | None) -> tuple[list[Mark], int]:
    """Return whose each line is by its signs, or by what says so right above; and from which on all are somebody's.

    Without `begins` nothing but signs counts. What may be one line with a head below, wrapped, is in doubt.
    """
    marks = list[Mark]()
    while (at := len(marks)) < len(lines):
        said = said_in(lines, at)
        has_signs = bool(said) and quote_follows(lines, at + said)
        if said:
            marks[:] = _wrapped_into_head(lines, marks)
        if begins is not None and (begins(at) or (said and not has_signs)):
            return marks, at
        if has_signs:
            marks += ["head"] * said
        else:
            marks.append(_by_signs(lines, at, marks[-1] if marks else "own"))
    return marks, len(lines)


def _wrapped_into_head(lines: list[str], marks: list[Mark]) -> list[Mark]:
    """Return the marks of lines above a head: of a long name may be what was wrapped, and says a day as heads do."""
    top = at = len(marks)
    while at and marks[at - 1] == "own" and was_wrapped(lines, at - 1):
        at -= 1
        if is_dated(lines[at]):
            top = at
    in_doubt: list[Mark] = ["doubt"] * (len(marks) - top)
    return [*marks[:top], *in_doubt]


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


def _joined(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()
