"""The words of others as a person may be shown them: on a card, a page or a terminal, with nothing hidden."""

import unicodedata

JOINER = "\u200d"
# Blank on the screen though Unicode calls them letters, marks or symbols.
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0\ufff0\ufff1\ufff2\ufff3\ufff4"
    "\ufff5\ufff6\ufff7\ufff8\U0001d159\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d"
)
# Whether what stands before is shown as text or as a picture; after anything else they carry something unseen.
_STYLES = frozenset("\ufe0e\ufe0f")
_STYLED = frozenset({"So", "Sm", "Sk", "Po", "Pd", "Nd"})
# Tags and selectors of a plane that has no visible character.
_UNSEEN_PLANE = ("\U000e0000", "\U000e0fff")
# Shown as they are: a line end and a tab are layout, not deceit.
_LAYOUT = frozenset("\n\t")


def visible(text: str) -> str:
    """The text with everything a reader cannot see written out, as <U+202E>.

    Control, bidirectional, zero-width and private characters are shown, and others that leave no ink. Line end, tab,
    the style of an emoji and a joiner between two of them stay: they are what they look like.
    """
    return "".join(
        f"<U+{ord(character):04X}>" if _is_hidden(text, n) else character for n, character in enumerate(text)
    )


def in_line(text: str) -> str:
    """The same for words that stand in a line of ours: line ends and tabs are written out too."""
    return visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def quoted(text: str) -> str:
    """The same for a whole text: each of its lines begins with a mark, so that none passes for one of ours."""
    return "\n".join(f"> {line}" if line else ">" for line in visible(text).split("\n"))


def said(text: str, most: int = 500) -> str:
    """The same for what somebody says about itself, in quotation marks; of a longer one the beginning and how long."""
    more = f" ... ({len(text)} characters)" if len(text) > most else ""
    return '"' + in_line(text[:most]).replace('"', "'") + f'"{more}'


def seen(text: str) -> str:
    """The text without everything a reader cannot see."""
    return "".join(character for n, character in enumerate(text) if not _is_hidden(text, n))


def _is_hidden(text: str, n: int) -> bool:
    """Whether text[n] leaves no ink, or changes the order of others."""
    character = text[n]
    if character in _LAYOUT:
        return False
    if character == JOINER and 0 < n < len(text) - 1:
        emoji_before = unicodedata.category(text[n - 1]) in {"So", "Sk"} or text[n - 1] == "\ufe0f"
        return not (emoji_before and unicodedata.category(text[n + 1]) == "So")
    if character in _STYLES:
        return n == 0 or unicodedata.category(text[n - 1]) not in _STYLED
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} or character in _UNSEEN
    return hidden or _UNSEEN_PLANE[0] <= character <= _UNSEEN_PLANE[1]
