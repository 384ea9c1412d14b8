"""A message as the Bot API gets it: canonical JSON, one wire per part, nothing cut and nothing parsed as markup.

Source: Bot API 10.0, sendMessage and setMessageReaction. The limit of 4096 is counted in UTF-16 units, the
strictest reading of the documentation.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shared.channels.base import Message, Wire
from shared.display.visible import JOINER
from shared.errors import InvalidInput

# Whoever makes a message of others' words takes these with the rest.
LIMIT_UNITS = 4096
CALLBACK_BYTES = 64

_NUMERIC = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_USERNAME = re.compile(r"@[A-Za-z0-9_]{1,64}", re.ASCII)
_MESSAGE_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Button:
    """One button under a message: `data` comes back as a callback (<= 64 bytes), `url` opens a page."""

    text: str
    data: str = ""
    url: str = ""


def render(message: Message) -> tuple[Wire, ...]:
    """Render the wires of one message, in the order they must be sent.

    A reply points at the message answered from its first part only. Raises InvalidInput for a message that has no form
    on Telegram (blank text, an address or thread that is none, a thread in another chat).
    """
    if message.intent == "react":
        return (_reaction(message),)
    parts = split(message.text)
    if not parts:
        raise InvalidInput("The message has no visible text.", "Give the text that shall be sent.")
    return tuple(_text(message, part, first=n == 0) for n, part in enumerate(parts))


def _text(message: Message, part: str, *, first: bool) -> Wire:
    """Render one part as sendMessage."""
    body: dict[str, object] = {
        "chat_id": _chat_id(message.address),
        "link_preview_options": {"is_disabled": True},
        "text": part,
    }
    if first and message.intent == "reply":
        body["reply_parameters"] = {"message_id": _answered(message)}
    return Wire(verb="sendMessage", to=message.address, body=canonical(body))


def _reaction(message: Message) -> Wire:
    """Render one reaction as setMessageReaction on the message that the thread names."""
    if not message.emoji:
        raise InvalidInput("A reaction needs an emoji.", "Give one in `emoji`.")
    body = {
        "chat_id": _chat_id(message.address),
        "message_id": _answered(message),
        "reaction": [{"emoji": message.emoji, "type": "emoji"}],
    }
    return Wire(verb="setMessageReaction", to=message.address, body=canonical(body))


def _chat_id(address: str) -> int | str:
    """Return the address as the Bot API wants it: a number, or @name."""
    if _NUMERIC.fullmatch(address):
        return int(address)
    if _USERNAME.fullmatch(address):
        return address
    raise InvalidInput("The address is no Telegram chat.", "Use a numeric chat id or @username.")


def _answered(message: Message) -> int:
    """Return the message id of the thread "<chat>:<message>".

    The authority was given for the address, so a thread in another chat is refused rather than followed.
    """
    chat, _, number = (message.thread or "").rpartition(":")
    if not _MESSAGE_ID.fullmatch(number):
        raise InvalidInput("The thread names no Telegram message.", 'Give it as "<chat id>:<message id>".')
    if chat != message.address:
        raise InvalidInput("The thread belongs to another chat than the address.", "Answer in the same chat.")
    return int(number)


def canonical(payload: Mapping[str, object]) -> bytes:
    """Encode a payload as UTF-8 JSON with sorted keys and no spaces: equal payloads are equal bytes."""
    text = json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("The text holds half a character.", "Send whole Unicode characters.") from None


def with_buttons(wire: Wire, rows: Sequence[Sequence[Button]]) -> Wire:
    """Return the same wire with an inline keyboard; no rows means an empty keyboard."""
    return with_fields(wire, {"reply_markup": {"inline_keyboard": keyboard(rows)}})


def with_fields(wire: Wire, fields: Mapping[str, object]) -> Wire:
    """Return the same wire with these fields, which take the place of any it has."""
    body: dict[str, object] = json.loads(wire.body)
    return replace(wire, body=canonical({**body, **fields}))


def keyboard(rows: Sequence[Sequence[Button]]) -> list[list[dict[str, str]]]:
    """Return the rows of an inline keyboard as the Bot API takes them."""
    return [[_button(button) for button in row] for row in rows]


def _button(button: Button) -> dict[str, str]:
    """Return an InlineKeyboardButton with exactly one of callback_data and url."""
    if bool(button.data) == bool(button.url):
        raise InvalidInput("A button needs either data or a link.", "Give exactly one of them.")
    if len(button.data.encode()) > CALLBACK_BYTES:
        raise InvalidInput("A button's data is longer than 64 bytes.", "Make it shorter.")
    if button.url:
        return {"text": button.text, "url": button.url}
    return {"callback_data": button.data, "text": button.text}


def utf16_units(text: str) -> int:
    """Return the length of a text as Telegram counts it, in UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit_units: int = LIMIT_UNITS) -> list[str]:
    """Split a text into parts, in order, each of at most `limit_units` (>= 2) UTF-16 units and none blank.

    A text that fits is one part, untouched. Otherwise white space at both ends and at each break is dropped (Telegram
    drops it too) and nothing else: the parts hold every other character in order. Breaks are looked for at a line end,
    then at a space, first in the second half of the room and then in the first; a longer word is broken between
    characters as a reader sees them. A blank text has no parts.
    """
    if utf16_units(text) <= limit_units:
        return [text] if text.strip() else []
    parts: list[str] = []
    rest = text.strip()
    while utf16_units(rest) > limit_units:
        cut = _cut(rest, limit_units)
        # `rest` begins with a visible character and cut >= 1, so the part is not blank.
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*parts, rest] if rest else parts


def _cut(rest: str, limit_units: int) -> int:
    """Return where the first part ends; `rest` is longer than the limit."""
    room = _fitting(rest, limit_units)
    half = max(1, room // 2)
    for separator, start in (("\n", half), (" ", half), ("\n", 1), (" ", 1)):
        at = rest.rfind(separator, start, room + 1)
        if at > 0:
            return at
    cut = room
    while cut > half and _inside_character(rest, cut):
        cut -= 1
    # A "character" of more than half the room is no character: break it rather than send nothing.
    return room if _inside_character(rest, cut) else cut


def _fitting(text: str, limit_units: int) -> int:
    """Return how many code points from the start fit."""
    units = 0
    for n, character in enumerate(text):
        units += 2 if character > "\uffff" else 1
        if units > limit_units:
            return n
    return len(text)


def _inside_character(text: str, at: int) -> bool:
    """Return whether a break before text[at] would tear what a reader sees as one character (after UAX 29)."""
    before, after = text[at - 1], text[at]
    if _is_flag_half(before) and _is_flag_half(after):
        start = at
        while start > 0 and _is_flag_half(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 1
    return (
        before == JOINER
        or unicodedata.category(after) in {"Mn", "Mc", "Me", "Cf"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\u1160" <= after <= "\u11ff"  # Hangul vowels and finals
    )


def _is_flag_half(character: str) -> bool:
    """Return whether this is a regional indicator; two of them make a flag."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"
