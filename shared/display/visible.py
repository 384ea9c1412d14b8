"""The words of others as a person may be shown them: on a card, a page or a terminal, with nothing hidden."""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

JOINER: Final = "\u200d"
# The first character of the house's own lines to the owner. In the words of others it is written out.
MARK: Final = "\u25a3"
# Blank on the screen though Unicode calls them letters, marks or symbols.
UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u2d7f\u303f\u3164\uffa0\ufff0\ufff1\ufff2\ufff3"
    "\ufff4\ufff5\ufff6\ufff7\ufff8\ufffc\U00011a47\U00011a99\U0001107f\U00016fe4\U0001bc9d\U0001d159"
    "\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d"
)
# Blank and lost signs of the Egyptian hieroglyphs; tags and selectors of a plane that has no visible character.
_UNSEEN_ROWS: Final = (("\U00013440", "\U00013455"), ("\U000e0000", "\U000e0fff"))
# What is no character yet is drawn as nothing by some fonts. In these rows newer versions of Unicode than ours have
# pictures and ideographs, which are drawn.
_YET_TO_COME: Final = (("\U0001f000", "\U0001faff"), ("\U00020000", "\U0003fffd"))
# They choose whether the character before is shown as text or as a picture; after any other they hide something.
_STYLES: Final = frozenset("\ufe0e\ufe0f")
_STYLED: Final = frozenset({"So", "Sm", "Sk", "Po", "Pd", "Nd"})
# Shown as they are: a line end and a tab are layout, not deceit.
_LAYOUT: Final = frozenset("\n\t")
# More white space in a row than this could end a line where none ends, more marks on a letter hide the line above.
_BLANK: Final = r"[\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
_BLANKS_IN_A_ROW: Final = re.compile(_BLANK + "{4,}")
# So many line ends would put what follows them on another screen, where nobody looks.
_EMPTY_LINES: Final = re.compile(rf"\n(?:{_BLANK}*\n){{4,}}")
_PILE: Final = 4
# Letters, digits and signs of most texts, which leave ink, and layout: a text of these alone hides nothing.
PLAIN: Final = re.compile(
    r"[\n\t -~\u00a1-\u00ac\u00ae-\u02ff\u0391-\u03a1\u03a3-\u03ff\u0400-\u0482\u2010-\u2027\u20ac]*"
)
# Names of what hides take so much room in any text, and in a longer one as much as it has itself.
_ROOM: Final = 2000
# Beyond that this stands for a name: a text of nothing else would be nine times as long, and fill a chat for a minute.
_UNNAMED: Final = "\ufffd"
# So many columns with the mark of a quotation, so that no mail program and no terminal breaks its lines anew.
_COLUMNS: Final = 72


def visible(text: str) -> str:
    """Write out everything in a text that a reader cannot see, as <U+202E>, and a run of it as <U+0020 x 40>.

    Control, bidirectional, zero-width and private characters are written out, others that leave no ink, white space and
    empty lines in runs, piles of combining marks, and the house's own mark. Any other line end, tab, the style of an
    emoji and a joiner between two of them stay: they are what they look like. Names take as much room as the text does,
    or 2,000 characters in a short one; beyond that a U+FFFD stands for each.
    """
    written = _written(text)
    if not written:
        return text
    shown, room = list[str](), max(_ROOM, len(text))
    for (character, hidden), run in itertools.groupby((one, n in written) for n, one in enumerate(text)):
        length = sum(1 for _ in run)
        if not hidden:
            shown.append(character * length)
            continue
        name = _named(character, length)
        room -= len(name)
        shown.append(name if room >= 0 else _UNNAMED)
    return "".join(shown)


def _named(character: str, times: int) -> str:
    return f"<U+{ord(character):04X}{f' x {times}' if times > 1 else ''}>"


def in_line(text: str) -> str:
    """Return the visible text of words that stand in a line of ours: line ends and tabs are written out too."""
    return visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning with a mark that there is more; `most` characters in all."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(text: str) -> str:
    """Return the visible text with a mark before each line as it is shown, so that none passes for one of ours."""
    lines = (row for line in visible(text).split("\n") for row in rows(line))
    return "\n".join(f"> {line}" if line else ">" for line in lines)


def rows(line: str, most: int = _COLUMNS) -> Iterator[str]:
    """Break a line into rows of at most so many columns, after a space where there is one; together they are the line.

    Those of a mail leave room for the mark that stands before each.
    """
    start, columns, space = 0, 0, 0
    for n, character in enumerate(line):
        columns += _columns(character)
        if columns > most:
            end = space or n
            yield line[start:end]
            start, space = end, 0
            columns = sum(map(_columns, line[start : n + 1]))
        if character == " ":
            space = n + 1
    yield line[start:]


def _columns(character: str) -> int:
    """Return how wide a terminal shows a character; a tab counts at its widest."""
    if character == "\t":
        return 8
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def said(text: str, most: int = 500) -> str:
    """Return the visible text of what somebody says about themselves, in quotation marks on one line.

    Of a longer text it gives the beginning and how long it is.
    """
    more = f" ... ({len(text)} characters)" if len(text) > most else ""
    return '"' + in_line(text[:most]).replace('"', "'") + f'"{more}'


def printable(text: str) -> str:
    """Return a line of ours with the words of others in it, fit for a terminal; columns of spaces stay."""
    return "".join(
        f"<U+{ord(one):04X}>" if one in _LAYOUT or _is_hidden(text, n) else one for n, one in enumerate(text)
    )


def seen(text: str) -> str:
    """Remove what a reader cannot see from a text; of white space in a row one character stays, of empty lines one."""
    while True:
        text = _EMPTY_LINES.sub("\n\n", _BLANKS_IN_A_ROW.sub(lambda run: run[0][0], text))
        written = _written(text)
        if not written:
            return text
        text = "".join(character for n, character in enumerate(text) if n not in written)


def _written(text: str) -> set[int]:
    """Return the positions of the characters that are to be written out."""
    runs = itertools.chain(_BLANKS_IN_A_ROW.finditer(text), _EMPTY_LINES.finditer(text))
    found = {n for run in runs for n in range(*run.span())}
    if PLAIN.fullmatch(text):
        return found
    pile, base = 0, "\n"
    for n, character in enumerate(text):
        if _is_hidden(text, n):
            found.add(n)
        if unicodedata.category(character) in {"Mn", "Me"}:
            pile += 1
            # A mark without a letter below it may leave no ink at all.
            if pile > _PILE or base.isspace():
                found.add(n)
        else:
            pile, base = 0, character
    return found


def _is_hidden(text: str, n: int) -> bool:
    """Return whether text[n] leaves no ink, changes the order of others, or is a mark that is ours."""
    character = text[n]
    if character in _LAYOUT:
        return False
    if character == JOINER and 0 < n < len(text) - 1:
        emoji_before = unicodedata.category(text[n - 1]) in {"So", "Sk"} or text[n - 1] == "\ufe0f"
        return not (emoji_before and unicodedata.category(text[n + 1]) == "So")
    if character in _STYLES:
        return n == 0 or unicodedata.category(text[n - 1]) not in _STYLED
    category = unicodedata.category(character)
    hidden = category in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} or character in UNSEEN or character == MARK
    unknown = category == "Cn" and not _is_within(character, _YET_TO_COME)
    return hidden or unknown or _is_within(character, _UNSEEN_ROWS)


def _is_within(character: str, rows_of: Sequence[tuple[str, str]]) -> bool:
    return any(first <= character <= last for first, last in rows_of)
