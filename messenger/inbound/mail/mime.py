"""What a mail is made of: its header fields and its parts (RFC 5322, RFC 2045). Pure.

The standard library reads header fields and encodings. Its parser of whole mails has no limits, so the parts are told
apart here: so much of a mail, so many parts, so deep and no further; the rest is left out, and nothing raises.
"""

import quopri
import re
from binascii import a2b_base64
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
# The standard library takes the square of a field's length to tell its parameters apart.
PARAMETERS: Final = ("Content-Type", "Content-Disposition")
LONGEST_PARAMETERS: Final = 1_000
# It takes the square again to find encoded words that do not end; so long a value holds any subject that is kept.
LONGEST_ENCODED: Final = 3_000
MOST_PARTS: Final = 100
DEEPEST: Final = 8
PLAIN: Final = "text/plain"
# Where words are left out.
CUT: Final = "\n\n(Cut: what follows is in the mailbox alone.)"
# What the standard library raises of what a sender may write into a header.
UNREADABLE: Final = (LookupError, ValueError, TypeError, AttributeError, MessageError)

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
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
    # Its place among the others, as IMAP counts them.
    path: str = "1"

    @property
    def name(self) -> str | None:
        """The name of the file that it is, if it has one."""
        found = readable(lambda: self.fields.get_filename() or "", "")
        return decoded_words(found) or None if found else None

    @property
    def is_attached(self) -> bool:
        """Whether it says that it is a file."""
        return readable(lambda: self.fields.get_content_disposition() or "", "attachment") == "attachment"

    @property
    def is_words(self) -> bool:
        """Whether it is text to be read with the mail, and no file."""
        return self.kind in {PLAIN, "text/html"} and not self.is_attached and self.name is None

    @property
    def size(self) -> int:
        """How many bytes it has, decoded."""
        if _encoding(self.fields) != "base64":
            return len(self.body)
        return len("".join(self.body.split()).rstrip("=")) * 3 // 4

    def content(self, body: bytes) -> bytes:
        """Return what it holds, decoded from its body as that came."""
        encoding = _encoding(self.fields)
        if encoding == "base64":
            return readable(lambda: a2b_base64(body + b"=="), b"")
        return quopri.decodestring(body) if encoding == "quoted-printable" else body

    def text(self) -> str:
        """Return it as characters, whatever it is."""
        decoded = readable(lambda: self.fields.get_payload(decode=True), None)
        raw = decoded if isinstance(decoded, bytes) else self.body.encode("ascii", "replace")
        charset = readable(lambda: str(self.fields.get_content_charset("utf-8")), "utf-8")
        # Python knows windows-874 and its like by their numbers as code pages alone.
        name = charset.replace("windows-", "cp") if _CHARSET.fullmatch(charset) else "utf-8"
        found = readable(lambda: raw.decode(name, "replace"), raw.decode("utf-8", "replace"))
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
    fields, is_whole, _ = _fields(text)
    found = tuple(islice(_parts(text, ()), MOST_PARTS + 1))
    whole = is_whole and len(found) <= MOST_PARTS and _ends_lines_one_way(raw)
    return Mime(fields, found[:MOST_PARTS], whole)


def _ends_lines_one_way(raw: bytes) -> bool:
    """Return whether every program sees the same lines; one that sees others may have vouched for another mail."""
    both = raw.count(b"\r\n")
    return raw.count(b"\r") == both and (not both or raw.count(b"\n") == both)


def header(fields: Message, name: str) -> str:
    """Return a header field on one line, encoded words decoded."""
    value = one_line(str(readable(lambda: fields.get(name), None) or ""))
    return decoded_words(value)


def decoded_words(value: str) -> str:
    """Return a text, or its beginning, with its encoded words (RFC 2047) decoded, on one line."""
    value = value[:LONGEST_ENCODED]
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


def _parts(text: str, path: tuple[int, ...]) -> Iterator[Part]:
    """Yield the parts that hold no others, in order.

    INVARIANT: every piece yields at least one, so that whoever stops taking them ends the work.
    """
    fields, _, body = _fields(text)
    kind = one_line(readable(fields.get_content_type, PLAIN))
    boundary = readable(fields.get_boundary, None) if kind.startswith("multipart/") else None
    pieces = _pieces(boundary, f"\n{body}") if boundary and len(path) < DEEPEST else None
    first = next(pieces, None) if pieces else None
    if first is None or pieces is None:
        plain = kind.startswith("multipart/") and not boundary
        yield Part(fields, PLAIN if plain else kind, body, ".".join(map(str, path or (1,))))
        return
    yield from _parts(first, (*path, 1))
    for number, piece in enumerate(pieces, start=2):
        yield from _parts(piece, (*path, number))


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


def _fields(text: str) -> tuple[Message, bool, str]:
    """Return the header fields with their body set, whether those are all that anybody sees, and the body."""
    head, _, body = ("", "", text[1:]) if text.startswith("\n") else text.partition("\n\n")
    fields = readable(lambda: HeaderParser().parsestr(head[:HEAD_CHARACTERS]), Message())
    # The library passes over a line that it takes for no field, or ends the head there; a mail server may go on.
    is_sound = not (fields.defects or fields.get_payload())
    fields.set_payload(body)
    return fields, is_sound and len(head) <= HEAD_CHARACTERS and not _shortened(fields), body


def _shortened(fields: Message) -> bool:
    """Cut the fields with parameters that are longer than anybody needs; return whether any was."""
    long = [(name, value) for name in PARAMETERS for value in all_of(fields, name) if len(value) > LONGEST_PARAMETERS]
    for name, value in long:
        del fields[name]
        fields[name] = value[:LONGEST_PARAMETERS]
    return bool(long)


def _encoding(fields: Message) -> str:
    return readable(lambda: str(fields.get("Content-Transfer-Encoding") or "").strip().lower(), "")
