"""Parsing of reports (DSN) about a mail that came back: RFC 3464 in the envelope of RFC 6522. Pure.

The report may come from anybody: nothing here is believed, and nothing that is no report is an error. Only the first
256 kB count, only the parts right below the report are looked at, and every word is cut and made visible.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from typing import Final

from messenger.inbound.mail.mime import UNREADABLE
from shared.display.visible import visible

LIMIT_BYTES: Final = 262_144
HEAD_CHARACTERS: Final = 16_384
SAID_CHARACTERS: Final = 300
MOST_PARTS: Final = 10
MOST_RECIPIENTS: Final = 10
REPORT: Final = "multipart/report"
STATUS: Final = "message/delivery-status"
ENCODED: Final = frozenset({"quoted-printable", "base64"})
ORIGINALS: Final = frozenset({"message/rfc822", "text/rfc822-headers"})

_LINE_END: Final = re.compile(r"\r\n?")
_BLANK_LINES: Final = re.compile(r"\n[ \t]*\n+")
_MESSAGE_ID: Final = re.compile(r"<[!-;=?-~]{1,900}>", re.ASCII)
# Failed for good, or given up after days of trying; RFC 3463.
_GONE: Final = re.compile(r"[45]\.[0-9]{1,3}\.[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounce:
    """One mail that did not reach one recipient: its Message-ID with brackets, and what was said of it.

    `recipients` are the addresses the report names for it, in lower case: as first given, and as finally tried.
    """

    message_id: str
    recipients: frozenset[str]
    status: str
    said: str


def is_report(raw: bytes) -> bool:
    """Return whether a message that begins so may report a delivery's end."""
    try:
        return _reports(_headers(_text(raw[:HEAD_CHARACTERS])))
    except UNREADABLE:
        return False


def _reports(top: Message) -> bool:
    return top.get_content_type() == REPORT and str(top.get_param("report-type", "")).lower() == "delivery-status"


def parse(raw: bytes) -> tuple[Bounce, ...]:
    """Return the bounces in a whole message, or in its beginning; none where it reports none."""
    try:
        return _parsed(raw)
    except UNREADABLE:
        return ()


def _parsed(raw: bytes) -> tuple[Bounce, ...]:
    text = _text(raw[:LIMIT_BYTES])
    head, _, body = text.partition("\n\n")
    if len(head) > HEAD_CHARACTERS or not _reports(_headers(head)):
        return ()
    status, message_id = None, None
    for part in _parts(_headers(head).get_boundary() or "", f"\n{body}"):
        kind = part.get_content_type()
        if kind == STATUS and status is None:
            status = _body(part)
        elif kind in ORIGINALS and message_id is None:
            message_id = _MESSAGE_ID.search(str(_headers(_body(part))["Message-ID"] or ""))
    if status is None or message_id is None:
        return ()
    return tuple(_gone(status, message_id[0]))


def _gone(status: str, message_id: str) -> Iterator[Bounce]:
    """Yield a bounce for each recipient it will not reach; the first block of fields speaks of the report itself."""
    for block in _BLANK_LINES.split(status.strip("\n"))[1 : MOST_RECIPIENTS + 1]:
        fields = _headers(block.strip("\n"))
        code = _GONE.match(_one(fields, "Status"))
        if _one(fields, "Action").lower() != "failed" or code is None:
            continue
        named = (_typed(_one(fields, name)).strip("<>") for name in ("Final-Recipient", "Original-Recipient"))
        recipients = frozenset(address.lower() for address in named if address)
        said = visible(_typed(_one(fields, "Diagnostic-Code"))[:SAID_CHARACTERS])
        yield Bounce(message_id, recipients, code[0], said)


def _one(fields: Message, name: str) -> str:
    """Return a field on one line."""
    return " ".join(str(fields[name] or "").split())


def _typed(value: str) -> str:
    """Return the value behind its type, as in `smtp; 550 No such user`."""
    return value.partition(";")[2].strip()


def _parts(boundary: str, body: str) -> Iterator[Message]:
    """Yield what lies between the boundary's lines; the last part may be cut off."""
    lines = re.compile(rf"\n--{re.escape(boundary)}(?:--)?[ \t]*(?=\n)")
    for part in lines.split(body, MOST_PARTS)[1 : MOST_PARTS + 1]:
        yield _headers(part.removeprefix("\n"))


def _headers(text: str) -> Message:
    """Return the header fields, with the rest as one undivided body."""
    return HeaderParser().parsestr(text)


def _body(part: Message) -> str:
    """Return the body, decoded where it came encoded."""
    if str(part["Content-Transfer-Encoding"] or "").strip().lower() not in ENCODED:
        return str(part.get_payload())
    decoded = part.get_payload(decode=True)
    return _text(decoded) if isinstance(decoded, bytes) else ""


def _text(raw: bytes) -> str:
    """Return the bytes as characters, whatever they are, with LF line ends."""
    return _LINE_END.sub("\n", raw.decode("utf-8", "replace"))
