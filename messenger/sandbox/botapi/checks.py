"""The refusals of the Bot API, in its own words (core.telegram.org/bots/api).

Parameters come as form text, as query text or as JSON; `decoded` makes one kind of them, and the readers below raise
`Refused` for what does not fit. Pure.
"""

import json
import re
from collections.abc import Mapping, Sequence

from messenger.sandbox.botapi.shapes import units
from shared.channels.telegram import REACTIONS

Params = Mapping[str, object]
MAX_TEXT_UNITS = 4096
MAX_CALLBACK_BYTES = 64
MAX_ANSWER_UNITS = 200
MAX_COMMANDS = 100
INTEGERS = frozenset(
    {
        "message_id",
        "offset",
        "limit",
        "timeout",
        "message_thread_id",
        "reply_to_message_id",
        "cache_time",
        "user_id",
    }
)
BOOLEANS = frozenset(
    {
        "disable_notification",
        "protect_content",
        "show_alert",
        "is_big",
        "drop_pending_updates",
        "allow_sending_without_reply",
        "allow_paid_broadcast",
        "disable_web_page_preview",
    }
)
OBJECTS = frozenset({"reply_markup", "reply_parameters", "link_preview_options", "scope"})
ARRAYS = frozenset({"entities", "reaction", "commands", "allowed_updates"})
CHAT_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
ENTITY_TYPES = frozenset(
    {
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "date_time",
    }
)


class Refused(Exception):
    """An answer with "ok": false: the code, the description and the parameters of the Bot API."""

    def __init__(self, code: int, description: str, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def bad(description: str) -> Refused:
    """Return a 400 of the Bot API."""
    return Refused(400, f"Bad Request: {description}")


def decoded(raw: Params) -> dict[str, object]:
    """Return the parameters with numbers, booleans, objects and lists as such, whichever way they came."""
    return {name: _decode(name, value) for name, value in raw.items() if value is not None}


def number(params: Params, name: str, default: int | None = None) -> int:
    """Return a whole number; without a default it must be there."""
    value = params.get(name, default)
    if not isinstance(value, int):
        raise bad(f'parameter "{name}" is required')
    return value


def target(params: Params) -> int | str:
    """Return the chat: any number or @name there could be."""
    value = params.get("chat_id")
    if value is None or value == "":
        raise bad("chat_id is empty")
    if isinstance(value, int) and value != 0:
        return value
    if isinstance(value, str) and CHAT_NAME.fullmatch(value):
        return value
    raise bad("chat not found")


def message_text(params: Params) -> str:
    """Return the text of a message: not empty, at most 4096 UTF-16 units."""
    text = params.get("text", "")
    if not isinstance(text, str):
        raise bad('field "text" must be of type String')
    if not text.strip():
        raise bad("message text is empty")
    if units(text) > MAX_TEXT_UNITS:
        raise bad("message is too long")
    if params.get("parse_mode"):
        raise bad("unsupported parse_mode; the sandbox shows entities only")
    return text


def check_entities(params: Params, text: str) -> None:
    """Raise Refused unless each entity has a known type and lies within the text in UTF-16 units."""
    for entity in _objects(params, "entities", "MessageEntity"):
        if entity.get("type") not in ENTITY_TYPES:
            raise bad("can't parse MessageEntity: unsupported type specified")
        start, length = _field(entity, "offset", "MessageEntity"), _field(entity, "length", "MessageEntity")
        if start < 0 or length < 0:
            raise bad("can't parse MessageEntity: receive an entity with incorrect offset or length")
        if start + length > units(text):
            raise bad(
                f"entity beginning at UTF-16 offset {start} ends after the end of the text "
                f"at UTF-16 offset {start + length}"
            )
        if entity["type"] == "text_link" and not isinstance(entity.get("url"), str):
            raise bad("can't parse MessageEntity: can't find field \"url\"")


def check_markup(params: Params) -> None:
    """Raise Refused unless an inline keyboard is a list of rows of buttons, each with a text and exactly one action."""
    markup = params.get("reply_markup")
    if not isinstance(markup, Mapping) or "inline_keyboard" not in markup:
        return
    rows = markup["inline_keyboard"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad('field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays')
    for button in (button for row in rows for button in row):
        _check_button(button)


def check_link_preview(params: Params) -> None:
    """Raise Refused if link preview options hold an `is_disabled` that is no boolean."""
    options = params.get("link_preview_options")
    if isinstance(options, Mapping) and not isinstance(options.get("is_disabled", False), bool):
        raise bad('can\'t parse link preview options: field "is_disabled" must be of type Boolean')


def reply_target(params: Params) -> tuple[int | None, bool]:
    """Return which message is answered, and whether it may be missing."""
    given = params.get("reply_parameters")
    if isinstance(given, Mapping):
        return _field(given, "message_id", "ReplyParameters"), given.get("allow_sending_without_reply") is True
    old = params.get("reply_to_message_id")
    return (old if isinstance(old, int) else None), params.get("allow_sending_without_reply") is True


def check_reaction(params: Params) -> None:
    """Raise Refused unless there is at most one emoji, and one that Telegram knows."""
    reactions = _objects(params, "reaction", "ReactionType")
    if len(reactions) > 1:
        raise bad("REACTIONS_TOO_MANY")
    for reaction in reactions:
        if reaction.get("type") != "emoji" or str(reaction.get("emoji")).replace("\ufe0f", "") not in REACTIONS:
            raise bad("REACTION_INVALID")


def check_commands(params: Params) -> None:
    """Raise Refused unless commands are lower case words with a description."""
    commands = _objects(params, "commands", "BotCommand")
    if len(commands) > MAX_COMMANDS:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", str(command.get("command"))):
            raise bad("BOT_COMMAND_INVALID")
        if not command.get("description"):
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")


def kinds(params: Params) -> tuple[str, ...] | None:
    """Return the update kinds asked for; None where those asked for last shall hold."""
    wanted = params.get("allowed_updates")
    if wanted is None:
        return None
    if not isinstance(wanted, list) or not all(isinstance(kind, str) for kind in wanted):
        raise bad("can't parse allowed updates: expected an Array of String")
    return tuple(wanted)


def _decode(name: str, value: object) -> object:
    if name == "chat_id" or name in INTEGERS:
        return _integer(name, value)
    if name in BOOLEANS:
        return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes", "t", "y")
    if name in OBJECTS or name in ARRAYS:
        return _structure(name, value)
    return value


def _integer(name: str, value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if name == "chat_id":
        return str(value).strip()
    raise bad(f'field "{name}" must be of type Number')


def _structure(name: str, value: object) -> object:
    kind, word = (dict, "object") if name in OBJECTS else (list, "array")
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else kind()
        except ValueError:
            raise bad(f"can't parse {name.replace('_', ' ')} JSON object") from None
    if not isinstance(value, kind):
        raise bad(f"{word} expected as {name.replace('_', ' ')}")
    return value


def _objects(params: Params, name: str, kind: str) -> Sequence[Mapping[str, object]]:
    items = params.get(name)
    if not isinstance(items, list):
        return []
    if not all(isinstance(item, Mapping) for item in items):
        raise bad(f"can't parse {kind}: expected an Object")
    return items


def _field(given: Mapping[str, object], name: str, kind: str) -> int:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad(f'can\'t parse {kind}: field "{name}" must be of type Number')
    return value


def _check_button(button: object) -> None:
    if not isinstance(button, Mapping) or not isinstance(button.get("text"), str) or not button["text"]:
        raise bad('can\'t parse inline keyboard button: field "text" must be a non-empty String')
    data, url = button.get("callback_data"), button.get("url")
    if (data is None) == (url is None):
        raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    if data is not None and (not isinstance(data, str) or not 1 <= len(data.encode()) <= MAX_CALLBACK_BYTES):
        raise bad("BUTTON_DATA_INVALID")
    if url is not None and not re.match(r"(https?|tg)://\S+$|mailto:\S+$", str(url)):
        raise bad("BUTTON_URL_INVALID")
