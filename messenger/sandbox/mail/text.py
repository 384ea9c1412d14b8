"""What a person reads of a mail: headers and text, from whatever bytes came (RFC 5322, RFC 2045). Pure."""

import email
import email.errors
import email.header
import email.policy
from email.message import Message

# A mail may be broken in any way; what cannot be decoded is shown as it came.
UNREADABLE = (LookupError, ValueError, email.errors.MessageError)


def header(raw: bytes, name: str) -> str:
    """Return the value of one header, encoded words decoded, on one line; empty where it is missing."""
    value = _parsed(raw).get(name)
    if value is None:
        return ""
    unfolded = " ".join(str(value).split())
    try:
        return str(email.header.make_header(email.header.decode_header(unfolded)))
    except UNREADABLE:
        return unfolded


def body(raw: bytes) -> str:
    """Return the first plain text of a mail, else its first HTML as source."""
    parts = [part for part in _parsed(raw).walk() if part.get_content_maintype() == "text"]
    plain = [part for part in parts if part.get_content_subtype() == "plain"]
    for part in [*plain, *parts]:
        content = part.get_payload(decode=True)
        if isinstance(content, bytes):
            return _decoded(content, part.get_content_charset("utf-8"))
    return ""


def searchable(raw: bytes) -> str:
    """Return what a fault's `match` is looked for in: the mail as it came, and its subject and text decoded."""
    return "\n".join((raw.decode(errors="replace"), header(raw, "Subject"), body(raw)))


def _parsed(raw: bytes) -> Message:
    return email.message_from_bytes(raw, policy=email.policy.compat32)


def _decoded(content: bytes, charset: str) -> str:
    try:
        return content.decode(charset, errors="replace")
    except LookupError:
        return content.decode(errors="replace")
