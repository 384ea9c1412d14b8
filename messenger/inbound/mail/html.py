"""The text of an HTML mail, as a person reads it. Pure.

The standard library's parser takes time without end for what it does not expect, and raises; this goes over the text
once, and knows lines, quotations and what nobody sees. A tag that is broken is text.
"""

import re
from html import unescape
from typing import Final

LONGEST: Final = 300_000
_UNSEEN: Final = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<tag>style|script|head|title|template)\b.*?(?:</(?P=tag)\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
_TAG: Final = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_QUOTE: Final = re.compile(
    r"class\s*=\s*[\"']?[^\"'>]{0,200}\b(?:gmail_quote|moz-cite-prefix|yahoo_quoted)\b", re.ASCII
)
# From here on Outlook repeats the mail that is answered or forwarded, without any other sign.
_THE_REST: Final = re.compile(r"id\s*=\s*[\"']?(?:x_)*(?:divRplyFwdMsg|appendonsend)\b", re.ASCII | re.IGNORECASE)
_SEPARATOR: Final = f"\n{'_' * 32}\n"
_BREAKS: Final = frozenset(
    {"br", "p", "div", "tr", "li", "ul", "ol", "table", "blockquote", "hr"} | {f"h{size}" for size in range(1, 7)}
)


def seen_text(source: str) -> str:
    """Return the text, with a line for each block, and `> ` before each line of a quotation."""
    pieces: list[str] = []
    quoted: list[str] = []
    for place, chunk in enumerate(_UNSEEN.sub(" ", source[:LONGEST]).split("<")):
        head, closed, words = chunk.partition(">") if place else ("", "", chunk)
        tag = _TAG.match(head) if closed else None
        if place and not closed:
            words = f"<{chunk}"
        elif tag is not None:
            name = tag[2].lower()
            _quotation(quoted, name, head, is_end=bool(tag[1]))
            if _THE_REST.search(head):
                pieces.append(_SEPARATOR)
            if name in _BREAKS:
                pieces.append("\n" + "> " * _depth(quoted))
        elif place and head[:1] not in {"!", "?", "/"}:
            words = f"<{chunk}"
        pieces.append(re.sub(r"\s+", " ", unescape(words)))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip() for line in "".join(pieces).split("\n"))).strip()


def _quotation(inside: list[str], name: str, head: str, *, is_end: bool) -> None:
    """Note where a quotation begins and ends: a blockquote, or the block that a mail program marks as one."""
    if is_end:
        if inside and inside[-1].lstrip("+") == name:
            inside.pop()
    elif name == "blockquote" or _QUOTE.search(head):
        inside.append(f"+{name}")
    elif inside and inside[-1].lstrip("+") == name and name == "div":
        inside.append(name)


def _depth(inside: list[str]) -> int:
    """Return how deep a quotation is nested, up to what anybody reads."""
    return min(sum(one.startswith("+") for one in inside[:50]), 5)
