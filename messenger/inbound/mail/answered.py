"""Which lines of an answer to a mail of ours repeat that mail: what it holds is known, whatever the program. Pure.

In doubt a line is not its writer's, and is told of.
"""

from typing import Final

from messenger.inbound.mail.heads import (
    begins_the_rest,
    begins_with_arrows,
    has_sign,
    is_field,
    is_separator,
    lines_of,
    may_be_head,
    said_in,
)
from messenger.inbound.mail.quoted import Mark, Parted, by_marks, marked, parted_answer
from messenger.inbound.mail.sent import (
    LEAST,
    LONGEST_LINE,
    Sent,
    alike,
    bare_of,
    beginnings,
    follows,
    found_in,
    is_anothers,
    likely,
    shares,
    stands_above,
    without_added,
    without_letters,
)

_MOST_LOOKED: Final = 200
_MOST_LINES: Final = 4
_HEAD: Final[Mark] = "head"


def parted_by(text: str, sender: str, answered: Sent) -> Parted | None:
    """Return what a mail by `sender` says that answers this one; None if it repeats nothing of it below a known head.

    Where a program marks what it repeats, all else is own. Where none does, own words stand out only among all of the
    original, below its head: where some of it is missing, all of it may be own.
    """
    lines = lines_of(text)
    bare = [bare_of(line) for line in lines]
    marks, _ = marked(lines, None)
    begins = list(beginnings(bare, answered))
    holds = [n for n, said in enumerate(bare) if len(said) >= LEAST and said in answered.words]
    marked_by_it = (n for n in [*holds, *(first for first, _ in begins)] if has_sign(lines[n]))
    if any(not any(bare[n] in one for one in answered.signed) for n in marked_by_it):
        return by_marks(lines, _compared(lines, bare, marks, answered))
    plain, in_doubt = list(map(without_added, lines, bare)), None
    for each in (bare, plain) if plain != bare else (bare,):
        likely_ones = likely(list(beginnings(each, answered)), each, answered)
        tried = (_in_full(lines, each, marks, sender, begun, answered) for begun in likely_ones)
        found = next(filter(None, tried), None)
        if found is not None and not found.in_doubt:
            return found
        in_doubt = in_doubt or found
    return in_doubt or _among_own(lines, bare, marks, sender, answered)


def _compared(lines: list[str], bare: list[str], marks: list[Mark], answered: Sent) -> list[Mark]:
    """Return the marks as the original has it: what it does not hold is own without a sign, and else in doubt.

    INVARIANT: without a sign a line may be the rest of the one above only if that ends within a line of the original,
    or the original goes on so where it says that one again.
    """
    compared, at = list[Mark](), 0
    for line, said, mark, above in zip(lines, bare, marks, ["", *bare[:-1]], strict=True):
        is_rest = has_sign(line) or (bool(above) and above + said in answered.broken)
        if mark == "own" and at and at not in answered.ends and (same := follows(line, said, answered, at)):
            # Own words stand in the middle of a line of the original, and this is the rest of it.
            compared.append("doubt")
            at += same
        elif mark in {"own", "head"} or not said:
            compared.append(mark if has_sign(line) or mark != "quoted" else without_letters(line, answered))
        elif stands_above(line, said, answered):
            compared.append("head")
        elif not is_rest and at and at in answered.ends:
            compared.append("own")
        elif found := found_in(line, said, answered, at):
            compared.append("quoted")
            at = found
        elif not at and _is_head(line) and not shares(said, answered):
            compared.append("head")
        else:
            compared.append("own" if mark == "doubt" and not is_rest else "doubt")
    return _with_head(lines, compared)


def _with_head(lines: list[str], marks: list[Mark]) -> list[Mark]:
    """Return the marks, with the head that stands right above the first sign as one."""
    first = next(n for n, line in enumerate(lines) if has_sign(line))
    within = [line.lstrip("> ") for line in lines[first : first + _MOST_LINES]]
    if count := said_in(within, 0):
        # Apple's programs set their head within the signs: what stands above is own.
        return [*marks[:first], *[_HEAD] * count, *marks[first + count :]]
    top, ends = _head_above(lines, first, is_on_line=False) or (first, first)
    if any(map(str.strip, lines[ends:first])):
        return marks
    return [*marks[:top], *[_HEAD] * (first - top), *marks[first:]]


def _is_head(line: str) -> bool:
    plain = [line.lstrip("> ")]
    return bool(said_in(plain, 0)) or is_separator(plain[0]) or is_field(plain[0])


def _in_full(
    lines: list[str], bare: list[str], marks: list[Mark], sender: str, begun: tuple[int, int], answered: Sent
) -> Parted | None:
    """Return the lines of a mail that repeats the original from there on, without signs.

    Where no head is known, from the first line on that names somebody or a day they are in doubt.
    """
    first, letters = begun
    rest = bare[first][letters:].removeprefix(answered.name)
    at = alike(rest, answered.words)
    below, is_whole = _in_order(lines, bare, first + 1, at, answered)
    if not is_whole:
        return None
    begins = first if letters else _above_letters(lines, bare, first, answered)
    head = _head_above(lines, begins, is_on_line=letters > 0)
    if head is not None and is_anothers(lines[head[0] : head[1]], sender, answered):
        return None
    named = (n for n in range(first) if may_be_head(lines[n], sender))
    top, ends = head or (next(named, begins),) * 2
    between = zip(lines[ends:first], bare[ends:first], strict=True)
    above = [_between(line, said, answered) for line, said in between]
    is_heads = not letters or may_be_head(lines[first], sender)
    own_line: Mark = "quoted" if is_heads and at == len(rest) else "doubt"
    return by_marks(lines, [*marks[:top], *[_HEAD] * (min(ends, first) - top), *above, own_line, *below])


def _above_letters(lines: list[str], bare: list[str], first: int, answered: Sent) -> int:
    """Return where the original begins whose first letters stand in that line: its name and signs may stand above."""
    top = at = first
    while at and (not bare[at - 1] or stands_above(lines[at - 1], bare[at - 1], answered)):
        at -= 1
        if bare[at] or without_letters(lines[at], answered) != "own":
            top = at
    return top


def _between(line: str, said: str, answered: Sent) -> Mark:
    """Return whose a line is that stands between a head and the first letters of the original."""
    if stands_above(line, said, answered):
        return "head"
    return "quoted" if line.strip() in answered.odd else "doubt"


def _among_own(lines: list[str], bare: list[str], marks: list[Mark], sender: str, answered: Sent) -> Parted | None:
    """Return the lines where own words stand among the first ones of the original, or it was changed there.

    INVARIANT: above the head stands no line of the original, however short.
    """
    of_ours = (n for n, said in enumerate(bare) if said and (said in answered.lines or said == answered.name))
    first = next(of_ours, len(lines))
    held = (n for n, said in enumerate(bare[:first]) if len(said) >= LEAST and said in answered.words)
    head = _head_above(lines, next(held, first), is_on_line=False)
    if head is None or is_anothers(lines[head[0] : head[1]], sender, answered):
        return None
    top, ends = head
    below, is_whole = _in_order(lines, bare, ends, 0, answered)
    if not is_whole:
        return by_marks(lines, marks, rest=top, in_doubt=True)
    return by_marks(lines, [*marks[:top], *[_HEAD] * (ends - top), *below])


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
    while top > 0 and (is_field(lines[top - 1]) or (begins(top) and begins(top - 1))):
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
        repeated = follows(line, said, answered, at)
        if not said:
            marks.append(without_letters(line, answered))
        elif repeated:
            marks.append("quoted")
        elif stands_above(line, said, answered):
            marks.append("head")
        else:
            same = alike(said, answered.words[at : at + len(said)])
            repeated = same if same >= LEAST else 0
            may_be = said in answered.lines or (at < len(answered.words) and shares(said, answered))
            marks.append("doubt" if repeated or has_sign(line) or may_be else "own")
        at += repeated
    return marks, at >= len(answered.words)


def parted_above(text: str, sender: str, answered: Sent) -> Parted | None:
    """Return what stands above all that a mail repeats of the original, in part; the rest may be own.

    None if it repeats nothing.
    """
    lines = lines_of(text)
    first = next((n for n, line in enumerate(lines) if shares(bare_of(line[:LONGEST_LINE]), answered)), None)
    if first is None:
        return None
    above = parted_answer("\n".join(lines[:first]), sender)
    return Parted(above.own, "\n".join(filter(None, (above.quoted, *lines[first:]))), in_doubt=True)
