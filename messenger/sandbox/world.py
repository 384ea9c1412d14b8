"""The world the sandbox plays: chats, messages, mails, updates and what each bot has confirmed.

`World.apply_journal` and `World.apply_event` take lines as they stand in the two files, so that what is rebuilt after a
restart went through the same code as what happened live. Pure.
"""

import dataclasses
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

FIRST_UPDATE_ID = 700_000_001
NAMED_CHAT_BASE = -1_002_000_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """One bubble: `sender` is a user id, or the bot's id where `by_bot`; times are unix seconds."""

    chat: int
    message_id: int
    at: int
    sender: int
    by_bot: bool
    text: str
    entities: Sequence[Mapping[str, object]] = ()
    markup: Mapping[str, object] | None = None
    reply_to: int | None = None
    edited_at: int | None = None
    reactions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    # The file that came with it, as the Bot API describes it.
    document: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One update as a bot reads it; `token_id` is empty where every bot of the sandbox gets it."""

    update_id: int
    kind: str
    body: Mapping[str, object]
    token_id: str


@dataclass(frozen=True, slots=True)
class Press:
    """A button press that waits for, or has got, an answer of the bot `token_id`."""

    callback_id: str
    token_id: str
    chat: int
    message_id: int
    sender: int
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Mail:
    """One accepted mail for one recipient; `raw` is the whole message as it came."""

    n: int
    at: datetime
    to: str
    sender: str
    subject: str
    message_id: str
    raw: str


@dataclass(frozen=True, slots=True)
class Written:
    """A mail that a person wrote to the butlers; `raw` is the whole message as its mailbox hands it out."""

    uid: int
    at: datetime
    to: str
    sender: str
    subject: str
    message_id: str
    raw: str


@dataclass(frozen=True, slots=True)
class Polling:
    """How far a bot has confirmed its updates, and which kinds it asked for (empty: the API's default)."""

    offset: int = 0
    allowed: tuple[str, ...] = ()


def chat_number(chat: object) -> int:
    """Return the number of a chat given as a number or as `@name`; the same name always has the same number."""
    if isinstance(chat, int):
        return chat
    return NAMED_CHAT_BASE - zlib.crc32(str(chat).casefold().encode())


def as_int(value: object) -> int:
    """Return the value as a whole number; lines are written by us, so anything else is a broken file."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"expected a number, found {value!r}")
    return int(value)


def as_map(value: object) -> Mapping[str, object]:
    """Return the value as an object, empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Mapping[str, object]]:
    """Return the objects of a list, empty where it is none."""
    return [as_map(item) for item in value] if isinstance(value, list) else []


class World:
    """The state that the pages and the Bot API read; it is changed only by applying lines."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.mails: list[Mail] = []
        self.written: list[Written] = []
        self.updates: list[Update] = []
        self.presses: dict[str, Press] = {}
        self.pollings: dict[str, Polling] = {}
        self.people: dict[int, str] = {}
        self.titles: dict[int, str] = {}
        # The bytes of files that people sent, by their id.
        self.files: dict[str, bytes] = {}
        # How often people were named, so that the pages show it.
        self.namings = 0
        self.next_message_id = 1
        self.first_update_id = self.next_update_id = FIRST_UPDATE_ID

    def apply_journal(self, line: Mapping[str, object]) -> None:
        """Change the world by one accepted message, edit, reaction, answer or mail."""
        payload = as_map(line["payload"])
        at = datetime.fromisoformat(str(line["at"]))
        if line["channel"] == "email":
            self._add_mail(line, payload, at)
            return
        match payload["method"]:
            case "sendMessage":
                self._add_sent(line, payload, int(at.timestamp()))
            case "editMessageText" | "editMessageReplyMarkup":
                self._edit(payload, int(at.timestamp()))
            case "setMessageReaction":
                self._react(as_int(line["token_id"]), as_int(payload["message_id"]), payload["reaction"])
            case "answerCallbackQuery":
                press = self.presses.get(str(line["provider_id"]))
                if press is not None:
                    answer = str(payload.get("text") or "")
                    self.presses[press.callback_id] = dataclasses.replace(press, answer=answer)

    def apply_event(self, line: Mapping[str, object]) -> None:
        """Change the world by what a person did (an update) or what a bot confirmed."""
        if line["kind"] == "confirmed":
            allowed = line["allowed"]
            kinds = tuple(str(k) for k in allowed) if isinstance(allowed, list) else ()
            self.pollings[str(line["token_id"])] = Polling(as_int(line["offset"]), kinds)
            return
        if line["kind"] == "written":
            self._add_written(as_map(line["mail"]), datetime.fromisoformat(str(line["at"])))
            return
        if line["kind"] == "file":
            self.files[str(line["file_id"])] = b64decode(str(line["base64"]))
            return
        if line["kind"] == "begun":
            # Whoever noted a number of the files before takes none of these for it.
            self.next_message_id = as_int(line["number"])
            self.first_update_id = self.next_update_id = FIRST_UPDATE_ID + self.next_message_id
            return
        if line["kind"] == "named":
            self.people.update({as_int(who): str(name) for who, name in as_map(line["people"]).items()})
            self.namings += 1
            return
        self._add_update(as_map(line["update"]), str(line["token_id"]))

    def message(self, chat: object, message_id: int) -> Message | None:
        """Return the message of that id in that chat, if there is one."""
        found = self.messages.get(message_id)
        return found if found is not None and found.chat == chat_number(chat) else None

    def thread(self, chat: int) -> list[Message]:
        """Return the messages of one chat, oldest first."""
        return sorted((m for m in self.messages.values() if m.chat == chat), key=lambda m: m.message_id)

    def chats(self) -> list[Message]:
        """Return the newest message of each chat, the newest first."""
        newest: dict[int, Message] = {}
        for message in self.messages.values():
            known = newest.get(message.chat)
            if known is None or message.message_id > known.message_id:
                newest[message.chat] = message
        return sorted(newest.values(), key=lambda m: m.message_id, reverse=True)

    def pending(self, token_id: str) -> Iterator[Update]:
        """Yield the updates a bot has not confirmed yet, oldest first."""
        offset = self.pollings.get(token_id, Polling()).offset
        for update in self.updates[max(offset - self.first_update_id, 0) :]:
            if update.token_id in ("", token_id):
                yield update

    def answers(self, message_id: int) -> list[Press]:
        """Return the presses on one message, oldest first."""
        return [press for press in self.presses.values() if press.message_id == message_id]

    def _add_mail(self, line: Mapping[str, object], payload: Mapping[str, object], at: datetime) -> None:
        self.mails.append(
            Mail(
                n=as_int(line["n"]),
                at=at,
                to=str(line["to"]),
                sender=str(payload["from"]),
                subject=str(payload["subject"]),
                message_id=str(payload["message_id"]),
                raw=str(payload["raw"]),
            )
        )

    def _add_written(self, mail: Mapping[str, object], at: datetime) -> None:
        said = {name: str(mail[name]) for name in ("to", "sender", "subject", "message_id", "raw")}
        self.written.append(Written(uid=len(self.written) + 1, at=at, **said))

    def _add_sent(self, line: Mapping[str, object], payload: Mapping[str, object], at: int) -> None:
        chat, message_id = chat_number(payload["chat_id"]), as_int(line["provider_id"])
        reply = as_map(payload.get("reply_parameters")).get("message_id")
        if isinstance(payload["chat_id"], str):
            self.titles[chat] = payload["chat_id"]
        self._put(
            Message(
                chat=chat,
                message_id=message_id,
                at=at,
                sender=as_int(line["token_id"]),
                by_bot=True,
                text=str(payload["text"]),
                entities=as_list(payload.get("entities")),
                markup=as_map(payload.get("reply_markup")) or None,
                reply_to=as_int(reply) if reply is not None else None,
            )
        )

    def _edit(self, payload: Mapping[str, object], at: int) -> None:
        before = self.messages[as_int(payload["message_id"])]
        after = dataclasses.replace(before, markup=as_map(payload.get("reply_markup")) or None)
        if payload["method"] == "editMessageText":
            entities = as_list(payload.get("entities"))
            after = dataclasses.replace(after, text=str(payload["text"]), entities=entities, edited_at=at)
        self.messages[before.message_id] = after

    def _react(self, who: int, message_id: int, reaction: object) -> None:
        message = self.messages[message_id]
        emojis = tuple(str(r["emoji"]) for r in as_list(reaction) if "emoji" in r)
        self.messages[message_id] = dataclasses.replace(message, reactions={**message.reactions, who: emojis})

    def _put(self, message: Message) -> None:
        self.messages[message.message_id] = message
        self.next_message_id = max(self.next_message_id, message.message_id + 1)

    def _add_update(self, update: Mapping[str, object], token_id: str) -> None:
        update_id = as_int(update["update_id"])
        kind = next(key for key in update if key != "update_id")
        body = as_map(update[kind])
        self.updates.append(Update(update_id, kind, update, token_id))
        self.next_update_id = update_id + 1
        user = as_map(body.get("from") or body.get("user"))
        who = as_int(user["id"])
        self.people[who] = str(user["first_name"])
        if kind == "message":
            self._add_said(body, who)
        elif kind == "message_reaction":
            self._react(who, as_int(body["message_id"]), body["new_reaction"])
        else:
            message = as_map(body["message"])
            chat, message_id = as_int(as_map(message["chat"])["id"]), as_int(message["message_id"])
            callback_id = str(body["id"])
            self.presses[callback_id] = Press(callback_id, token_id, chat, message_id, who)

    def _add_said(self, body: Mapping[str, object], who: int) -> None:
        chat = as_map(body["chat"])
        if "title" in chat:
            self.titles[as_int(chat["id"])] = str(chat["title"])
        reply = as_map(body.get("reply_to_message")).get("message_id")
        self._put(
            Message(
                chat=as_int(chat["id"]),
                message_id=as_int(body["message_id"]),
                at=as_int(body["date"]),
                sender=who,
                by_bot=False,
                text=str(body.get("text") or body.get("caption") or ""),
                entities=as_list(body.get("entities")),
                document=as_map(body.get("document")) or None,
                reply_to=as_int(reply) if reply is not None else None,
            )
        )
