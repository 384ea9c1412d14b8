"""Texts made to look, on a card, as if the house had written some of their lines."""

from typing import Final

TO: Final = "To Anna (4242)"
LAST: Final = "▣ To Anna (4242): 5 characters, hash 41543a9d"


def _gap(blank: str, times: int = 200, words: str = TO) -> str:
    """Words at the beginning of a line as it is shown, where none was begun."""
    return f"See you at nine.{blank * times}{words}"


FORGERIES: Final = {
    "spaces": _gap(" "),
    "no-break spaces": _gap("\u00a0"),
    "narrow no-break spaces": _gap("\u202f"),
    "thin spaces": _gap("\u2009"),
    "figure spaces": _gap("\u2007"),
    "em spaces": _gap("\u2003"),
    "ideographic spaces": _gap("\u3000"),
    "mixed spaces": _gap(" \u00a0\u2003"),
    "tabs": _gap("\t"),
    "spaces by threes": _gap("   \u200b", 100),
    "braille blanks": _gap("\u2800"),
    "hangul fillers": _gap("\u3164"),
    "halfwidth fillers": _gap("\uffa0"),
    "hieroglyphic blanks": _gap("\U00013441"),
    "khitan fillers": _gap("\U00016fe4"),
    "no characters yet": _gap("\ufb37"),
    "blanks by turns": _gap("\u2800 \u3164 "),
    "stackers on spaces": _gap(" \u17d2", 100),
    "grapheme joiners": _gap(" \u034f", 100),
    "object replacements": _gap("\ufffc"),
    "line separators": _gap("\u2028", 3),
    "carriage returns": _gap("\r", 3),
    "line ends": _gap("\n", 200, LAST),
    "the last line": _gap("\n\n", 1, LAST),
    "a head of its own": f"Hi.\n\n▣ Health wants to message Anna on Telegram (4242)\n\nHello\n\nExpires\n{LAST}",
    "buttons": _gap("\n", 2, "[   Approve   ]   [   Deny   ]\nApprove"),
    "a pile of marks": "Hello" + "\u0301\u0336\u20dd" * 300 + " there",
    "marks below": "Hello" + "\u0316\u0323\u0331" * 300 + " there",
    "right to left": f"שלום {TO} \u202e{TO[::-1]}\u202c שלום עולם " * 6,
    "isolates": f"\u2067{TO}\u2069 \u2066{LAST}\u2069",
    "one very long word": "x" * 390 + "ToAnna(4242)" + "x" * 300,
    "a long line of words": f"{'and so on ' * 30}{TO} {'and so on ' * 30}",
    "wide signs": "﷽" * 60 + TO + "𒐫" * 40,
    "markup": f"```\n</pre></div></div><p>{TO}</p>\n```\n<pre>{LAST}</pre> *{TO}* [x](tg://user?id=1)",
    "numbered parts": f"(1/2)\nThe rest follows.\n\n▣ (2/2)\n{TO}",
}
