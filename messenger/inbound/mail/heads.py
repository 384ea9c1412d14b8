"""How mail programs say who wrote what follows: the heads of what a mail repeats. Pure."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from shared.display.visible import MARK

_SEPARATOR: Final = re.compile(
    r"\s*(?:[-_=*]{2,}\s*(?:original|forwarded|ursprüngliche|weitergeleitete|message|mensaje|messaggio|begin forwarded)"
    r"\b|begin forwarded message\b|_{20,}\s*\Z)",
    re.IGNORECASE,
)
_DASHED: Final = re.compile(r"\s*-{3,}[ ]*\w")
# Notes names whose mail it is, when it came, and its first words on one line.
_NAMED_AND_DATED: Final = re.compile(r"\S[^\n-]{0,200}---\d[\d.,:/ APMapm-]{5,40}---")
# Some programs lose the line breaks of what they repeat: "-------- Original message --------From: Anna Date: ...".
_SEPARATOR_WITHIN: Final = re.compile("(?<!-)-{4,}[^-\n]{3,60}-{4,}(?!-)(?=[^\\S\n]*[^\\s:\uff1a]{1,24}[:\uff1a])")
# The head of an answered mail as Outlook and others repeat it: a sender's line, with a date or subject close below.
_FROM: Final = re.compile(r"[>*\s]*(?:from|von|de|da|van|från|fra)\s*:\*?\s*\S.*", re.IGNORECASE)
_HEAD: Final = re.compile(
    r"[>*\s]*(?:sent|date|to|subject|gesendet|datum|an|betreff|envoyé|à|objet|enviado|para|asunto|inviato|oggetto"
    r"|verzonden|onderwerp)\s*:\*?.*",
    re.IGNORECASE,
)
# The same head in a language that is not known here: several fields in a row, one with an address or a date.
_FIELD: Final = re.compile(r"[>*\s]*[^\s:\uff1a][^:\uff1a]{0,24}[:\uff1a]\*?\s*\S.*")
_COLON: Final = re.compile("[:\uff1a]")
_A_YEAR: Final = re.compile(r"(?<!\d)20\d\d(?!\d)")
_NAMES_SOMEBODY: Final = re.compile(rf"\S@\S|{_A_YEAR.pattern}")
_LEAST_FIELDS: Final = 3
# "On Monday, Anna wrote:", however long the name is; in a language that is not known here with a date, and an address
# at its end.
_SAID_BEGINS: Final = re.compile(r"\s*(?:on|at|am|le|el|il|op|den|em|w dniu|pe)\b", re.IGNORECASE)
_SAID: Final = re.compile(
    r"\b(?:wrote|schrieb|geschrieben|écrit|escribió|scritto|schreef|skrev|escreveu|napisał\S*)\b", re.IGNORECASE
)
_SAID_ENDS: Final = re.compile(rf"{_SAID.pattern}.{{0,120}}:\s*\Z", re.IGNORECASE)
_ENDS_SHOWN: Final = 200
# An address, and what stands behind it up to a colon: three words at most, as one's own that lead over to a text go on
# longer. INVARIANT: no two parts take the same sign, so that it takes no longer the more of them a stranger repeats.
_WHOSE: Final = re.compile("<([^<>]{3,512})>,?([^<>\\d@,.;!?:\uff1a]{0,80})[:\uff1a]")
_MOST_WORDS_BEHIND: Final = 3
_YEAR: Final = re.compile(r"20\d\d")
_TIME: Final = re.compile(r"\d{1,2}[:.]\d\d")
_DATE: Final = re.compile(rf"{_YEAR.pattern}|{_TIME.pattern}")
_MOST_LINES_SAID: Final = 3
# A name may be as long as its bearer likes; a line was wrapped if the first word of the next did not fit on it.
_MOST_LINES_WRAPPED: Final = 100
_WRAPPED_AT: Final = 60
_LONGEST_SAID: Final = 5000
_LONGEST_HEAD: Final = 400
_SUBJECT: Final = re.compile(
    r"[>*\s]*(?:subject|betreff|objet|asunto|assunto|oggetto|onderwerp|ämne|emne|aihe|předmět|temat|tárgy|konu|тема"
    r"|主题|主旨|件名)\s*[:\uff1a]",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"[^\s<>@,;:()\[\]\"]{1,64}@[^\s<>@,;:()\[\]\"]{1,253}")
_DAY: Final = re.compile(r"20\d\d|\d{1,2}[./-]\d{1,2}[./-]\d\d")
_MOST_FIELDS: Final = 8


def lines_of(text: str) -> list[str]:
    """Return the lines, with a separator that lost its line breaks on a line of its own; a subject may hold one."""
    broken = (
        [line] if _SUBJECT.match(line) else _SEPARATOR_WITHIN.sub(r"\n\g<0>\n", line).removeprefix("\n").split("\n")
        for line in text.split("\n")
    )
    return [line for lines in broken for line in lines]


def begins_the_rest(lines: list[str], at: int, sender: str) -> bool:
    """Return whether from this line on all repeats another mail than `sender`'s, with or without signs."""
    return is_separator(lines[at]) or has_fields(lines, at, sender)


def is_separator(line: str) -> bool:
    """Return whether a mail program draws this line above what it repeats."""
    line = line[:_LONGEST_SAID]
    return bool(
        _SEPARATOR.match(line)
        or _NAMED_AND_DATED.match(line)
        or (_DASHED.match(line) and ("@" in line or line.rstrip().endswith("---")))
    )


def has_fields(lines: list[str], at: int, sender: str) -> bool:
    """Return whether the head of a mail stands here, field by field, as Outlook repeats it.

    What names nobody but the sender is the end of that one's mail: a telephone, a company, an address.
    """
    # What follows looks for fields, and is not tried on each of many thousand lines that are none.
    if not _COLON.search(lines[at][:_LONGEST_HEAD]):
        return False
    head = [line[:_LONGEST_HEAD] for line in lines[at : at + _LEAST_FIELDS]]
    if len(head) == _LEAST_FIELDS and all(map(_FIELD.fullmatch, head)) and any(_names(line, sender) for line in head):
        return True
    below = [line for line in lines[at + 1 : at + 5] if line.strip()]
    return bool(_FROM.fullmatch(head[0])) and any(_HEAD.fullmatch(one[:_LONGEST_HEAD]) for one in below)


def is_field(line: str) -> bool:
    """Return whether a line is a field of a head, such as `Sent: Monday`, in a language that is known."""
    line = line[:_LONGEST_HEAD]
    return bool(_FROM.fullmatch(line) or _HEAD.fullmatch(line) or _SUBJECT.match(line))


def _names(line: str, sender: str) -> bool:
    """Return whether a line names somebody else than the sender, or a year."""
    of_sender = sum(one.casefold() == sender.casefold() for one in _ADDRESS.findall(line))
    return line.count("@") > of_sender or bool(_A_YEAR.search(line))


def said_in(lines: list[str], at: int) -> int:
    """Return how many lines from here say who wrote what follows, be it on the same line; zero if they do not.

    INVARIANT: none of them is blank, and the last of them do not say it by themselves: what stands above is own.
    """
    line = lines[at][:_LONGEST_SAID]
    if _says_in_full(line) or _says_when_and_whose(line):
        return 1
    close = list(takewhile(str.strip, lines[at : at + _MOST_LINES_SAID]))
    counts = (count for count in range(1, len(close) + 1) if _says_so(_in_one(close[:count])))
    ends = at + (next(counts, 0) or _wrapped(lines, at))
    later = range(max(at + 1, ends - _MOST_LINES_SAID), ends)
    return 0 if any(_says_by_itself(lines, at, begins, ends) for begins in later) else ends - at


def _says_by_itself(lines: list[str], at: int, begins: int, ends: int) -> bool:
    """Return whether the lines up to `ends` say who wrote from `begins` on, and those from `at` on are none of it.

    What was wrapped is one line with what follows, unless that alone says when.
    """
    above, below = _in_one(lines[at:begins]), _in_one(lines[begins:ends])
    if not (_says_so(below) or (_says_when(below) and not _SAID_BEGINS.match(above))):
        return False
    return is_dated(below) or not (is_dated(above) or was_wrapped(lines, begins - 1))


def _says_when(line: str) -> bool:
    """Return whether a line says a day and ends with a colon: so heads do in any language."""
    return _DAY.search(line) is not None and _COLON.fullmatch(line.rstrip()[-1:]) is not None


def is_dated(line: str) -> bool:
    """Return whether a line says a day by its numbers, or a time."""
    return bool(_DAY.search(line[:_LONGEST_SAID]) or _TIME.search(line[:_LONGEST_SAID]))


def _says_so(line: str) -> bool:
    return bool(_SAID_BEGINS.match(line) and _SAID_ENDS.search(line[-_ENDS_SHOWN:]))


def _says_in_full(line: str) -> bool:
    """Return whether a line by itself says who wrote, with year and time; the words may follow on the same line."""
    year, time = _YEAR.search(line), _TIME.search(line)
    if year is None or time is None:
        return False
    dated = max(year.end(), time.end())
    said = _SAID.search(line)
    return bool(_SAID_ENDS.search(line[-_ENDS_SHOWN:])) or any(
        dated <= one.start() and (one[2].strip() or (said and said.end() <= one.start())) for one in _writers(line)
    )


def _says_when_and_whose(line: str) -> bool:
    """Return whether a line ends with an address, after a date; so it does in any language."""
    date, ended = _DATE.search(line), len(line.rstrip())
    return date is not None and any(date.end() <= one.start() and one.end() == ended for one in _writers(line))


def _writers(line: str) -> Iterator[re.Match[str]]:
    return (one for one in _WHOSE.finditer(line) if "@" in one[1] and len(one[2].split()) <= _MOST_WORDS_BEHIND)


def _wrapped(lines: list[str], at: int) -> int:
    """Return how many lines from here are one line, wrapped or not, that says who wrote what follows; or zero."""
    last = at
    while last - at < _MOST_LINES_WRAPPED and (follows := (lines[last + 1 : last + 2] or [""])[0].split()):
        # Where signs follow at once, the quotation begins with them.
        if not was_wrapped(lines, last) or follows[0].startswith(">"):
            break
        last += 1
    if not _COLON.fullmatch(lines[last].rstrip()[-1:]):
        return 0
    together = _in_one(lines[at : last + 1])
    says = _says_so(together) or _says_when_and_whose(together)
    if quote_follows(lines, last + 1):
        # Right above a quotation less says it.
        says = says or bool(_NAMES_SOMEBODY.search(together) or _DATE.search(together))
    return last + 1 - at if says else 0


def was_wrapped(lines: list[str], at: int) -> bool:
    """Return whether the next line may be the rest of this one: its first word did not fit on this one."""
    follows = (lines[at + 1 : at + 2] or [""])[0].split(maxsplit=1)
    return bool(follows) and len(lines[at].strip()) + 1 + len(follows[0]) > _WRAPPED_AT


def _in_one(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)[:_LONGEST_SAID]


def quote_follows(lines: list[str], at: int) -> bool:
    """Return whether what follows is quoted by signs."""
    following = next((line for line in lines[at : at + 3] if line.strip()), "")
    return has_sign(following)


def has_sign(line: str) -> bool:
    """Return whether a line is quoted by a sign before it."""
    return line.lstrip().startswith(">")


def begins_with_arrows(line: str) -> bool:
    """Return whether a line is a head behind arrows: GroupWise begins so, and puts no signs before what follows."""
    bare = line.strip()
    is_between = bare.startswith(">>") and bare.endswith(">>") and bool(bare.strip("> "))
    return is_between or (bare.startswith(">>>") and may_be_head(bare, ""))


def may_be_head(line: str, sender: str) -> bool:
    """Return whether a line names somebody else than the sender by an address, or a day by its numbers."""
    others = (one for one in _ADDRESS.findall(line[:_LONGEST_SAID]) if one.casefold() != sender.casefold())
    return any(others) or _DAY.search(line[:_LONGEST_SAID]) is not None


def addresses_in(text: str) -> list[str]:
    """Return the addresses that a text names, in small letters."""
    return [one.casefold() for one in _ADDRESS.findall(text[:_LONGEST_SAID])]


def is_head(lines: list[str], at: int) -> bool:
    """Return whether these lines say so much of who wrote what follows that nobody writes so by oneself."""
    if is_separator(lines[at]) or begins_with_arrows(lines[at]):
        return any(map(str.isalpha, lines[at])) or bool(
            _FROM.fullmatch("".join(lines[at + 1 : at + 2])[:_LONGEST_HEAD])
        )
    said = said_in(lines, at)
    if said:
        return may_be_head(_in_one(lines[at : at + said]), "")
    fields = list(takewhile(_FIELD.fullmatch, (line[:_LONGEST_HEAD] for line in lines[at : at + _MOST_FIELDS])))
    together = "\n".join(fields)
    is_full = len(fields) > _LEAST_FIELDS and bool(_ADDRESS.search(together)) and bool(_DAY.search(together))
    return is_full or (len(fields) >= _LEAST_FIELDS and any(map(_SUBJECT.match, fields)))


def is_the_houses(line: str) -> bool:
    """Return whether the house put this line above a butler's words, by the mark that nobody else writes."""
    return line.lstrip("> ").startswith(MARK)
