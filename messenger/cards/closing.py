"""The closing of cards whose question is over: they keep their words, show the outcome and lose their buttons.

What a card shows is kept with its part. The rows say what became of its question, so that a word given in the console
or on the command line shows in Telegram too. A card that shows a yes is changed again when its message
has ended, and when more is known of one that was uncertain.
"""

from collections.abc import Mapping
from typing import Any

from butlers.butler import Context
from messenger.cards.base import CardKind
from messenger.cards.kinds import KINDS
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.storage import cards
from shared.channels import realms
from shared.channels.telegram import LIMIT_UNITS, utf16_units
from shared.db.pool import Connection, Record
from shared.display import owner
from shared.display.owner import Said
from shared.display.visible import MARK, in_line
from shared.errors import Unavailable
from shared.loops import apart
from shared.telemetry.logs import logger

log = logger("messenger.cards.closing")


async def over(connection: Connection) -> list[tuple[Record, CardKind]]:
    """Return the cards in Telegram that are over and still show their buttons, each with its kind."""
    return [(card, kind) for kind in KINDS.values() if kind.over for card in await kind.over(connection)]


async def close(context: Context, telegram: TelegramChannel) -> int:
    """Show on each open card what became of its question; return how many there were.

    A card whose change Telegram refuses for good is not tried again. Raises ProviderRefused at the first that Telegram
    puts off for all.
    """
    async with context.db.work() as connection:
        found = await over(connection)
    for card, kind in found:
        with apart(log, "a card was not closed", through=(ProviderRefused,), card=card["id"]):
            await _close_one(context, telegram, card, kind)
    return len(found)


async def _close_one(context: Context, telegram: TelegramChannel, card: Record, kind: CardKind) -> None:
    # A card whose outcome cannot be read loses its buttons all the same, and does not stop the others.
    said = ""
    with apart(log, "a card shows no outcome", card=card["id"]):
        try:
            async with context.db.work() as connection:
                said = await kind.outcome(connection, card) if kind.outcome else ""
        except Unavailable:
            return
    here = realms.realm_of(context.settings, "telegram")
    method, payload = edited(card, said if realms.may_ask(here, card["realm"]) else "")
    try:
        await telegram.call(method, payload, wait=10)
    except ProviderRefused as refused:
        if refused.is_for_all:
            raise
        log.info("a card was not changed", why=refused.message)
        if refused.retryable:
            return
    async with context.db.work() as connection:
        await cards.close_card(connection, card["id"], card["shows"])


def edited(card: Record | Mapping[str, Any], outcome: str) -> tuple[str, dict[str, object]]:
    """Return the edit that adds the outcome to what the card shows and takes its buttons.

    Without an outcome, or if the card is full, it only loses the buttons.
    """
    at: dict[str, object] = {"chat_id": int(card["address"]), "message_id": int(card["provider_id"])}
    more = owner.plain(f"\n\n{MARK} {in_line(outcome)}")
    shown = card["shown"]
    if not outcome or not shown or utf16_units(shown["text"] + more.text) > LIMIT_UNITS:
        return "editMessageReplyMarkup", {**at, "reply_markup": {"inline_keyboard": []}}
    moved = (Said("x" * utf16_units(shown["text"])) + more).entities
    words = {"text": shown["text"] + more.text, "entities": [*shown.get("entities", ()), *moved]}
    return "editMessageText", {**at, "link_preview_options": {"is_disabled": True}, **words}
