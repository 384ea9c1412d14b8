"""Whether the owner's own mail server says that a mail comes from the domain it names (RFC 8601). Pure.

Anybody can write such a header field into a mail. So only the topmost one of the server that the owner named counts,
it must be readable to its last character, and nothing in it may say the contrary. What a signature leaves out, anybody
who got the mail can change, so a signature vouches for a mail only if it covers To, Message-ID, by which a mail is
brought once, and all of the body (RFC 6376).
"""

import re
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 4000
DEEPEST: Final = 4
# INVARIANT: no quote stands in a comment, by which an address that somebody chose could end it or begin one.
_COMMENT: Final = re.compile(r"\([^()\"\\]*\)")
_PIECE: Final = re.compile(r"((?:[^;\"]|\"[^\"]*\")*)(?:;|\Z)")
_RESULT: Final = re.compile(
    r"([a-z][a-z0-9-]{0,30})\s*(?:/\s*\d+\s*)?=\s*([a-z]{1,20})((?:\s.*)?)", re.DOTALL | re.ASCII
)
# INVARIANT: each a whole word, since a sender may choose an address that holds what looks like another property or a
# reason. Words are parted by blanks of ASCII alone: any other may stand in an address.
_PROPERTY: Final = re.compile(r"(?<!\S)([a-z]+)\.([a-z][a-z0-9-]*)=([^\s;\"]+)(?!\S)", re.ASCII)
# A value in quotes that ends there, such as a signature; that of an address goes on behind them.
_QUOTED: Final = re.compile(r'="[^"]*"(?!\S)', re.ASCII)
_REASON: Final = re.compile(r"(?<!\S)reason\s*=\s*(?:[^\s;\"]+|\"[^\"\\]*\")(?!\S)", re.ASCII)
# By method, which of its properties names the domain that was checked.
NAMES_DOMAIN: Final = {"dmarc": ("header.from",), "dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom",)}

# A mail is brought once by its Message-ID, and to whom it was written is To.
MUST_COVER: Final = {"to", "message-id"}


def is_authenticated(results: Sequence[str], signatures: Sequence[str], server: str | None, domain: str) -> bool:
    """Return whether this server's result says that a mail of this domain is one, as it was sent.

    `results` are the Authentication-Results from the top, and `signatures` all DKIM-Signatures. Without the server's
    name nobody is authenticated.
    """
    if not server or not domain:
        return False
    for result in results:
        pieces = _pieces(result.lower())
        if pieces is None:
            # INVARIANT: what cannot be read may be that server's own, so nothing below it counts.
            return False
        if (pieces[0].split() or [""])[0] == server.lower():
            return _is_as_sent(_passed(pieces[1:], domain.lower()), signatures)
    return False


def _passed(pieces: Sequence[str], domain: str) -> set[str]:
    """Return the methods that passed for this domain; none where anything says the contrary."""
    passed = set()
    for piece in pieces:
        found = _RESULT.fullmatch(piece.strip())
        if found is None:
            if piece.strip() in {"", "none"}:
                continue
            return set()
        method, result, rest = found[1], found[2], found[3]
        if method == "dmarc" and result not in {"pass", "none"}:
            return set()
        named = _properties(rest)
        checked = [named[name] for name in NAMES_DOMAIN.get(method, ()) if name in named]
        if result == "pass" and any(one.rpartition("@")[2] == domain for one in checked):
            passed.add(method)
    return passed


def _is_as_sent(passed: set[str], signatures: Sequence[str]) -> bool:
    """Return whether what passed says that nobody has changed To, Message-ID or the body since.

    INVARIANT: DMARC passes by a signature too, and nobody says by which: all of them must cover these.
    """
    if "spf" in passed:
        return True
    # A signature that passed and was taken out of the mail may have covered anything.
    covered = [_covers_mail(one) for one in signatures] or ["dkim" not in passed]
    return bool(passed) and all(covered)


def _covers_mail(signature: str) -> bool:
    """Return whether a signature covers To and Message-ID (`h=`), and the body to its end (no `l=`)."""
    tags = [one.partition("=") for one in "".join(signature.lower().split()).split(";")]
    named = {name: value for name, _, value in tags}
    return MUST_COVER.issubset(named.get("h", "").split(":")) and "l" not in named


def _properties(rest: str) -> dict[str, str]:
    """Return what is named; nothing where an address is quoted, or where one name stands twice."""
    said = _QUOTED.sub("= ", _REASON.sub(" ", rest))
    found = [(f"{one[1]}.{one[2]}", one[3]) for one in _PROPERTY.finditer(said)]
    named = dict(found)
    return {} if '"' in said or len(named) < len(found) else named


def _pieces(value: str) -> list[str] | None:
    """Return what stands between semicolons, without comments; None where that cannot be told for certain."""
    for _ in range(DEEPEST):
        # Nothing in its place: what stands on both sides of it in a domain is one domain.
        value = _COMMENT.sub("", value)
    if len(value) > LONGEST or set(value) & {"(", ")", "\\"} or value.count('"') % 2:
        return None
    return _PIECE.findall(value)
