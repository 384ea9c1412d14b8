"""The kinds of cards, and what is done with whichever kind a row says."""

from typing import Final

from messenger.cards import (
    approval,
    bounced,
    channel_paused,
    digest,
    not_delivered,
    restored,
    uncertain,
)
from messenger.cards.base import CardKind, Press, read
from messenger.cards.calls import outcome, request
from messenger.cards.calls import uncertain as uncertain_call
from messenger.cards.questions import question
from messenger.cards.strangers import stranger, too_many
from messenger.storage import cards
from messenger.storage.deliveries import Claimed
from shared.config.timings import Timings
from shared.db.pool import Connection, savepoint
from shared.errors import Away
from shared.loops import apart
from shared.telemetry.logs import logger

log = logger("messenger.cards.kinds")

_OF_MESSAGES: Final = (approval, digest, uncertain, bounced, not_delivered)
_ALL: Final = (*_OF_MESSAGES, channel_paused, restored, too_many, stranger, request, outcome, uncertain_call, question)
KINDS: Final[dict[str, CardKind]] = {one.KIND.name: one.KIND for one in _ALL}


async def write_missing(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards that are missing, and return how many.

    This takes a transaction of its own, in which nothing is held yet.
    """
    await cards.one_at_a_time(connection)
    written = 0
    for kind in KINDS.values():
        if kind.ask:
            # A row that breaks one kind keeps no other's cards from the owner.
            with apart(log, "cards were not written", through=(Away,), kind=kind.name):
                async with savepoint(connection):
                    written += await kind.ask(connection, burst, timings)
    return written


def shows_again(claimed: Claimed) -> bool:
    """Return whether this is a card that keeps its words once it is over, and shows what became of it."""
    return claimed.card_kind is not None and claimed.channel == "telegram" and bool(KINDS[claimed.card_kind].over)


def pressed_kind(data: object) -> tuple[CardKind, Press] | None:
    """Return the press in a button's data and the kind of card it speaks for; None for no button of ours."""
    for kind in KINDS.values():
        press = read(str(data), kind.verbs)
        if press is not None:
            return kind, press
    return None
