"""The methods of the Bot API that answer at once: what each accepts, journals and returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from messenger.sandbox.botapi import checks, shapes
from messenger.sandbox.botapi.checks import Params, bad
from messenger.sandbox.sandbox import Accepted, Sandbox
from messenger.sandbox.world import Message, Polling, as_list

# What a file's path begins with.
FOLDER = "documents"
# Each bot has one for all, and one for each chat of its own.
MOST_MENUS = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one bot, with its parameters decoded."""

    sandbox: Sandbox
    token_id: str
    params: Params


def get_me(call: Call) -> object:
    """Return the bot itself."""
    return shapes.me(call.token_id)


def send_message(call: Call) -> object:
    """Accept a message for any chat; return it as it stands there."""
    world, chat = call.sandbox.world, checks.target(call.params)
    text = checks.message_text(call.params)
    checks.check_entities(call.params, text)
    checks.check_markup(call.params)
    checks.check_link_preview(call.params)
    reply_to, may_miss = checks.reply_target(call.params)
    known = reply_to is not None and world.message(chat, reply_to) is not None
    if reply_to is not None and not known and not may_miss:
        raise bad("message to be replied not found")
    message_id = world.next_message_id
    payload = {"method": "sendMessage", **call.params}
    if reply_to is not None:
        payload["reply_parameters"] = {**_reply_parameters(call.params), "message_id": reply_to}
    _accept(call, str(chat), payload, str(message_id))
    return shapes.message(world, world.messages[message_id])


def edit_message_text(call: Call) -> object:
    """Replace the text, and with it the keyboard, of a message this bot sent."""
    before = _own_message(call)
    text = checks.message_text(call.params)
    checks.check_entities(call.params, text)
    checks.check_markup(call.params)
    same_text = text == before.text and call.params.get("entities", []) == list(before.entities)
    if same_text and _keyboard(call.params) == _keyboard({"reply_markup": before.markup}):
        raise _not_modified()
    return _edited(call, "editMessageText", before)


def edit_message_reply_markup(call: Call) -> object:
    """Replace or take away the keyboard of a message this bot sent."""
    before = _own_message(call)
    checks.check_markup(call.params)
    if _keyboard(call.params) == _keyboard({"reply_markup": before.markup}):
        raise _not_modified()
    return _edited(call, "editMessageReplyMarkup", before)


def answer_callback_query(call: Call) -> object:
    """Answer a press that this bot was told of."""
    press = call.sandbox.world.presses.get(str(call.params.get("callback_query_id", "")))
    if press is None or press.token_id not in ("", call.token_id):
        raise bad("query is too old and response timeout expired or query ID is invalid")
    text = call.params.get("text", "")
    if not isinstance(text, str) or shapes.units(text) > checks.MAX_ANSWER_UNITS:
        raise bad("MESSAGE_TOO_LONG")
    _accept(call, str(press.chat), {"method": "answerCallbackQuery", **call.params}, press.callback_id)
    return True


def set_message_reaction(call: Call) -> object:
    """Set or take away this bot's reaction on any message of a chat."""
    chat, message_id = checks.target(call.params), checks.number(call.params, "message_id")
    if call.sandbox.world.message(chat, message_id) is None:
        raise bad("message to react not found")
    checks.check_reaction(call.params)
    payload = {"method": "setMessageReaction", "reaction": [], **call.params}
    _accept(call, str(chat), payload, str(message_id))
    return True


def delete_webhook(call: Call) -> object:
    """Confirm all waiting updates if drop_pending_updates is set; there never is a webhook to delete."""
    if call.params.get("drop_pending_updates") is True:
        world = call.sandbox.world
        allowed = world.pollings.get(call.token_id, Polling()).allowed
        call.sandbox.confirm(call.token_id, Polling(world.next_update_id, allowed))
    return True


def set_my_commands(call: Call) -> object:
    """Check the commands and keep them by whom they are for; the pages do not show them."""
    checks.check_commands(call.params)
    if len(call.sandbox.menus) >= MOST_MENUS:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    call.sandbox.menus[_menu(call)] = [str(one["command"]) for one in as_list(call.params.get("commands"))]
    return True


def delete_my_commands(call: Call) -> object:
    """Forget the commands for the same."""
    call.sandbox.menus.pop(_menu(call), None)
    return True


def send_chat_action(call: Call) -> object:
    """Check the chat; the pages do not show that a bot is typing."""
    checks.target(call.params)
    if not call.params.get("action"):
        raise bad("wrong parameter action in request")
    return True


def get_file(call: Call) -> object:
    """Return where a file that a person sent can be downloaded."""
    file_id = str(call.params.get("file_id", ""))
    body = call.sandbox.world.files.get(file_id)
    if body is None:
        raise bad("invalid file_id")
    about = {"file_id": file_id, "file_unique_id": file_id, "file_size": len(body)}
    return {**about, "file_path": f"{FOLDER}/{file_id}"}


METHODS: Mapping[str, Callable[[Call], object]] = {
    "getMe": get_me,
    "sendMessage": send_message,
    "editMessageText": edit_message_text,
    "editMessageReplyMarkup": edit_message_reply_markup,
    "answerCallbackQuery": answer_callback_query,
    "setMessageReaction": set_message_reaction,
    "deleteWebhook": delete_webhook,
    "setMyCommands": set_my_commands,
    "deleteMyCommands": delete_my_commands,
    "sendChatAction": send_chat_action,
    "getFile": get_file,
}
ALL_METHODS = frozenset(METHODS) | {"getUpdates"}


def _menu(call: Call) -> tuple[str, str]:
    """Return the bot and the chat that a menu is for; no chat where it is for all."""
    scope = call.params.get("scope")
    return call.token_id, str(scope.get("chat_id", "")) if isinstance(scope, Mapping) else ""


def _accept(call: Call, to: str, payload: Mapping[str, object], provider_id: str) -> None:
    call.sandbox.accept(Accepted("telegram", call.token_id, to, payload, provider_id))


def _own_message(call: Call) -> Message:
    if "inline_message_id" in call.params and "message_id" not in call.params:
        raise bad("MESSAGE_ID_INVALID")
    chat, message_id = checks.target(call.params), checks.number(call.params, "message_id")
    found = call.sandbox.world.message(chat, message_id)
    if found is None:
        raise bad("message to edit not found")
    if not found.by_bot or found.sender != int(call.token_id):
        raise bad("message can't be edited")
    return found


def _edited(call: Call, method: str, before: Message) -> object:
    world, chat = call.sandbox.world, checks.target(call.params)
    _accept(call, str(chat), {"method": method, **call.params}, str(before.message_id))
    return shapes.message(world, world.messages[before.message_id])


def _keyboard(params: Params) -> object:
    markup = params.get("reply_markup")
    return (markup.get("inline_keyboard") or None) if isinstance(markup, Mapping) else None


def _reply_parameters(params: Params) -> Mapping[str, object]:
    given = params.get("reply_parameters")
    return given if isinstance(given, Mapping) else {}


def _not_modified() -> checks.Refused:
    return bad(
        "message is not modified: specified new message content and reply markup are exactly the same as a "
        "current content and reply markup of the message"
    )
