"""What a mail is made of: its header fields and its parts (RFC 5322, RFC 2045). Pure.

The standard library reads header fields and encodings. Its parser of whole mails has no limits, so the parts are told
apart here: so much of a mail, so many parts, so deep and no further; the rest is left out, and nothing raises.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import HeaderParser
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

HEAD_CHARACTERS: Final = 65_536
# Of a part: the library's time for its parameters grows with their square, and there may be many parts.
PART_HEAD_CHARACTERS: Final = 4_096
MOST_PARTS: Final = 100
DEEPEST: Final = 8
PLAIN: Final = "text/plain"
# What the standard library raises of what a sender may write into a header.
UNREADABLE: Final = (LookupError, ValueError, TypeError, AttributeError, MessageError)

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONE_CR: Final = re.compile(rb"\r(?!\n)")
_LINE_END: Final = re.compile(r"\r\n?")
# Some of the codecs that Python would take by name are no charsets, or slow on purpose.
_CHARSET: Final = re.compile(
    r"utf-?8|utf-?16([bl]e)?|us-ascii|ascii|iso-?8859-\d+|latin-?1|windows-\d+|cp\d+|koi8-[ru]|big5|gb2312|gbk|gb18030"
    r"|shift_jis|euc-(jp|kr)|iso-2022-jp",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One part that holds no others: its fields, and its body as it came."""

    fields: Message
    kind: str
    body: str

    @property
    def name(self) -> str | None:
        """The name of the file that it is, if it has one."""
        found = readable(lambda: self.fields.get_filename() or "", "")
        return one_line(found) or None if found else None

    @property
    def is_words(self) -> bool:
        """Whether it is text to be read with the mail, and no file."""
        attached = readable(lambda: self.fields.get_content_disposition() or "", "attachment") == "attachment"
        return self.kind in {PLAIN, "text/html"} and not attached and self.name is None

    @property
    def size(self) -> int:
        """How many bytes it has, decoded."""
        if _encoding(self.fields) != "base64":
            return len(self.body)
        return len("".join(self.body.split()).rstrip("=")) * 3 // 4

    def text(self) -> str:
        """Return it as characters, whatever it is."""
        decoded = readable(lambda: self.fields.get_payload(decode=True), None)
        raw = decoded if isinstance(decoded, bytes) else self.body.encode("ascii", "replace")
        charset = readable(lambda: str(self.fields.get_content_charset("utf-8")), "utf-8")
        found = raw.decode(charset if _CHARSET.fullmatch(charset) else "utf-8", "replace")
        return sound(_LINE_END.sub("\n", found))


@dataclass(frozen=True, slots=True)
class Mime:
    """A mail's own header fields, and its parts; `whole` if nothing was left out."""

    fields: Message
    parts: tuple[Part, ...]
    whole: bool


def taken_apart(raw: bytes) -> Mime:
    """Return what a mail, or the beginning of one, is made of."""
    text = _LINE_END.sub("\n", raw.decode("ascii", "surrogateescape"))
    fields, is_short, _ = _fields(text)
    found = tuple(islice(_parts(text, 0), MOST_PARTS + 1))
    # Where another program sees other lines, it may have vouched for another mail.
    whole = is_short and len(found) <= MOST_PARTS and _LONE_CR.search(raw) is None
    return Mime(fields, found[:MOST_PARTS], whole)


def header(fields: Message, name: str) -> str:
    """Return a header field on one line, encoded words decoded."""
    value = one_line(str(readable(lambda: fields.get(name), None) or ""))
    return decoded_words(value)


def decoded_words(value: str) -> str:
    """Return a text with its encoded words (RFC 2047) decoded, on one line."""
    return one_line(readable(lambda: str(make_header(decode_header(value))), value))


def all_of(fields: Message, name: str) -> list[str]:
    """Return the header fields of one name from the top, as they came, each on one line."""
    found = readable(lambda: fields.get_all(name), None)
    return [one_line(str(value)) for value in found or []]


def one_line(text: str) -> str:
    """Return the text on one line, sound."""
    return _CONTROLS.sub("\ufffd", " ".join(sound(text).split()))


def sound(text: str) -> str:
    """Return the text without NUL and halves of characters, which no row can hold."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def readable(read: Callable[[], T], otherwise: T) -> T:
    """Return what is read, or something else where a sender wrote what the library does not expect."""
    try:
        return read()
    except UNREADABLE:
        return otherwise


def _parts(text: str, depth: int) -> Iterator[Part]:
    """Yield the parts that hold no others, in order.

    INVARIANT: every piece yields at least one, so that whoever stops taking them ends the work.
    """
    fields, _, body = _fields(text, PART_HEAD_CHARACTERS if depth else HEAD_CHARACTERS)
    kind = readable(fields.get_content_type, PLAIN)
    boundary = readable(fields.get_boundary, None) if kind.startswith("multipart/") else None
    pieces = _pieces(boundary, f"\n{body}") if boundary and depth < DEEPEST else None
    first = next(pieces, None) if pieces else None
    if first is None or pieces is None:
        yield Part(fields, PLAIN if kind.startswith("multipart/") and not boundary else kind, body)
        return
    yield from _parts(first, depth + 1)
    for piece in pieces:
        yield from _parts(piece, depth + 1)


def _pieces(boundary: str, body: str) -> Iterator[str]:
    """Yield what lies between the boundary's lines; the last may be cut off."""
    lines = re.compile(rf"\n--{re.escape(boundary)}(--)?[ \t]*(?=\n|\Z)")
    begin: int | None = None
    for line in lines.finditer(body):
        if begin is not None:
            yield body[begin : line.start()]
        if line[1]:
            return
        begin = line.end() + 1
    if begin is not None:
        yield body[begin:]


def _fields(text: str, most: int = HEAD_CHARACTERS) -> tuple[Message, bool, str]:
    """Return the header fields with their body set, whether that was all of them, and the body."""
    head, _, body = ("", "", text[1:]) if text.startswith("\n") else text.partition("\n\n")
    fields = readable(lambda: HeaderParser().parsestr(head[:most]), Message())
    fields.set_payload(body)
    return fields, len(head) <= most, body


def _encoding(fields: Message) -> str:
    return readable(lambda: str(fields.get("Content-Transfer-Encoding") or "").strip().lower(), "")
