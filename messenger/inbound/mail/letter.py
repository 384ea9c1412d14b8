"""What a mail says: who wrote it, which words are the writer's own, what it answers, and what came with it. Pure.

Nothing of it is believed. `verified` says only that the owner's own mail server vouches for the sender's domain; whose
address that is, the stored contacts say. What cannot be read is left out, and what a machine wrote is no message.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from hashlib import sha256
from typing import Final

from messenger.inbound.mail.authenticated import is_authenticated
from messenger.inbound.mail.html import seen_text
from messenger.inbound.mail.mime import (
    CUT,
    PLAIN,
    Mime,
    Part,
    all_of,
    decoded_words,
    header,
    readable,
    taken_apart,
)
from shared.addresses import folded
from shared.contracts import IngestAttachment

LONGEST_WORDS: Final = 20_000
LONGEST_READ: Final = 100_000
LONGEST_NAME: Final = 200
LONGEST_SUBJECT: Final = 500
LONGEST_ID: Final = 900
# Some hundred recipients; a mail with more is shown to the owner and begins nothing.
LONGEST_TO: Final = 10_000
MOST_ATTACHMENTS: Final = 32
MOST_REFERENCES: Final = 50
# Whom a mail names that names nobody who could be answered.
NOBODY: Final = "unknown"
OWN_WORDS: Final = "message"
FORWARD: Final = "forward"
AUTOMATIC: Final = "automatic"

_MESSAGE_ID: Final = re.compile(rf"<[!-;=?-~]{{1,{LONGEST_ID}}}>", re.ASCII)
_OURS: Final = re.compile(r"<n\.[0-9a-f-]{36}@[^<>]+>", re.ASCII)
_ADDRESS: Final = r"[^\s<>@,;:()\[\]\\\"]{1,64}@[A-Za-z0-9.-]{1,253}"
# One address, bare or after a name; a name with signs that have a meaning stands in quotes.
_FROM: Final = re.compile(
    rf"(?:(?P<name>\"(?:[^\"\\]|\\.)*\"|[^<>\"@,;:()]*)\s*<(?P<after>{_ADDRESS})>|(?P<bare>{_ADDRESS}))"
)
# INVARIANT: a quotation that nobody closes reaches to the end, so that each character is looked at once.
_QUOTED_NAME: Final = re.compile(r"\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)", re.DOTALL)
_RECIPIENT: Final = re.compile(r"[,;]")
# What a mail says once at the most (RFC 5322, RFC 2045).
STANDS_ONCE: Final = (
    "Sender",
    "Reply-To",
    "To",
    "Cc",
    "Date",
    "Message-ID",
    "In-Reply-To",
    "References",
    "Subject",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
    "Content-Disposition",
)
_FORWARDED: Final = re.compile(
    r"(?:fwd?|wg|tr|rv|enc|i|vs|vb|vl|pd|ilt|fs|doorst|továbbítás|πρθ|пересл|转发|轉寄|転送)\s*[:\uff1a]", re.IGNORECASE
)
# A forward in Danish and Norwegian, and an answer in Finnish: what answers a mail of ours is one.
_EITHER: Final = re.compile(r"vs\s*[:\uff1a]", re.IGNORECASE)
_ANSWER: Final = re.compile(
    r"(?:re|aw|antw|sv|rif|odp|ynt|vs|vá|ré|res|回复|回覆|答复|返信)\s*(?:\[\d+\])?\s*[:\uff1a]", re.IGNORECASE
)
# Fields by which machines and lists say what they are (RFC 3834, RFC 2919).
_OF_MACHINES: Final = ("List-Id", "List-Post", "List-Unsubscribe", "X-Autoreply", "X-Autorespond", "X-Loop")
_PRECEDENCE: Final = frozenset({"bulk", "junk", "list", "auto_reply"})


@dataclass(frozen=True, slots=True)
class Letter:
    """One mail, read; its id is its Message-ID, or a hash where it has none."""

    event_id: str
    message_id: str | None
    sender: str
    display_name: str | None
    verified: bool
    kind: str
    reply_to: str | None
    # The mail that it answers in the first place, and whether it answers any.
    answers: str | None
    is_answer: bool
    subject: str
    words: str
    attachments: tuple[IngestAttachment, ...]
    # Whether it was longer than what is read of a mail.
    is_cut: bool = False


def letter_of(raw: bytes, server: str | None, mailbox: str = "", *, cut: bool = False) -> Letter:
    """Return what a mail says, or its beginning if it is `cut`.

    `server` is whose Authentication-Results count, for mails that are written to `mailbox`.
    """
    mime = taken_apart(raw)
    fields = mime.fields
    name, sender = _sender(fields)
    domain = sender.rpartition("@")[2]
    ids = _ids(fields, "Message-ID")
    subject = header(fields, "Subject")[:LONGEST_SUBJECT]
    results, signatures = all_of(fields, "Authentication-Results"), all_of(fields, "DKIM-Signature")
    return Letter(
        event_id=ids[0] if ids else f"sha256:{sha256(raw).hexdigest()}",
        message_id=ids[0] if ids else None,
        sender=sender,
        display_name=name[:LONGEST_NAME] or None,
        verified=sender != NOBODY
        and mime.whole
        and _is_written_to(fields, mailbox)
        and is_authenticated(results, signatures, server, domain),
        kind=_kind_with_calendars(mime, subject),
        reply_to=_reply_to(fields),
        answers=next(_answered(fields), None),
        is_answer=_ANSWER.match(subject) is not None or any(_answered(fields)),
        subject=subject,
        words=within(_words(mime), LONGEST_READ),
        attachments=tuple(_attachments(mime, cut=cut)),
        is_cut=cut,
    )


def within(text: str, most: int) -> str:
    """Return the text, or as much of it as is kept with a line that says so."""
    return text if len(text) <= most else text[: most - len(CUT)] + CUT


def _sender(fields: Message) -> tuple[str, str]:
    """Return the name and the address of the one who wrote it, as it says; nobody where it names none or several."""
    named = all_of(fields, "From")
    found = _FROM.fullmatch(named[0]) if len(named) == 1 else None
    if found is None:
        return decoded_words(named[0]) if named else "", NOBODY
    name = (found["name"] or "").strip()
    plain = re.sub(r"\\(.)", r"\1", name[1:-1]) if name.startswith('"') else name
    return decoded_words(plain), found["after"] or found["bare"]


def _is_written_to(fields: Message, mailbox: str) -> bool:
    """Return whether the writer meant this mailbox, in fields that nobody can have added since.

    INVARIANT: whoever gets a mail can bring it here with its signature, which covers the lowest field of a name.
    """
    written = ",".join(all_of(fields, "To"))
    if len(written) > LONGEST_TO:
        return False
    to = [_FROM.fullmatch(one.strip()) for one in _RECIPIENT.split(_QUOTED_NAME.sub("", written))]
    named = {folded(one["after"] or one["bare"]) for one in to if one is not None}
    is_here = any(folded(mailbox) in {one, _without_tag(one)} for one in named)
    return is_here and all(len(all_of(fields, name)) <= 1 for name in STANDS_ONCE)


def _without_tag(address: str) -> str:
    """Return the address without what follows a plus in its name, which goes to the same mailbox (RFC 5233)."""
    name, _, domain = address.rpartition("@")
    return f"{name.partition('+')[0]}@{domain}"


def _method(part: Part) -> str:
    return str(readable(lambda: part.fields.get_param("method"), None) or "").lower()


def _kind_with_calendars(mime: Mime, subject: str) -> str:
    """Return the kind; words in a calendar's mail (RFC 6047) are those of whoever made the event, or an answer's."""
    said = _kind(mime.fields, subject)
    calendars = [(_method(part), part.is_attached) for part in mime.parts if part.kind == "text/calendar"]
    if said != OWN_WORDS:
        return said
    if any(method not in {"", "request", "publish"} for method, _ in calendars):
        return AUTOMATIC
    return FORWARD if any(method and not is_file for method, is_file in calendars) else said


def _kind(fields: Message, subject: str) -> str:
    """Return whose words these are: the writer's, somebody else's, or a machine's."""
    said = header(fields, "Auto-Submitted").partition(";")[0].strip().lower()
    is_list = any(fields.get(name) is not None for name in _OF_MACHINES)
    precedence = header(fields, "Precedence").lower() in _PRECEDENCE
    reports = fields.get_content_type() == "multipart/report" or header(fields, "Return-Path") == "<>"
    if said not in {"", "no"} or is_list or precedence or reports:
        return AUTOMATIC
    # Nobody can tell for certain which of the words were forwarded, so all of them were.
    is_answer = _EITHER.match(subject) and _OURS.fullmatch(_reply_to(fields) or "")
    return FORWARD if _FORWARDED.match(subject) and not is_answer else OWN_WORDS


def _reply_to(fields: Message) -> str | None:
    """Return the Message-ID that is answered: one of ours if there is any, else the latest."""
    answered = list(_answered(fields))
    return next((one for one in answered if _OURS.fullmatch(one)), answered[0] if answered else None)


def _answered(fields: Message) -> Iterator[str]:
    yield from _ids(fields, "In-Reply-To")
    yield from reversed(_ids(fields, "References")[-MOST_REFERENCES:])


def _ids(fields: Message, name: str) -> list[str]:
    return _MESSAGE_ID.findall(" ".join(all_of(fields, name)))


def _words(mime: Mime) -> str:
    """Return the words to be read: the plain ones, else the text of the HTML."""
    words = [part for part in mime.parts if part.is_words]
    plain = "\n".join(part.text() for part in words if part.kind == PLAIN)
    return plain if plain.strip() else "\n".join(seen_text(part.text()) for part in words if part.kind != PLAIN)


def files_of(mime: Mime) -> list[Part]:
    """Return the files that came with a mail, in their order."""
    return [part for part in mime.parts if not part.is_words][:MOST_ATTACHMENTS]


def _attachments(mime: Mime, *, cut: bool) -> Iterator[IngestAttachment]:
    files = files_of(mime)
    for part in files:
        size = None if cut and part is files[-1] else part.size  # of the last one only the beginning was read
        yield IngestAttachment(name=(part.name or "")[:255] or None, type=part.kind[:127], size=size)
