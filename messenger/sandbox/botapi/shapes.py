"""The shapes of Telegram's Bot API objects, made from the world (core.telegram.org/bots/api). Pure."""

import re
from collections.abc import Mapping

from messenger.sandbox.world import Message, World, chat_number

COMMAND = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@\w+)?")
SUPERGROUPS_BELOW = -1_000_000_000_000


def units(text: str) -> int:
    """Return the length of a text as Telegram counts it: UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def bot_user(token_id: str) -> dict[str, object]:
    """Return the User object of the bot whose token begins with that number."""
    name, username = f"Bot {token_id}", f"sandbox_{token_id}_bot"
    return {"id": int(token_id), "is_bot": True, "first_name": name, "username": username}


def me(token_id: str) -> dict[str, object]:
    """Return what getMe answers."""
    abilities = {"can_join_groups": True, "can_read_all_group_messages": True, "supports_inline_queries": False}
    return {**bot_user(token_id), **abilities, "can_connect_to_business": False, "has_main_web_app": False}


def person(world: World, user_id: int) -> dict[str, object]:
    """Return the User object of a person; nobody has a username here, so that none can be trusted."""
    name = world.people.get(user_id) or f"Person {user_id}"
    return {"id": user_id, "is_bot": False, "first_name": name, "language_code": "en"}


def chat(world: World, number: int) -> dict[str, object]:
    """Return the Chat object: a positive id is a private chat with that person, a negative one a group."""
    if number > 0:
        return {"id": number, "type": "private", "first_name": person(world, number)["first_name"]}
    kind = "supergroup" if number < SUPERGROUPS_BELOW else "group"
    return {"id": number, "type": kind, "title": world.titles.get(number) or f"Group {abs(number)}"}


def message(world: World, given: Message, *, with_reply: bool = True) -> dict[str, object]:
    """Return the Message object; the message it replies to is included one level deep, as in the real API."""
    sender = bot_user(str(given.sender)) if given.by_bot else person(world, given.sender)
    shape: dict[str, object] = {
        "message_id": given.message_id,
        "from": sender,
        "chat": chat(world, given.chat),
        "date": given.at,
    }
    if given.document is None:
        shape["text"] = given.text
    else:
        shape.update(document=dict(given.document), **({"caption": given.text} if given.text else {}))
    if given.edited_at is not None:
        shape["edit_date"] = given.edited_at
    if given.entities:
        shape["entities"] = [dict(entity) for entity in given.entities]
    if given.markup is not None and "inline_keyboard" in given.markup:
        shape["reply_markup"] = {"inline_keyboard": given.markup["inline_keyboard"]}
    answered = world.messages.get(given.reply_to) if given.reply_to is not None else None
    if with_reply and answered is not None:
        shape["reply_to_message"] = message(world, answered, with_reply=False)
    return shape


def message_update(world: World, given: Message) -> dict[str, object]:
    """Return the update that tells a bot what a person wrote."""
    entities = [
        {"type": "bot_command", "offset": units(given.text[: hit.start()]), "length": units(hit.group())}
        for hit in COMMAND.finditer(given.text)
    ]
    body = message(world, given)
    if entities:
        body["entities"] = entities
    return {"update_id": world.next_update_id, "message": body}


def pressed(world: World, on: Message, who: int, data: str) -> dict[str, object]:
    """Return the update that tells a bot which button a person pressed; `data` is passed on as it was given."""
    query = {
        "id": str(4_000_000_000_000_000 + world.next_update_id),
        "from": person(world, who),
        "message": message(world, on),
        "chat_instance": str(chat_number(on.chat)),
        "data": data,
    }
    return {"update_id": world.next_update_id, "callback_query": query}


def reacted(world: World, on: Message, who: int, emoji: str, at: int) -> dict[str, object]:
    """Return the update that tells a bot which reaction a person set; an empty emoji takes it away."""

    def reactions(emojis: tuple[str, ...]) -> list[Mapping[str, object]]:
        return [{"type": "emoji", "emoji": one} for one in emojis]

    body = {
        "chat": chat(world, on.chat),
        "message_id": on.message_id,
        "user": person(world, who),
        "date": at,
        "old_reaction": reactions(on.reactions.get(who, ())),
        "new_reaction": reactions((emoji,) if emoji else ()),
    }
    return {"update_id": world.next_update_id, "message_reaction": body}
