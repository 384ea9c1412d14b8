"""Messages that came in: a pairing code, a command of the owner's, or words for a butler."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from messenger.cards.questions import question
from messenger.channels.telegram import Call
from messenger.delivery.lease import Worker
from messenger.inbound import commands
from messenger.inbound.attachments import attached
from messenger.inbound.callbacks import note_refusal
from messenger.inbound.ingest import bring
from messenger.storage import updates
from messenger.storage.kinds import question_cards
from shared.auth.mac import tag
from shared.channels import realms
from shared.channels.telegram import is_private_chat
from shared.contracts import IngestAttachment, IngestEnvelope, IngestEvent, IngestPayload, IngestSender, IngestSource
from shared.db.pool import Connection, Record
from shared.display.approval import titled
from shared.display.question import LATE, own_words
from shared.display.visible import quoted, visible
from shared.errors import InvalidInput
from shared.storage import contacts, pairings, pending_actions, questions
from shared.storage.questions import Given
from shared.telemetry.logs import logger

log = logger("messenger.inbound.messages")

# A date from this on, in seconds since 1970, is taken for none; a text longer than this is cut.
LATEST: Final = commands.LATEST
LONGEST: Final = 20_000
ONLY_BUTTONS: Final = "This question is answered by its buttons."
ANSWER_STAYS: Final = (
    "Not changed: your first answer counts, and {name} was told that. Write what is different in a new message."
)
NO_WORDS: Final = "An answer is text of up to 10,000 characters."
LINKED: Final = "Linked. Your butlers will message you here. Send /help for what you can do here."


async def handle_message(connection: Connection, worker: Worker, bot: str, row: Record) -> Sequence[Call]:
    """Pair the chat, obey the owner, or bring the words to the Switchboard.

    Return what Telegram is to be called with afterwards.
    """
    message, ids = await _whole(connection, bot, row)
    outcome: str = "ignored"
    calls: Sequence[Call] = ()
    later = await _of_album(connection, bot, row["update_id"], changed(row["body"]))
    if later is not None:
        await _bring_in(worker, bot, row["update_id"], later)
        outcome, calls = "ingested", await _stays(connection, bot, row["update_id"], later)
    elif isinstance(message, dict) and (_is_read(message) or any(kind in message for kind in updates.UNREAD_KINDS)):
        code, command = _pairing_code(message), await commands.given(connection, message)
        if code is not None:
            outcome, calls = await _start(connection, worker, code, message)
        elif command is not None:
            outcome, calls = await commands.carry_out(connection, worker, command, message)
        elif (question := await question_replied(connection, message)) is not None:
            outcome, calls = await _answer_question(connection, worker, question, message)
        else:
            together = False
            if _is_read(message):
                await _bring_in(worker, bot, row["update_id"], message)
                outcome = "ingested"
                together = await _goes_with_words(connection, worker, bot, row["update_id"], message)
            calls = () if together else await commands.unread(connection, worker, message)
        await note_refusal(connection, worker, message, outcome)
    if outcome == "ingested":
        await updates.brought_in(connection, bot, ids)
    else:
        await updates.handled(connection, bot, ids, outcome)
    return calls


async def _whole(connection: Connection, bot: str, row: Record) -> tuple[object, list[int]]:
    """Return the message of an update, and the updates that it came in.

    An album is one message, with the words and the files of all its parts.
    """
    message, update_id = row["body"].get("message"), row["update_id"]
    if message is None or not updates.is_of_album(row["body"]):
        return await _to_album(connection, bot, update_id, message), [update_id]
    found = await updates.album(connection, bot, update_id, message)
    # What a part says of its sender counts for no other.
    parts = [one for one in found if _whose(one["message"]) == _whose(message)]
    sent = [one["message"] for one in parts]
    return _as_one(_spoken(sent, message), sent), [one["update_id"] for one in parts] or [update_id]


async def _to_album(connection: Connection, bot: str, update_id: int, message: object) -> object:
    """Return a message that answers one photo of an album as an answer to the message that the album is."""
    answered = message.get("reply_to_message") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(answered, dict) or "media_group_id" not in answered:
        return message
    sent = [row["message"] for row in await updates.of_album(connection, bot, update_id, answered) if row["is_sent"]]
    return {**message, "reply_to_message": _spoken(sent, sent[0]) if sent else answered}


def _spoken(parts: Sequence[Mapping[str, object]], first: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part that gives an album its number: the first with words, else the first."""
    return next(filter(_words, parts), first)


def _as_one(message: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return a message with the words and the files of all parts of an album."""
    return {**message, "caption": "\n\n".join(filter(None, map(_words, parts))), "parts": list(parts)}


async def _of_album(
    connection: Connection, bot: str, update_id: int, edit: Mapping[str, object] | None
) -> Mapping[str, object] | None:
    """Return an edit of a part of an album as one of the message that the album is, with all its words as they are now.

    Where the other parts are gone it is one of that part alone.
    """
    if edit is None or "media_group_id" not in edit:
        return edit
    found = await updates.of_album(connection, bot, update_id, edit)
    rows = [row for row in found if _whose(row["message"]) == _whose(edit)]
    sent = [row["message"] for row in rows if row["is_sent"]]
    if not sent:
        return edit
    now = {_place_of(row["message"]): row["message"] for row in rows}
    return _as_one({**edit, "message_id": _spoken(sent, sent[0]).get("message_id")}, list(now.values()))


async def _goes_with_words(
    connection: Connection, worker: Worker, bot: str, update_id: int, message: Mapping[str, object]
) -> bool:
    """Return whether what begins no work of its own is in the prompt of words just before it, and needs no answer."""
    # An album is there only when the session of those words may have begun.
    if "parts" in message or (_words(message) and not commands.is_anothers(message)):
        return False
    return await updates.follows_words(connection, bot, update_id, worker.context.settings.timings.said_together)


def _whose(message: Mapping[str, object]) -> tuple[object, object, bool]:
    return updates.sender_of(message), message.get("chat"), commands.is_anothers(message)


def _pairing_code(message: Mapping[str, object]) -> str | None:
    text = str(message.get("text"))
    return text.partition(" ")[2].strip() if text.startswith("/start ") else None


async def _start(
    connection: Connection, worker: Worker, code: str, message: Mapping[str, object]
) -> tuple[str, Sequence[Call]]:
    """Pair the chat; what is no good code in the owner's own chat is /start, such as the link of yesterday."""
    outcome = await _pair(connection, worker, code, message)
    if outcome == "not_paired" and await commands.is_owners(connection, message):
        return await commands.carry_out(connection, worker, "/start", message)
    return outcome, [commands.answer(message, LINKED)] if outcome == "paired" else ()


async def _pair(connection: Connection, worker: Worker, code: str, message: Mapping[str, object]) -> str:
    """Make the chat the owner's if it brings a one-time code from the command line; return the outcome."""
    chat, owner = message.get("chat"), await contacts.owner(connection)
    private = isinstance(chat, dict) and chat.get("type") == "private" and is_private_chat(str(chat.get("id")))
    if owner is None:
        return "no_owner"
    if not private or not isinstance(chat, dict) or not await pairings.use(connection, code):
        return "not_paired"
    # In the sandbox anybody can be anybody, and read the code; the number would count on a live channel too.
    if realms.realm_of(worker.context.settings, "telegram") == realms.SANDBOX:
        return "not_paired_here"
    try:
        await contacts.add_address(
            connection, owner["id"], "telegram", str(chat["id"]), primary=True, surface="telegram"
        )
    except InvalidInput as taken:
        log.warning("not paired", why=taken.message)
        return "chat_taken"
    event = pending_actions.Event("paired", "owner", reason=f"Telegram chat {visible(str(chat['id']))}")
    await pending_actions.record(connection, event)
    await commands.started(connection, worker, message)
    return "paired"


def changed(update: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return an edit, or a reaction, in the form of a message that names its kind and its own event; else None.

    Neither is a command: what it says was said of another message. Whose words a bot puts in its place are forwarded.
    """
    edit, reaction = update.get("edited_message"), update.get("message_reaction")
    if isinstance(edit, dict) and _is_read(edit):
        kind = "forward" if commands.is_anothers(edit) else "edit"
        # Its date alone would be that of another edit within the same second.
        event = f"{_place_of(edit)}:edit:{edit.get('edit_date')}:{update.get('update_id')}"
        return {**edit, "kind": kind, "event": event, "date": edit.get("edit_date")}
    if not isinstance(reaction, dict):
        return None
    given = reaction.get("new_reaction")
    emoji = given.get("emoji") if isinstance(given, dict) else None
    who, place = reaction.get("user"), _place_of(reaction)
    number = who.get("id") if isinstance(who, dict) else None
    event = f"{place}:reaction:{reaction.get('date')}:{number}"
    said = {"kind": "reaction", "event": event, "from": who, "text": emoji if isinstance(emoji, str) else ""}
    answered = {"reply_to_message": {"message_id": reaction.get("message_id")}}
    return {**reaction, **said, **answered}


async def _bring_in(worker: Worker, bot: str, update_id: int, message: Mapping[str, object]) -> None:
    """Hand a message to the Switchboard's inbox; raise HopFailed while that is not there."""
    chat, sender = message.get("chat"), updates.sender_of(message)
    if not isinstance(chat, dict) or not isinstance(sender, dict):
        return
    name = str(sender.get("title") or sender.get("first_name") or "")[:200] or None
    try:
        event = IngestEnvelope(
            source=IngestSource(channel="telegram", provider="telegram", endpoint_identity=bot),
            event=IngestEvent(
                external_event_id=_event_id(worker, bot, message),
                external_thread_id=_place_of(message),
                reply_to=_answered(message),
                kind=str(message.get("kind") or ("forward" if commands.is_anothers(message) else "message")),
                observed_at=_when(message.get("date")),
            ),
            sender=IngestSender(identity=str(sender.get("id")), display_name=name),
            payload=IngestPayload(
                text=_words(message)[:LONGEST], quoted=_marked(message), attachments=_files(message) or None
            ),
        )
    except ValidationError:
        log.warning("an update is nobody's message", update=update_id)
        return
    try:
        await bring(worker.context, event)
    except InvalidInput as unfit:
        log.warning("an update is passed over, since the Switchboard refuses it", update=update_id, why=unfit.message)


def _event_id(worker: Worker, bot: str, message: Mapping[str, object]) -> str:
    """Return the event's name: the message's own number, which no second update of it changes, and a tag of ours.

    INVARIANT: nobody else can make the tag, and so take the name of a message that has yet to come.
    """
    named = str(message.get("event") or _place_of(message))
    return f"{named}:{tag(worker.context.secret, 'event', bot, named)}"


def _place_of(message: Mapping[str, object]) -> str:
    chat = message.get("chat")
    return f"{chat.get('id') if isinstance(chat, dict) else None}:{message.get('message_id')}"


def _answered(message: Mapping[str, object]) -> str | None:
    """Return the thread identity of what is answered, by its number in this chat and never by what is quoted of it."""
    answered = message.get("reply_to_message")
    if not isinstance(answered, dict) or not isinstance(answered.get("message_id"), int):
        return None
    return _place_of({"chat": message.get("chat"), "message_id": answered["message_id"]})


def _marked(message: Mapping[str, object]) -> str | None:
    """Return the part of another message that the sender marked to answer it; whose words these are nobody proves."""
    quote = message.get("quote")
    text = quote.get("text") if isinstance(quote, dict) else None
    return text[:LONGEST] if isinstance(text, str) and text.strip() else None


def _words(message: Mapping[str, object]) -> str:
    """Return the text of a message, or the one below its picture."""
    return next((text for name in ("text", "caption") if isinstance(text := message.get(name), str)), "")


def _is_read(message: Mapping[str, object]) -> bool:
    return bool(_words(message) or _files(message))


def _files(message: Mapping[str, object]) -> tuple[IngestAttachment, ...]:
    parts = message.get("parts")
    return tuple(file for part in parts for file in attached(part)) if isinstance(parts, list) else attached(message)


def _when(date: object) -> str:
    seconds = date if isinstance(date, int) and 0 <= date < LATEST else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def question_replied(connection: Connection, message: Mapping[str, object]) -> str | None:
    """Return the question that the owner answers by this message; None for any other message, and anybody else's."""
    answered, chat = message.get("reply_to_message"), message.get("chat")
    if not isinstance(answered, dict) or not isinstance(chat, dict) or commands.is_anothers(message):
        return None
    found = await question_cards.question_answered(connection, str(chat.get("id")), str(answered.get("message_id")))
    return found if found is not None and await commands.is_owners(connection, message) else None


async def _stays(connection: Connection, bot: str, update_id: int, edit: Mapping[str, object]) -> Sequence[Call]:
    """Return the call that says, once, that the answer to a question stays as it was before the owner changed it."""
    question_id = await question_replied(connection, edit) if edit["kind"] == "edit" else None
    if question_id is None or not await updates.changes_answer(connection, bot, update_id):
        return ()
    row = await questions.one(connection, question_id)
    return [commands.answer(edit, ANSWER_STAYS.format(name=titled(row["origin_butler"])))] if row else ()


async def _answer_question(
    connection: Connection, worker: Worker, question_id: str, message: Mapping[str, object]
) -> tuple[str, list[Call]]:
    """Write the words down as the answer, if it is the first; return the outcome, and the call that says so."""
    row, owner = await questions.one(connection, question_id), await contacts.owner(connection)
    text = message.get("text")
    if row is None or owner is None:
        return "late", [commands.answer(message, LATE)]
    if not realms.may_ask(realms.realm_of(worker.context.settings, "telegram"), row["realm"]):
        return "command_not_here", [commands.answer(message, realms.NOT_HERE)]
    if row["open"] and not row["allow_text"]:
        return "not_a_choice", [commands.answer(message, ONLY_BUTTONS)]
    words, marked = own_words(text) if isinstance(text, str) else None, _marked(message)
    if words is not None and marked is not None:
        words = own_words(f"{quoted(marked)}\n{words}")
    if words is None:
        return "not_a_choice", [commands.answer(message, NO_WORDS)]
    given = Given(text=words)
    outcome, said = await question.write_answer(connection, question_id, given, owner["id"], worker.context)
    # A card that shows the answer says enough; one that showed another answer before does not.
    return outcome, [] if outcome == "answered" else [commands.answer(message, said)]
