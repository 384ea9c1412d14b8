"""The forms a recipient may have, and the one canonical form in which it is stored and sent.

Strict: one clean ASCII token, or a refusal that says what to give instead. What an address is, each channel says
itself; nothing is unquoted, unfolded, normalised or guessed, because two spellings that look alike are two different
people. Pure.
"""

from dataclasses import dataclass
from typing import Final, Never

from shared.channels import CHANNELS
from shared.channels.base import ChannelSpec
from shared.errors import InvalidInput

MAX_LENGTH: Final = 320

_ASCII_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
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

    channel: str
    value: str


def parse_recipient(text: str) -> Address:
    """Parse one recipient as a caller wrote it, ignoring spaces at its ends.

    The value of the result always parses to itself. Raises InvalidInput for everything that is not exactly one address
    of a channel.
    """
    token = _clean_token(text)
    for spec in CHANNELS.values():
        if spec.address.claims(token):
            return Address(spec.name, spec.address.parse(token))
    forms = ", nor ".join(form for spec in _as_told() for form in spec.address.forms)
    raise InvalidInput(f"The recipient is neither {forms}.", _give())


def name_in(text: str) -> str | None:
    """Return the name of a person that stands in the place of an address; None for an address, or what is no name.

    What holds an `@` or no letter was meant as an address.
    """
    name = text.strip()
    if len(text) > MAX_LENGTH or "@" in name or not name.isprintable() or not any(mark.isalpha() for mark in name):
        return None
    try:
        parse_recipient(text)
    except InvalidInput:
        return name
    return None


def canonical(kind: str, value: str) -> str:
    """Return the form in which a contact_info entry of this type is stored.

    A value may come with its channel's prefix, as `telegram:<id>`. Raises InvalidInput if it is of another type.
    """
    if kind not in CHANNELS:
        _refuse(f"{kind!a} is not a channel.", f"Use {' or '.join(CHANNELS)}.")
    form, bare = CHANNELS[kind].address, value.strip(" ")
    has_prefix = bool(form.prefix) and folded(bare).startswith(form.prefix)
    try:
        address = parse_recipient(bare[len(form.prefix) :] if has_prefix else value)
    except InvalidInput as unfit:
        raise InvalidInput(unfit.message, f"Give {form.ask}.") from None
    if address.channel != kind:
        _refuse(f"The value for {kind} belongs to {address.channel}.", f"Give {' or '.join(form.forms)}.")
    return address.value


def folded(text: str) -> str:
    """Return what equal spellings of an address share, on every channel: ASCII letters folded, all else unchanged.

    Whoever looks an address up, matches a rule or asks whether something was said before compares this; what is sent
    goes to the spelling that was given.
    """
    return text.translate(_ASCII_LOWER)


def _as_told() -> list[ChannelSpec]:
    """Return the channels as people are told of them."""
    return list(reversed(CHANNELS.values()))


def _give() -> str:
    return f"Give {', '.join(spec.address.ask for spec in _as_told())}."


def _clean_token(text: str) -> str:
    """Return the text without spaces at its ends.

    Raises InvalidInput if it is not made of visible ASCII or holds list or quoting marks.
    """
    if any(mark in text for mark in "\r\n\0"):
        _refuse("The recipient contains a line break or a NUL character.", _give())
    if len(text) > MAX_LENGTH:
        _refuse(f"The recipient is longer than {MAX_LENGTH} characters.", _give())
    token = text.strip(" ")
    if not token:
        _refuse("The recipient is empty.", _give())
    for mark in token:
        wrong = _what_is_wrong_with(mark)
        if wrong:
            _refuse(f"The recipient contains {wrong}.", _give())
    return token


def _what_is_wrong_with(mark: str) -> str | None:
    if mark == " ":
        return "a space inside"
    if not mark.isascii():
        return f"the non-ASCII character U+{ord(mark):04X} (an international domain is written in its xn-- form)"
    if not mark.isprintable():
        return f"the control character U+{ord(mark):04X}"
    return _FORBIDDEN_MARKS.get(mark)


def _refuse(message: str, remedy: str) -> Never:
    raise InvalidInput(message, remedy)
