"""E-mail: addresses, threads and limits, and a message as the mail server gets it, one whole RFC 5322 message.

Addresses are the dot-atom form of RFC 5322 3.2.3 at a host name of RFC 1123 2.1.

A message depends on no clock and no chance, so that equal input gives equal bytes: Date and Message-ID come from the
notification, and a message of one text part needs no boundary. Headers are written here as they are, so that no address
is parsed, folded or improved on its way; the standard library encodes subject and text.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final
from urllib.parse import urlsplit

from shared.channels.base import AddressForm, ChannelSpec, Credential, Limit, Message, ThreadForm, Wire
from shared.errors import InvalidInput

SUBJECT_CHARS = 78
ADDRESS_CHARS = 320

# One encoded word then fits after "Subject: " in a line of 78 (RFC 2047 allows words of 75).
_WORD_OCTETS = 42

# What may stand between < and > in a header or an SMTP command: visible ASCII, no brackets, list or quote.
_ADDRESS = re.compile(r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+@[0-9A-Za-z.\-]+", re.ASCII)
_MESSAGE_ID = re.compile(r"[!-;=?-~]{1,900}", re.ASCII)
_ID_TOKEN = re.compile(r"[0-9A-Za-z._-]{1,128}", re.ASCII)
_FORBIDDEN = re.compile(r"[\r\n\0]")
# Readable as it is: printable ASCII, short enough for one line, and nothing that reads as encoded.
_PLAIN_SUBJECT = re.compile(r"(?!.*=\?)[!-~](?:[ -~]{0,64}[!-~])?", re.ASCII)

# Where no server will ever be (RFC 2606).
NOBODYS_DOMAINS: Final = frozenset({"test", "example", "invalid"})
_MAX_LOCAL: Final = 64  # RFC 5321 4.5.3.1.1
_MAX_DOMAIN: Final = 253  # RFC 1035 2.3.4, in presentation form without the final dot
_LOCAL: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")

# In any minute at most 30 mails, in any day 500; of one butler 350, which leaves the others some of the day.
MAIL_MINUTE: Final = Limit(10, timedelta(seconds=3))
MAIL_DAY: Final = Limit(100, timedelta(seconds=216))
MAIL_BUTLER: Final = Limit(50, timedelta(seconds=288))


def _parse(token: str) -> str:
    """Return an address with its host name folded; raise InvalidInput for what is none."""
    local, _, domain = token.rpartition("@")
    remedy = "Give one plain address such as name@example.org."
    if "@" in local:
        raise InvalidInput("The e-mail address has more than one @.", remedy)
    if len(local) > _MAX_LOCAL:
        raise InvalidInput(f"The part before the @ is longer than {_MAX_LOCAL} characters.", remedy)
    if not _LOCAL.fullmatch(local):
        wrong = "The part before the @ is empty or has a misplaced dot or an invalid character."
        raise InvalidInput(wrong, remedy)
    return f"{local}@{_domain(domain)}"


def _domain(domain: str) -> str:
    remedy = "Give a host name with at least one dot, such as example.org; an international one in its xn-- form."
    if len(domain) > _MAX_DOMAIN:
        raise InvalidInput(f"The part after the @ is longer than {_MAX_DOMAIN} characters.", remedy)
    labels = domain.split(".")
    if "." not in domain or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidInput("The part after the @ is not a host name.", remedy)
    if labels[-1].isdigit():
        raise InvalidInput("The part after the @ is a number, not a host name.", remedy)
    return domain.lower()


def _realm(url: str) -> str:
    """Return the mail account that a URL logs in to, without its password."""
    account = urlsplit(url)
    return f"{account.username or ''}@{account.hostname}"


def limits(_address: str, origin: str) -> Mapping[str, Limit]:
    """Return what one mail spends from, whoever it is for: the house's limits, and those of its butler."""
    of_butler = {f"email:of:{origin}": MAIL_BUTLER} if origin else {}
    return {"email:day": MAIL_DAY, "email:minute": MAIL_MINUTE, **of_butler}


def render(message: Message) -> tuple[Wire, ...]:
    """Render an e-mail as one wire, with CRLF line ends and 7-bit throughout.

    `wire.to` and `wire.sender` are the message's address and sender, character for character. Raises InvalidInput for
    what has no form as an e-mail: a reaction, a bad address, CR, LF or NUL in the subject, a blank text, half a
    character (a lone surrogate), a creation time without a zone.
    """
    if message.intent == "react":
        raise InvalidInput("E-mail has no reactions.", "Send or reply instead.")
    if not message.text.strip():
        raise InvalidInput("The message has no visible text.", "Give the text to send.")
    head = "".join(f"{name}: {value}\r\n" for name, value in _headers(message))
    body = head.encode("ascii") + _body(message.text)
    return (Wire(verb="MAIL", to=message.address, body=body, sender=message.sender),)


def _headers(message: Message) -> list[tuple[str, str]]:
    """Return every header but those of MIME, in order, each value on one logical line."""
    sender, to = _address(message.sender, "sender"), _address(message.address, "recipient")
    headers = [
        ("Date", _date(message)),
        ("From", sender),
        ("To", to),
        ("Message-ID", message_id(message)),
        ("Subject", _encoded(subject(message))),
        ("Auto-Submitted", "auto-generated"),
    ]
    if message.intent == "reply" and message.thread:
        thread = answered(message.thread)
        headers += [("In-Reply-To", thread), ("References", thread)]
    return headers


def message_id(message: Message) -> str:
    """Return the Message-ID, brackets included: it follows from the notification and the sender's domain."""
    if not _ID_TOKEN.fullmatch(message.notification_id):
        raise InvalidInput("The notification's id cannot stand in a Message-ID.", "Use letters, digits and dashes.")
    domain = _address(message.sender, "sender").rpartition("@")[2]
    return f"<n.{message.notification_id}@{domain}>"


def subject(message: Message) -> str:
    """Return the subject as the recipient will read it.

    This is the given one; else the first line of the text that is not blank, shortened to 78 characters, with "Re: "
    before it in a reply.
    """
    if message.subject:
        if _FORBIDDEN.search(message.subject):
            raise InvalidInput("The subject contains a line break or a NUL.", "Give it as one line.")
        return message.subject
    lines = (" ".join(line.split()) for line in message.text.splitlines())
    first = _FORBIDDEN.sub("", next((line for line in lines if line), ""))
    if message.intent == "reply" and not first.lower().startswith("re:"):
        first = f"Re: {first}"
    return _shortened(first)


def _shortened(line: str) -> str:
    """Shorten a line to at most 78 characters, broken after a word where one ends in the second half."""
    if len(line) <= SUBJECT_CHARS:
        return line
    room = SUBJECT_CHARS - 1
    space = line.rfind(" ", room // 2, room + 1)
    return line[: space if space > 0 else room].rstrip() + "\u2026"


def _encoded(text: str) -> str:
    """Encode a header value in ASCII: as it is if it can be, else as RFC 2047 encoded words of whole characters."""
    if not text or _PLAIN_SUBJECT.fullmatch(text):
        return text
    words = [b""]
    for character in text:
        octets = _utf8(character)
        if len(words[-1]) + len(octets) > _WORD_OCTETS:
            words.append(b"")
        words[-1] += octets
    return "\r\n ".join(f"=?utf-8?b?{b64encode(word).decode()}?=" for word in words)


def _utf8(text: str) -> bytes:
    """Encode a text in UTF-8; raise InvalidInput for half a character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "The message contains an incomplete Unicode character.", "Send complete Unicode characters."
        ) from None


def _body(text: str) -> bytes:
    """Return the MIME headers, the empty line and the text as quoted-printable UTF-8; line ends become CRLF."""
    part = EmailMessage(policy=SMTP)
    part.set_content(_utf8(text).decode(), charset="utf-8", cte="quoted-printable")
    return part.as_bytes()


def _date(message: Message) -> str:
    """Return the message's creation time as an RFC 5322 date in UTC."""
    if message.created_at is None or message.created_at.tzinfo is None:
        raise InvalidInput("An e-mail needs its creation time with a zone.", "Give the notification's own time.")
    return format_datetime(message.created_at.astimezone(UTC))


def _address(value: str, role: str) -> str:
    """Return the value itself if it is one plain address; else raise InvalidInput."""
    if len(value) > ADDRESS_CHARS or not _ADDRESS.fullmatch(value):
        raise InvalidInput(f"The {role} is not a plain e-mail address.", "Give exactly one, like name@example.org.")
    return value


def answered(thread: str) -> str:
    """Return the Message-ID that is answered, with its brackets; raise InvalidInput for what is none."""
    bare = thread.removeprefix("<").removesuffix(">")
    if not _MESSAGE_ID.fullmatch(bare):
        raise InvalidInput("The thread is not a Message-ID.", "Give the Message-ID of the mail you reply to.")
    return f"<{bare}>"


def _spellings(thread: str) -> tuple[str, str]:
    named = answered(thread)
    return named, named[1:-1]


SPEC: Final = ChannelSpec(
    name="email",
    label="e-mail",
    via="by e-mail",
    provider="The mail server",
    sources=frozenset({"email"}),
    address=AddressForm(
        claims=lambda token: "@" in token and not token.startswith("@"),
        parse=_parse,
        is_private=lambda _address: True,
        forms=("an e-mail address",),
        ask="one e-mail address (name@example.org)",
        private="an e-mail address",
        missing="an e-mail address",
        field="E-mail address",
        is_made_up=lambda address: address.rpartition(".")[2].lower() in NOBODYS_DOMAINS,
    ),
    thread=ThreadForm(spellings=_spellings, words="the mail {thread}"),
    render=render,
    limits=limits,
    sandbox_owner="owner@sandbox.test",
    sandbox_sender="butlers@sandbox.test",
    credential=Credential(
        setting="smtp_url",
        realm=_realm,
        words="the login",
        remedy="Correct the login in BUTLERS_SMTP_URL and start the Messenger again.",
        sender_setting="email_from",
    ),
    subject=subject,
)
