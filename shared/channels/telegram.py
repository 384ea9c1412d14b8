"""Telegram: chats, threads and limits, and a message as the Bot API gets it: canonical JSON, nothing parsed as markup.

Source: Bot API 10.0, sendMessage and setMessageReaction. The limit of 4096 is counted in UTF-16 units, the
strictest reading of the documentation.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from shared.channels.base import AddressForm, ChannelSpec, Credential, Limit, Message, ThreadForm, Wire
from shared.display.visible import JOINER
from shared.errors import InvalidInput

# Whoever makes a message of others' words takes these with the rest.
LIMIT_UNITS = 4096
CALLBACK_BYTES = 64

_NUMERIC = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_USERNAME = re.compile(r"@[A-Za-z0-9_]{1,64}", re.ASCII)
_MESSAGE_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)

_MAX_CHAT: Final = 2**63 - 1
# Telegram promises that a chat's number has no more bits.
LARGEST_CHAT: Final = 2**52
_MAX_MESSAGE: Final = 2**31 - 1
_CHAT: Final = re.compile(r"-?[1-9][0-9]{0,18}")
_MESSAGE: Final = re.compile(r"[1-9][0-9]{0,9}")
_NAME: Final = re.compile(r"@[A-Za-z][A-Za-z0-9_]{4,31}")
_LIKE_A_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9.]*")

# In any second at most 30, in any minute to a group at most 20.
BOT: Final = Limit(5, timedelta(seconds=1 / 25))
CHAT: Final = Limit(3, timedelta(seconds=1))
GROUP: Final = Limit(3, timedelta(seconds=60 / 17))


@dataclass(frozen=True, slots=True)
class Thread:
    """One message: the chat's id as canonical text, and the message's number in it."""

    chat: str
    message: int


def is_private_chat(value: str) -> bool:
    """Return whether a canonical value is a person's own chat: a positive number, never a group or an @username."""
    return _CHAT.fullmatch(value) is not None and 0 < int(value) <= _MAX_CHAT


def parse_thread(text: str) -> Thread:
    """Parse `<chat>:<message>`, the identity of one message; raise InvalidInput for anything else."""
    chat, _, message = text.strip(" ").partition(":")
    fits = _CHAT.fullmatch(chat) and _MESSAGE.fullmatch(message)
    if not fits or abs(int(chat)) > _MAX_CHAT or int(message) > _MAX_MESSAGE:
        raise InvalidInput(
            "The thread identity is not a chat id and a message id with a colon between them.",
            "Give it as chat:message, for example 123456789:42.",
        )
    return Thread(chat, int(message))


def _claims(token: str) -> bool:
    return token.startswith("@") or _LIKE_A_NUMBER.fullmatch(token) is not None


def _parse(token: str) -> str:
    """Return a chat id or @username as it is; raise InvalidInput for what is neither."""
    if token.startswith("@"):
        if not _NAME.fullmatch(token):
            raise InvalidInput(
                "The Telegram username is not valid: it needs 5 to 32 letters, digits or underscores, a letter first.",
                "Give it as @username, or give the numeric chat id.",
            )
    elif not _CHAT.fullmatch(token) or abs(int(token)) > _MAX_CHAT:
        raise InvalidInput(
            "The chat id is not a whole number of at most 63 bits.",
            "Give digits only, without plus sign, decimal point or leading zeros; a group's id begins with a minus.",
        )
    return token


def _spellings(thread: str) -> tuple[str]:
    named = parse_thread(thread)
    return (f"{named.chat}:{named.message}",)


# Those that anybody may set, as Telegram lists them (Bot API, ReactionTypeEmoji).
_EMOJIS: Final = (
    "👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 "
    "🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 "
    "🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡"
)
REACTIONS: Final = tuple(_EMOJIS.split())


def limits(address: str, _origin: str) -> Mapping[str, Limit]:
    """Return what one message spends from, whichever butler's it is: the bot's limit, and the chat's."""
    return {"telegram": BOT, f"telegram:{address}": CHAT if is_private_chat(address) else GROUP}


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
        raise InvalidInput("The message has no visible text.", "Give the text to send.")
    return tuple(_text(message, part, first=n == 0) for n, part in enumerate(parts))


def _text(message: Message, part: str, *, first: bool) -> Wire:
    """Render one part as sendMessage."""
    body: dict[str, object] = {
        "chat_id": _chat_id(message.address),
        "link_preview_options": {"is_disabled": True},
        "text": part,
    }
    if first and message.intent == "reply":
        answered: dict[str, object] = {"message_id": _answered(message)}
        if message.alone_if_gone:
            answered["allow_sending_without_reply"] = True
        body["reply_parameters"] = answered
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
    raise InvalidInput("The address is not a Telegram chat.", "Use a numeric chat id or @username.")


def _answered(message: Message) -> int:
    """Return the message id of the thread "<chat>:<message>".

    The authority was given for the address, so a thread in another chat is refused rather than followed.
    """
    chat, _, number = (message.thread or "").rpartition(":")
    if not _MESSAGE_ID.fullmatch(number):
        raise InvalidInput("The thread does not name a Telegram message.", 'Give it as "<chat id>:<message id>".')
    if chat != message.address:
        raise InvalidInput("The thread belongs to a different chat.", "Reply in the same chat.")
    return int(number)


def canonical(payload: Mapping[str, object]) -> bytes:
    """Encode a payload as UTF-8 JSON with sorted keys and no spaces: equal payloads are equal bytes."""
    text = json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "The text contains an incomplete Unicode character.", "Send complete Unicode characters."
        ) from None


def with_buttons(wire: Wire, rows: Sequence[Sequence[Button]]) -> Wire:
    """Return the same wire with an inline keyboard; no rows means an empty keyboard."""
    return with_fields(wire, {"reply_markup": {"inline_keyboard": keyboard(rows)}})


def words_of(wire: Wire) -> dict[str, object]:
    """Return the fields of a wire that hold its words, as an edit takes them."""
    body: dict[str, object] = json.loads(wire.body)
    return {name: body[name] for name in ("text", "entities") if name in body}


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
    # A text of many parts is not counted anew for each of them.
    while len(rest) > limit_units or utf16_units(rest) > limit_units:
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


SPEC: Final = ChannelSpec(
    name="telegram",
    label="Telegram",
    via="on Telegram",
    provider="Telegram",
    sources=frozenset({"telegram", "telegram_bot"}),
    address=AddressForm(
        claims=_claims,
        parse=_parse,
        is_private=is_private_chat,
        forms=("a numeric chat id", "an @username"),
        ask="one numeric chat id, or one @username",
        private="the number of a person's own chat; `butlers pair telegram` finds it",
        missing="a Telegram address",
        field="Telegram chat id or @username",
        prefix="telegram:",
        is_made_up=lambda address: address.lstrip("-").isdecimal() and abs(int(address)) >= LARGEST_CHAT,
        group=lambda address: "a group or channel" if address.startswith("-") else "",
    ),
    thread=ThreadForm(
        spellings=_spellings,
        words="message {number} in chat {place}",
        form="<chat_id>:<message_id>",
        address=lambda thread: thread.partition(":")[0],
    ),
    render=render,
    limits=limits,
    sandbox_owner="5000000000000001",
    refusals={
        "bot was blocked by the user": "{name} has blocked the bot.",
        "bot can't initiate conversation": "{name} has never started the bot.",
        "chat not found": "{name} has never started the bot, or the number is wrong.",
        "bot was kicked": "The bot was removed from {name}.",
        "upgraded to a supergroup": "{name} has a new number: put it on file with `butlers contacts set --primary`.",
        "user is deactivated": "{name}'s account is deleted.",
    },
    credential=Credential(
        setting="telegram_token",
        realm=lambda token: token.partition(":")[0],
        words="the bot's token",
        remedy="Put the token that @BotFather shows into BUTLERS_TELEGRAM_TOKEN and start the Messenger again.",
    ),
    reactions=REACTIONS,
    has_buttons=True,
)
