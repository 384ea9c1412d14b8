"""The text of an HTML mail, as a person reads it. Pure.

The standard library's parser takes time without end for what it does not expect, and raises; this goes over the text
once, and knows lines, quotations and what nobody sees. A tag that is broken is text.
"""

import re
from html import unescape
from typing import Final

from messenger.inbound.mail.mime import CUT, readable

LONGEST: Final = 300_000
# What a mail program takes for markup: a `>` in a quoted attribute ends no tag. What is never closed reaches to the
# end, as in a browser, so that each character is looked at once.
_MARKUP: Final = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?P<rest>(?:[^\"'>]|\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z))*)(?:>|\Z)"
    r"|<[!?/][^>]*(?:>|\Z)",
    re.DOTALL,
)
_UNSEEN: Final = {
    name: re.compile(rf"</{name}\s*>|\Z", re.IGNORECASE) for name in ("style", "script", "title", "template")
}
# No run without a bound stands beside another that takes the same signs: of a tag of 300,000 blanks each of them would
# be tried with each.
_QUOTE: Final = re.compile(
    r"class\s{0,9}=\s{0,9}[\"']?[^\"'>]{0,200}\b(?:gmail_quote|moz-cite-prefix|yahoo_quoted)\b", re.ASCII
)
# From here on Outlook repeats the mail that is answered or forwarded, without any other sign.
_THE_REST: Final = re.compile(r"id\s*=\s*[\"']?(?:x_)*(?:divRplyFwdMsg|appendonsend)\b", re.ASCII | re.IGNORECASE)
_BREAKS: Final = frozenset(
    {"br", "p", "div", "section", "article", "pre", "table", "tr", "td", "th", "ul", "ol", "li", "dl", "dt", "dd"}
    | {"blockquote", "hr", *(f"h{size}" for size in range(1, 7))}
)


def seen_text(source: str) -> str:
    """Return the text, with a line for each block, and `> ` before each line from the first quotation on.

    INVARIANT: nothing ends a quotation. Where one ends says its markup, which somebody else wrote and which browsers
    read by more rules than anybody checks.
    """
    left_out, source, pieces, line, at = source[LONGEST:], source[:LONGEST], list[str](), "\n", 0
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
        begins = line == "\n" and not found["end"] and _is_quotation(name, found["rest"])
        line = "\n> " if begins else line
        if begins or name in _BREAKS:
            pieces.append(line)
    pieces.append(_plain(source[at:]) + (CUT if left_out and line == "\n" else ""))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip() for line in "".join(pieces).split("\n"))).strip()


def _plain(text: str) -> str:
    # A number of thousands of digits is no character, and the library raises of it.
    return re.sub(r"\s+", " ", readable(lambda: unescape(text), text))


def _is_quotation(name: str, rest: str) -> bool:
    """Return whether a tag begins what somebody else wrote: a blockquote, or a block that a mail program marks so."""
    return name == "blockquote" or bool(_QUOTE.search(rest) or _THE_REST.search(rest))
