"""A press of a button (a callback query): what it means, and what the presser is told."""

from collections.abc import Mapping, Sequence
from typing import Final

from messenger.cards.base import NOT_HERE, STALE, Presser
from messenger.cards.kinds import pressed_kind
from messenger.channels.telegram import Call
from messenger.delivery.lease import Worker
from messenger.maintenance import resolver
from messenger.storage import updates
from shared.channels.telegram import is_private_chat
from shared.db.pool import Connection, Record
from shared.display.visible import visible
from shared.storage import contacts, refusals
from shared.storage.refusals import Refused
from shared.telemetry.logs import logger

log = logger("messenger.inbound.callbacks")

# What was tried and did nothing, as the audit says it.
REFUSED: Final = {
    "stranger": "A press by somebody who is not the owner, or not in the owner's private chat.",
    "not_ours": "A press on no button of ours.",
    STALE: "A press on a button that is not valid: forged, of another card, or of what has changed since.",
    "not_paired": "A pairing code that is none, has run out, or came from no private chat.",
    "chat_taken": "A valid pairing code from a chat that belongs to another contact.",
    NOT_HERE: "A press in the sandbox on what is live.",
    "command_not_here": "A command in the sandbox while a channel is live.",
    "not_paired_here": "A pairing code in the sandbox, where anybody can be anybody.",
}


async def handle_press(connection: Connection, worker: Worker, bot: str, row: Record) -> Sequence[Call]:
    """Carry out a press once, and answer it; return what Telegram is to be called with afterwards."""
    query = row["body"]["callback_query"]
    query = query if isinstance(query, dict) else {}
    outcome, calls = await _press(connection, worker, query)
    await note_refusal(connection, worker, query, outcome)
    await updates.handled(connection, bot, [row["update_id"]], outcome)
    return calls


async def note_refusal(connection: Connection, worker: Worker, update: Mapping[str, object], outcome: str) -> None:
    """Write into the audit who pressed, or wrote what is no message, and what came of it, if that was refused."""
    if outcome not in REFUSED:
        return
    sender = updates.sender_of(update)
    number = str(sender.get("id")) if isinstance(sender, dict) else "nobody"
    refused = Refused(worker.context.name, f"telegram:{visible(number[:20])}", REFUSED[outcome])
    found = pressed_kind(update.get("data"))
    await refusals.keep(connection, refused, worker.context.new_id(), about=found[1].about if found else None)


async def _press(connection: Connection, worker: Worker, query: Mapping[str, object]) -> tuple[str, list[Call]]:
    """Carry out a press by the owner, in the owner's private chat, on a button of ours; else do nothing."""
    spinner: Call = ("answerCallbackQuery", {"callback_query_id": query.get("id")})
    message, sender = query.get("message"), query.get("from")
    found = pressed_kind(query.get("data"))
    owner = await contacts.owner(connection)
    if owner is None:
        return "no_owner", [spinner]
    if found is None or not isinstance(message, dict) or not isinstance(sender, dict):
        return "not_ours", [spinner]
    chat = message.get("chat")
    at = chat.get("id") if isinstance(chat, dict) else None
    if not await is_owner(connection, str(sender.get("id")), str(at)):
        log.warning("press by a stranger", sender=str(sender.get("id")))
        # Whoever presses without end does not have Telegram asked each time, while the owner's words wait.
        return "stranger", []
    kind, press = found
    presser = Presser(owner["id"], str(message.get("message_id")), resolver.heed_press)
    code, said = await kind.pressed(connection, press, presser, worker.context) if kind.pressed else ("not_ours", "")
    return code, [acknowledge(query, said)]


def acknowledge(query: Mapping[str, object], text: str) -> Call:
    """Return the call that stops the button's spinner, with at most 190 characters for the person who pressed."""
    return "answerCallbackQuery", {"callback_query_id": query.get("id"), "text": text[:190]}


async def is_owner(connection: Connection, sender: str, chat: str) -> bool:
    """Return whether this is the owner in the owner's own private chat: both are the stored number."""
    if sender != chat or not is_private_chat(chat):
        return False
    target = await contacts.target_of(connection, contacts.Recipient("recipient", chat), "telegram")
    return isinstance(target, contacts.Target) and target.is_owner
