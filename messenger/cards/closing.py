"""The closing of cards whose question is over: they keep their words, show the outcome and lose their buttons.

The rows say which, so that a word given in the console or on the command line shows in Telegram too.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from butlers.butler import Ground
from messenger.cards import approval, uncertain
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.storage import cards, queries
from shared.channels import realms
from shared.channels.telegram import LIMIT_UNITS, utf16_units
from shared.db.pool import Connection, Record
from shared.display import owner
from shared.display.owner import Said
from shared.display.visible import MARK, in_line
from shared.errors import Unavailable
from shared.gate.owner_decision import denied
from shared.loops import apart
from shared.storage import deliveries, pending_actions, standing
from shared.telemetry.logs import logger

log = logger("messenger.cards.closing")
Edit: TypeAlias = Callable[[Ground, Record], Awaitable[tuple[str, dict[str, object]]]]
ASKED_ANEW: Final = "It changed, and was asked anew."
HAD_ARRIVED: Final = "It had arrived before anybody answered."
SAID: Final = {
    "approved": "Approved.",
    "executing": "Approved.",
    "executed": "Approved and sent.",
    "failed": "Approved, and not delivered as asked.",
    "uncertain": "Approved. It may have arrived.",
    "expired": "It ran out of time and was not sent.",
    "cancelled": "It was not sent.",
}

# The answer says which: nobody answered in time, or nobody could send it in time after a yes.
TOLD_BY_ITS_ANSWER: Final = frozenset({"cancelled", "expired"})


async def close(ground: Ground, telegram: TelegramChannel) -> int:
    """Show on each open card what became of its question; return how many there were.

    A card whose change Telegram refuses for good is not tried again. Raises ProviderRefused at the first that Telegram
    puts off for all.
    """
    async with ground.db.work() as connection:
        over = [(card, _edit) for card in await queries.cards_over(connection)]
        over += [(card, _edit_doubt) for card in await queries.doubts_over(connection)]
    for card, edit in over:
        with apart(log, "a card was not closed", through=(ProviderRefused,), card=card["id"]):
            await _close_one(ground, telegram, card, edit)
    return len(over)


async def _close_one(ground: Ground, telegram: TelegramChannel, card: Record, edit: Edit) -> None:
    # A card whose row cannot be read loses its buttons all the same, and does not stop the others.
    method, payload = edited(card["address"], card["provider_id"], Said(), "")
    with apart(log, "a card keeps its words", card=card["id"]):
        try:
            method, payload = await edit(ground, card)
        except Unavailable:
            return
    try:
        await telegram.call(method, payload, wait=10)
    except ProviderRefused as refused:
        if refused.is_for_all:
            raise
        log.info("a card was not changed", why=refused.message)
        if refused.retryable:
            return
    async with ground.db.work() as connection:
        await cards.close_card(connection, card["id"])


async def _edit(ground: Ground, card: Record) -> tuple[str, dict[str, object]]:
    async with ground.db.work() as connection:
        action = await pending_actions.open_action(connection, card["action_id"])
        shown = action is not None and realms.may_ask(realms.realm_of(ground.settings, "telegram"), action["realm"])
        words = await approval.last_words(connection, action, ground) if action is not None and shown else Said()
        said = await _outcome(connection, card)
    return edited(card["address"], card["provider_id"], words, said)


async def _edit_doubt(ground: Ground, card: Record) -> tuple[str, dict[str, object]]:
    """Return the edit that closes a card about what was uncertain."""
    async with ground.db.work() as connection:
        row = await queries.doubt(connection, card["about"], card["revision"])
    if row is None or not realms.may_ask(realms.realm_of(ground.settings, "telegram"), row["realm"]):
        return edited(card["address"], card["provider_id"], Said(), "")
    words = owner.bubbles(uncertain.words(row))[-1]
    return edited(card["address"], card["provider_id"], words, uncertain.outcome(row))


def edited(chat: str, message_id: str, words: Said, outcome: str) -> tuple[str, dict[str, object]]:
    """Return the edit that gives the card its outcome and takes its buttons.

    A card that is full keeps its words and only loses the buttons.
    """
    at: dict[str, object] = {"chat_id": int(chat), "message_id": int(message_id)}
    shown = words + owner.plain(f"\n\n{MARK} {in_line(outcome)}")
    if not words.text or utf16_units(shown.text) > LIMIT_UNITS:
        return "editMessageReplyMarkup", {**at, "reply_markup": {"inline_keyboard": []}}
    return "editMessageText", {**at, "link_preview_options": {"is_disabled": True}, **shown.fields}


async def _outcome(connection: Connection, card: Record) -> str:
    if card["status"] == "pending":
        return ASKED_ANEW
    if card["status"] == "denied":
        return denied(begun=await deliveries.begun(connection, card["notification_id"]))
    if card["status"] in TOLD_BY_ITS_ANSWER:
        answer = await standing.status(connection, card["notification_id"])
        if answer is not None and answer.error is not None:
            return answer.error.message
        if card["status"] == "cancelled" and answer is not None and answer.status == "ok" and not answer.duplicate:
            return HAD_ARRIVED
    return SAID[card["status"]]
