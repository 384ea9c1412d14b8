"""The text of an HTML mail, as a person reads it. Pure.

The standard library's parser takes time without end for what it does not expect, and raises; this goes over the text
once, and knows lines, quotations and what nobody sees. A tag that is broken is text.
"""

import re
from html import unescape
from typing import Final

from messenger.inbound.mail.mime import readable

LONGEST: Final = 300_000
# What a mail program takes for markup. INVARIANT: a `>` in a quoted attribute ends no tag, and a comment begins where a
# tag may, or a quotation would end where its writer chose. What is never closed reaches to the end, as in a browser, so
# that each character is looked at once.
_MARKUP: Final = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?P<rest>(?:[^\"'>]|\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z))*)(?:>|\Z)"
    r"|<[!?/][^>]*(?:>|\Z)",
    re.DOTALL,
)
_UNSEEN: Final = {
    name: re.compile(rf"</{name}\s*>|\Z", re.IGNORECASE) for name in ("style", "script", "head", "title", "template")
}
# No run without a bound stands beside another that takes the same signs: of a tag of 300,000 blanks each of them would
# be tried with each.
_QUOTE: Final = re.compile(
    r"class\s{0,9}=\s{0,9}[\"']?[^\"'>]{0,200}\b(?:gmail_quote|moz-cite-prefix|yahoo_quoted)\b", re.ASCII
)
# From here on Outlook repeats the mail that is answered or forwarded, without any other sign.
_THE_REST: Final = re.compile(r"id\s*=\s*[\"']?(?:x_)*(?:divRplyFwdMsg|appendonsend)\b", re.ASCII | re.IGNORECASE)
_SEPARATOR: Final = f"\n{'_' * 32}\n"
_BREAKS: Final = frozenset(
    {"br", "p", "div", "tr", "li", "ul", "ol", "table", "blockquote", "hr"} | {f"h{size}" for size in range(1, 7)}
)


def seen_text(source: str) -> str:
    """Return the text, with a line for each block, and `> ` before each line of a quotation."""
    source, pieces, quoted, at = source[:LONGEST], list[str](), list[str](), 0
    while (found := _MARKUP.search(source, at)) is not None:
        pieces.append(_plain(source[at : found.start()]))
        at = found.end()
        name = (found["name"] or "").lower()
        if not name:
            continue
        unseen = _UNSEEN.get(name)
        if unseen is not None and not found["end"] and (hidden := unseen.search(source, at)):
            at = hidden.end()
            continue
        depth = _depth(quoted)
        _quotation(quoted, name, found["rest"], is_end=bool(found["end"]))
        if depth and not _depth(quoted):
            # What stands below the quotation is not a part of its last line.
            pieces.append("\n\n")
        if _THE_REST.search(found["rest"]):
            pieces.append(_SEPARATOR)
        if name in _BREAKS:
            pieces.append("\n" + "> " * _depth(quoted))
    pieces.append(_plain(source[at:]))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip() for line in "".join(pieces).split("\n"))).strip()


def _plain(text: str) -> str:
    # A number of thousands of digits is no character, and the library raises of it.
    return re.sub(r"\s+", " ", readable(lambda: unescape(text), text))


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
