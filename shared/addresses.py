"""The forms a recipient may have, and the one canonical form in which it is stored and sent.

Strict: one clean ASCII token, or a refusal that says what to give instead. E-mail addresses are the dot-atom form of
RFC 5322 3.2.3 at a host name of RFC 1123 2.1; nothing is unquoted, unfolded, normalised or guessed, because two
spellings that look alike are two different people. Pure.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, Never, cast, get_args

from shared.errors import InvalidInput

Channel = Literal["telegram", "email"]

MAX_LENGTH: Final = 320
_MAX_LOCAL: Final = 64  # RFC 5321 4.5.3.1.1
_MAX_DOMAIN: Final = 253  # RFC 1035 2.3.4, in presentation form without the final dot
_MAX_ID: Final = 2**63 - 1
_MAX_MESSAGE: Final = 2**31 - 1

_LOCAL: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CHAT_ID: Final = re.compile(r"-?[1-9][0-9]{0,18}")
_MESSAGE_ID: Final = re.compile(r"[1-9][0-9]{0,9}")
_USERNAME: Final = re.compile(r"@[A-Za-z][A-Za-z0-9_]{4,31}")
_STORED_PREFIX: Final = re.compile(r"telegram: *", re.IGNORECASE | re.ASCII)
_LIKE_A_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9.]*")

_ASCII_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_GIVE: Final = "Give one e-mail address (name@example.org), one numeric chat id, or one @username."
_FORBIDDEN_MARKS: Final = {
    ",": "a comma, as in a list of several recipients",
    ";": "a semicolon, as in a list of several recipients",
    "<": "an angle bracket, as around an address with a display name",
    ">": "an angle bracket, as around an address with a display name",
    '"': "a quotation mark",
    "(": "a parenthesis, as in a comment",
    ")": "a parenthesis, as in a comment",
    "[": "a square bracket, as in an address literal",
    "]": "a square bracket, as in an address literal",
    "\\": "a backslash",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message goes: a channel and the canonical value its provider understands."""

    channel: Channel
    value: str


@dataclass(frozen=True, slots=True)
class Thread:
    """One Telegram message: the chat's id as canonical text, and the message's number in it."""

    chat: str
    message: int


def parse_recipient(text: str) -> Address:
    """Parse one recipient as a caller wrote it, ignoring spaces at its ends.

    The value of the result always parses to itself. Raises InvalidInput for everything that is not exactly one e-mail
    address, numeric chat id or @username.
    """
    token = _clean_token(text)
    if token.startswith("@"):
        return Address("telegram", _username(token))
    if "@" in token:
        return Address("email", _email(token))
    if _LIKE_A_NUMBER.fullmatch(token):
        return Address("telegram", _chat_id(token))
    raise InvalidInput("The recipient is neither an e-mail address, nor a numeric chat id, nor an @username.", _GIVE)


def canonical(kind: str, value: str) -> str:
    """Return the form in which a contact_info entry of this type (telegram, email) is stored.

    A Telegram value may come as `telegram:<id>`. Raises InvalidInput if the value is of another type.
    """
    channel = _channel(kind)
    bare = value.strip(" ")
    prefix = _STORED_PREFIX.match(bare) if channel == "telegram" else None
    address = parse_recipient(bare[prefix.end() :] if prefix else value)
    if address.channel != channel:
        wanted = "an e-mail address" if channel == "email" else "a numeric chat id or an @username"
        _refuse(f"The value for {channel} belongs to {address.channel}.", f"Give {wanted}.")
    return address.value


def lookup_key(address: Address) -> str:
    """Return what equal addresses of one channel share: the value with ASCII letters folded, all else unchanged."""
    return address.value.translate(_ASCII_LOWER)


def is_private_chat(value: str) -> bool:
    """Return whether a canonical Telegram value is a person's own chat.

    Such a value is a positive number, never a group or an @username.
    """
    return _CHAT_ID.fullmatch(value) is not None and 0 < int(value) <= _MAX_ID


def parse_thread(text: str) -> Thread:
    """Parse `<chat>:<message>`, the identity of one Telegram message; raise InvalidInput for anything else."""
    chat, _, message = text.strip(" ").partition(":")
    fits = _CHAT_ID.fullmatch(chat) and _MESSAGE_ID.fullmatch(message)
    if not fits or abs(int(chat)) > _MAX_ID or int(message) > _MAX_MESSAGE:
        _refuse(
            "The thread identity is not a chat id and a message id with a colon between them.",
            "Give it as chat:message, for example 123456789:42.",
        )
    return Thread(chat, int(message))


def _channel(kind: str) -> Channel:
    if kind not in get_args(Channel):
        _refuse(f"{kind!a} is no kind of contact entry.", "Use telegram or email.")
    return cast("Channel", kind)


def _clean_token(text: str) -> str:
    """Return the text without spaces at its ends.

    Raises InvalidInput if it is not made of visible ASCII or holds list or quoting marks.
    """
    if any(mark in text for mark in "\r\n\0"):
        _refuse("The recipient contains a line break or a NUL character.", _GIVE)
    if len(text) > MAX_LENGTH:
        _refuse(f"The recipient is longer than {MAX_LENGTH} characters.", _GIVE)
    token = text.strip(" ")
    if not token:
        _refuse("The recipient is empty.", _GIVE)
    for mark in token:
        wrong = _what_is_wrong_with(mark)
        if wrong:
            _refuse(f"The recipient contains {wrong}.", _GIVE)
    return token


def _what_is_wrong_with(mark: str) -> str | None:
    if mark == " ":
        return "a space inside"
    if not mark.isascii():
        return f"the non-ASCII character U+{ord(mark):04X} (an international domain is written in its xn-- form)"
    if not mark.isprintable():
        return f"the control character U+{ord(mark):04X}"
    return _FORBIDDEN_MARKS.get(mark)


def _username(token: str) -> str:
    if not _USERNAME.fullmatch(token):
        _refuse(
            "The Telegram username does not fit: it has 5 to 32 letters, digits or underscores, a letter first.",
            "Give it as @username, or give the numeric chat id.",
        )
    return token


def _chat_id(token: str) -> str:
    if not _CHAT_ID.fullmatch(token) or abs(int(token)) > _MAX_ID:
        _refuse(
            "The chat id is not a plain whole number of at most 63 bits.",
            "Give digits only, without plus, point or leading zeros; a group's id begins with a minus.",
        )
    return token


def _email(token: str) -> str:
    local, domain = token.rsplit("@", 1)
    remedy = "Give one plain address such as name@example.org."
    if "@" in local:
        _refuse("The e-mail address has more than one @.", remedy)
    if len(local) > _MAX_LOCAL:
        _refuse(f"The part before the @ is longer than {_MAX_LOCAL} characters.", remedy)
    if not _LOCAL.fullmatch(local):
        _refuse("The part before the @ is empty, has a dot out of place or a character that does not belong.", remedy)
    return f"{local}@{_domain(domain)}"


def _domain(domain: str) -> str:
    remedy = "Give a host name with at least one dot, such as example.org; an international one in its xn-- form."
    if len(domain) > _MAX_DOMAIN:
        _refuse(f"The part after the @ is longer than {_MAX_DOMAIN} characters.", remedy)
    labels = domain.split(".")
    if "." not in domain or not all(_LABEL.fullmatch(label) for label in labels):
        _refuse("The part after the @ is not a host name.", remedy)
    if labels[-1].isdigit():
        _refuse("The part after the @ is a number, not a host name.", remedy)
    return domain.translate(_ASCII_LOWER)


def _refuse(message: str, remedy: str) -> Never:
    raise InvalidInput(message, remedy)
