"""Whether the owner's own mail server says that a mail comes from the domain it names (RFC 8601). Pure.

Anybody can write such a header field into a mail. So only the topmost one of the server that the owner named counts,
it must be readable to its last character, and nothing in it may say the contrary.
"""

import re
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 4000
DEEPEST: Final = 4
# INVARIANT: no quote stands in a comment, by which an address that somebody chose could end it or begin one.
_COMMENT: Final = re.compile(r"\([^()\"\\]*\)")
_PIECE: Final = re.compile(r"((?:[^;\"]|\"[^\"]*\")*)(?:;|\Z)")
_RESULT: Final = re.compile(r"([a-z][a-z0-9-]{0,30})\s*(?:/\s*\d+\s*)?=\s*([a-z]{1,20})((?:\s.*)?)", re.DOTALL)
# INVARIANT: a whole word, since a sender may choose an address that holds what looks like another property.
_PROPERTY: Final = re.compile(r"(?<!\S)([a-z]+)\.([a-z][a-z0-9-]*)=([^\s;\"]+)(?!\S)")
# A value in quotes that ends there, such as a signature; that of an address goes on behind them.
_QUOTED: Final = re.compile(r'="[^"]*"(?!\S)')
_REASON: Final = re.compile(r"reason\s*=\s*(?:[^\s;\"]+|\"[^\"\\]*\")")
# By method, which of its properties names the domain that was checked.
NAMES_DOMAIN: Final = {"dmarc": ("header.from",), "dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom",)}


def is_authenticated(results: Sequence[str], server: str | None, domain: str) -> bool:
    """Return whether this server's result says that a mail of this domain is one.

    `results` are the Authentication-Results from the top. Without the server's name nobody is authenticated.
    """
    if not server or not domain:
        return False
    for result in results:
        pieces = _pieces(result.lower())
        if pieces is None:
            # INVARIANT: what cannot be read may be that server's own, so nothing below it counts.
            return False
        if (pieces[0].split() or [""])[0] == server.lower():
            return _passes(pieces[1:], domain.lower())
    return False


def _passes(pieces: Sequence[str], domain: str) -> bool:
    passed = False
    for piece in pieces:
        found = _RESULT.fullmatch(piece.strip())
        if found is None:
            if piece.strip() in {"", "none"}:
                continue
            return False
        method, result, rest = found[1], found[2], found[3]
        if method == "dmarc" and result not in {"pass", "none"}:
            return False
        named = _properties(rest)
        checked = [named[name] for name in NAMES_DOMAIN.get(method, ()) if name in named]
        passed = passed or (result == "pass" and any(one.rpartition("@")[2] == domain for one in checked))
    return passed


def _properties(rest: str) -> dict[str, str]:
    """Return what is named; nothing where an address is quoted, or where one name stands twice."""
    said = _QUOTED.sub("= ", _REASON.sub(" ", rest))
    found = [(f"{one[1]}.{one[2]}", one[3]) for one in _PROPERTY.finditer(said)]
    named = dict(found)
    return {} if '"' in said or len(named) < len(found) else named


def _pieces(value: str) -> list[str] | None:
    """Return what stands between semicolons, without comments; None where that cannot be told for certain."""
    for _ in range(DEEPEST):
        value = _COMMENT.sub(" ", value)
    if len(value) > LONGEST or set(value) & {"(", ")", "\\"} or value.count('"') % 2:
        return None
    return _PIECE.findall(value)
