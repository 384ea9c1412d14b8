"""A press of a button (a callback query): what it means, and what the presser is told."""

from collections.abc import Mapping, Sequence
from typing import Final

from messenger.cards import approval, digest, uncertain
from messenger.channels.telegram import Call
from messenger.delivery.lease import Desk
from messenger.maintenance import resolver
from messenger.storage import cards, queries, updates
from shared.addresses import is_private_chat
from shared.channels import realms
from shared.db.pool import Connection, Record
from shared.display.visible import visible
from shared.gate.owner_decision import OwnerDecision, apply
from shared.storage import contacts, pending_actions, refusals, resolutions
from shared.storage.refusals import Refused
from shared.storage.resolutions import Resolution
from shared.telemetry.logs import logger

log = logger("messenger.inbound.callbacks")

VERBS: Final = frozenset({*approval.VERBS, *uncertain.VERBS, digest.SHOW})
NOT_HERE: Final = "not_here"
# What was tried and did nothing, as the audit says it.
REFUSED: Final = {
    "stranger": "A press by somebody who is not the owner, or not in the owner's private chat.",
    "not_ours": "A press on no button of ours.",
    approval.STALE: "A press on a button that is not valid: forged, of another card, or of what has changed since.",
    "not_paired": "A pairing code that is none, has run out, or came from no private chat.",
    "chat_taken": "A valid pairing code from a chat that belongs to another contact.",
    NOT_HERE: "A press in the sandbox on what is live.",
    "not_paired_here": "A pairing code in the sandbox, where anybody can be anybody.",
}


async def handle_press(connection: Connection, desk: Desk, bot: str, row: Record) -> Sequence[Call]:
    """Carry out a press once, and answer it; return what Telegram is to be called with afterwards."""
    query = row["body"]["callback_query"]
    query = query if isinstance(query, dict) else {}
    outcome, calls = await _press(connection, desk, query)
    await _note_refusal(connection, desk, query, outcome)
    await updates.handled(connection, bot, row["update_id"], outcome)
    return calls


async def _note_refusal(connection: Connection, desk: Desk, update: Mapping[str, object], outcome: str) -> None:
    """Write into the audit who pressed, or said a pairing code, and what came of it, if that was refused."""
    if outcome not in REFUSED:
        return
    sender = update.get("from")
    number = str(sender.get("id")) if isinstance(sender, dict) else "nobody"
    refused = Refused(desk.ground.name, f"telegram:{visible(number[:20])}", REFUSED[outcome])
    press = approval.read(str(update.get("data", "")), VERBS)
    await refusals.keep(connection, refused, desk.ground.new_id(), about=press.about if press else None)


async def _press(connection: Connection, desk: Desk, query: Mapping[str, object]) -> tuple[str, list[Call]]:
    """Carry out a press by the owner, in the owner's private chat, on a button of ours; else only clear the spinner."""
    spinner: Call = ("answerCallbackQuery", {"callback_query_id": query.get("id")})
    message, sender = query.get("message"), query.get("from")
    press = approval.read(str(query.get("data", "")), VERBS)
    owner = await contacts.owner(connection)
    if owner is None:
        return "no_owner", [spinner]
    if press is None or not isinstance(message, dict) or not isinstance(sender, dict):
        return "not_ours", [spinner]
    chat = message.get("chat")
    at = chat.get("id") if isinstance(chat, dict) else None
    if not await _is_owner(connection, str(sender.get("id")), str(at)):
        log.warning("press by a stranger", sender=str(sender.get("id")))
        return "stranger", [spinner]
    pressed = str(message.get("message_id"))
    if press.verb in uncertain.VERBS:
        code, said = await _answered(connection, desk, press, owner["id"], pressed)
    elif press.verb == digest.SHOW:
        code, said = await digest.pressed(connection, press, pressed, desk.ground)
    else:
        code, said = await _decided(connection, desk, press, owner["id"], pressed)
    return code, [acknowledge(query, said)]


async def _answered(
    connection: Connection, desk: Desk, press: approval.Press, by: str, pressed: str
) -> tuple[str, str]:
    """Carry out the owner's word on what may have arrived; its card shows the outcome as soon as that is committed."""
    row = await queries.doubt(connection, press.about)
    if row is None or not uncertain.genuine(desk.ground.secret, row, press):
        return approval.STALE, approval.NOT_VALID
    word, realm = uncertain.VERBS[press.verb], realms.realm_of(desk.ground.settings, "telegram")
    given = Resolution(row["id"], row["attempt"], word, by, "telegram")
    outcome = await resolver.said(connection, given, realm, desk.ground)
    if outcome is None:
        return NOT_HERE, realms.NOT_HERE
    await cards.adopt(connection, row["id"], row["attempt"], pressed)
    return f"{word}_{outcome}", resolutions.said(word, outcome)


async def _decided(connection: Connection, desk: Desk, press: approval.Press, by: str, pressed: str) -> tuple[str, str]:
    """Carry out the owner's word on an action; its card shows the outcome as soon as that is committed."""
    action = await pending_actions.open_action(connection, press.about)
    if action is None or not approval.genuine(desk.ground.secret, action, press):
        return approval.STALE, approval.NOT_VALID
    lasts, realm = desk.ground.settings.approval_ttl, realms.realm_of(desk.ground.settings, "telegram")
    outcome = await apply(
        connection, OwnerDecision(press.about, press.verb == "ok", by, "telegram", lasts, realm=realm)
    )
    if outcome.code != NOT_HERE:
        await cards.adopt(connection, press.about, action["revision"], pressed)
    return outcome.code, outcome.text


def acknowledge(query: Mapping[str, object], text: str) -> Call:
    """Return the call that stops the button's spinner, with at most 190 characters for the person who pressed."""
    return "answerCallbackQuery", {"callback_query_id": query.get("id"), "text": text[:190]}


async def _is_owner(connection: Connection, sender: str, chat: str) -> bool:
    """Return whether this is the owner in the owner's own private chat: both are the stored number."""
    if sender != chat or not is_private_chat(chat):
        return False
    target = await contacts.target_of(connection, contacts.Whom("recipient", chat), "telegram")
    return isinstance(target, contacts.Target) and target.is_owner
